#include "src/measure/kept.h"

#include "planner/acceptance_file.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/file_writer.h"
#include "src/checkpoint/fingerprint.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

std::string read_settings(const fs::path& file) {
  return read_file(file, kMostSettingsBytes, FileKind::kOfUser);
}

/// Where the profile of these models on this machine is kept; nothing, with a note, if nowhere.
std::optional<fs::path> kept_profile(const ModelFiles& models, const EngineOptions& options,
                                     const ProfileEvents& events) {
  if (const std::string ignored = ignored_cache_dir(); !ignored.empty()) events.on_note(ignored);
  try {
    cache_dir();
  } catch (const Error& e) {
    events.on_note(std::string("what is measured cannot be kept: ") + e.what());
    return std::nullopt;
  }
  return profile_file(models, options);
}

/// Nothing, with a note, if there is none that holds.
std::optional<HardwareProfile> read_kept(const std::optional<fs::path>& kept,
                                         const ProfileEvents& events) {
  std::error_code out_of_reach;
  if (!kept || !fs::exists(*kept, out_of_reach)) {
    events.on_note(
        "these models have not run on this machine before: measuring what a step costs (once, "
        "some seconds)");
    return std::nullopt;
  }
  try {
    HardwareProfile profile = parse_profile(kept->string(), read_settings(*kept));
    if (profile.code == measured_code()) return profile;
    events.on_note("the profile of this machine was measured with other code, of " + profile.date +
                   ": measuring again");
  } catch (const Error& e) {
    events.on_note(e.what());
  }
  return std::nullopt;
}

}  // namespace

HardwareProfile parse_profile(const std::string& file, const std::string& content) {
  try {
    return hardware_profile_from_json(content);
  } catch (const Error& e) {
    throw Error(file + ": " + e.what());
  }
}

HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             const ProfileEvents& events, const std::stop_token& stop) {
  const std::optional<fs::path> kept = kept_profile(models, options, events);
  if (auto profile = read_kept(kept, events)) return *profile;
  const HardwareProfile profile = measure_hardware(models, options, events.on_measure, stop);
  if (!kept) return profile;
  try {
    std::error_code ignored;  // the writer says what is wrong
    fs::create_directories(kept->parent_path(), ignored);
    write_file(*kept, to_json(profile));
    events.on_note("measured, and kept in " + kept->string());
  } catch (const Error& e) {
    events.on_note(std::string("measured, but not kept for the next time: ") + e.what());
  }
  return profile;
}

std::optional<KeptAcceptance> find_acceptance(const ModelFiles& models, const Sampling& sampling) {
  if (!models.draft) return std::nullopt;
  fs::path kept;
  try {
    kept = cache_dir() /
           acceptance_file_name(fingerprint(models.target), fingerprint(*models.draft), sampling);
  } catch (const Error&) {
    return std::nullopt;  // without a place for measurements there are none
  }
  std::error_code out_of_reach;
  if (!fs::exists(kept, out_of_reach)) return std::nullopt;
  try {
    return KeptAcceptance{acceptance_from_json(read_settings(kept)).acceptance, kept};
  } catch (const Error& e) {
    throw Error(kept.string() + ": " + e.what());
  }
}

}  // namespace canopy
