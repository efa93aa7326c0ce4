#include "src/cli/profile.h"

#include <filesystem>
#include <iostream>

#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/cli/command.h"

namespace canopy::cli {

HardwareProfile read_profile(const std::string& file) {
  try {
    return hardware_profile_from_json(read_text(file, kMostSettingsBytes));
  } catch (const Error& e) {
    throw Error(file + ": " + e.what());
  }
}

HardwareProfile measure_profile(const ModelFiles& models, const EngineOptions& options,
                                ProgressLine& progress, const std::stop_token& stop) {
  HardwareProfile profile = measure_hardware(
      models, options,
      [&](std::string_view what) { progress.show("measuring " + std::string(what)); }, stop);
  progress.clear();
  profile.version = CANOPY_VERSION;
  profile.date = today();
  return profile;
}

TextOutput open_in_cache(const std::filesystem::path& file) {
  std::error_code ignored;  // the writer says what is wrong
  std::filesystem::create_directories(file.parent_path(), ignored);
  return TextOutput(file.string());
}

namespace {

/// Where the profile of these models on this machine is kept; nothing, with a note, if nowhere.
std::optional<std::filesystem::path> kept_profile(const ModelFiles& models,
                                                  const EngineOptions& options) {
  if (const std::string ignored = ignored_cache_dir(); !ignored.empty())
    std::cerr << "note: " << ignored << "\n";
  try {
    cache_dir();
  } catch (const Error& e) {
    std::cerr << "note: what is measured cannot be kept: " << e.what() << "\n";
    return std::nullopt;
  }
  return profile_file(models, options);
}

}  // namespace

HardwareProfile find_profile(const boost::program_options::variables_map& values,
                             const ModelFiles& models, const EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop) {
  if (values.count("profile")) return read_profile(values["profile"].as<std::string>());
  const std::optional<std::filesystem::path> kept = kept_profile(models, options);
  std::error_code out_of_reach;
  if (kept && std::filesystem::exists(*kept, out_of_reach)) {
    try {
      HardwareProfile profile = read_profile(kept->string());
      if (profile.code == measured_code()) return profile;
      std::cerr << "note: the profile of this machine was measured with other code, of "
                << profile.date << ": measuring again\n";
    } catch (const Error& e) {
      std::cerr << "note: " << e.what() << "\n";
    }
  } else {
    std::cerr << "note: these models have not run on this machine before: measuring what a step "
                 "costs (once, some seconds)\n";
  }
  HardwareProfile profile;
  try {
    profile = measure_profile(models, options, progress, stop);
  } catch (const Stopped&) {
    progress.clear();
    throw;
  }
  if (!kept) return profile;
  try {
    open_in_cache(*kept).write(to_json(profile));
    std::cerr << "note: measured, and kept in " << kept->string() << "\n";
  } catch (const Error& e) {
    std::cerr << "note: measured, but not kept for the next time: " << e.what() << "\n";
  }
  return profile;
}

}  // namespace canopy::cli
