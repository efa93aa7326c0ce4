#include "src/cli/profile.h"

#include <filesystem>
#include <iostream>

#include "src/base/error.h"
#include "src/cli/command.h"

namespace canopy::cli {

HardwareProfile read_profile(const std::string& file) {
  try {
    return hardware_profile_from_json(read_text(file));
  } catch (const Error& e) {
    throw Error(file + ": " + e.what());
  }
}

HardwareProfile measure_profile(const ModelFiles& models, const EngineOptions& options,
                                const std::string& file, ProgressLine& progress,
                                const std::stop_token& stop) {
  HardwareProfile profile = measure_hardware(
      models, options,
      [&](std::string_view what) { progress.show("measuring " + std::string(what)); }, stop);
  progress.clear();
  profile.version = CANOPY_VERSION;
  profile.date = today();
  const std::filesystem::path to =
      file.empty() ? profile_file(profile) : std::filesystem::path(file);
  std::error_code ignored;  // write_text says what is wrong
  if (to.has_parent_path()) std::filesystem::create_directories(to.parent_path(), ignored);
  write_text(to.string(), to_json(profile));
  return profile;
}

HardwareProfile find_profile(const boost::program_options::variables_map& values,
                             const ModelFiles& models, const EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop) {
  if (values.count("profile")) return read_profile(values["profile"].as<std::string>());
  const std::filesystem::path kept = profile_file(models, options);
  if (std::filesystem::exists(kept)) {
    try {
      HardwareProfile profile = read_profile(kept.string());
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
  try {
    HardwareProfile profile = measure_profile(models, options, "", progress, stop);
    std::cerr << "note: measured, and kept in " << profile_file(profile).string() << "\n";
    return profile;
  } catch (const Stopped&) {
    progress.clear();
    throw;
  }
}

}  // namespace canopy::cli
