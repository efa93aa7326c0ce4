#include "src/cli/options/model/profile.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/cli/options/values.h"
#include "src/cli/output/aside.h"
#include "src/measure/measurement_cache.h"

namespace canopy::cli {

namespace {

OnMeasure shown_on(ProgressLine& progress) {
  const auto start = std::chrono::steady_clock::now();
  return [&progress, start](std::string_view what) {
    const Seconds time = std::chrono::steady_clock::now() - start;
    progress.show("measuring: " + std::string(what) + ", " + format_seconds(time));
  };
}

}  // namespace

HardwareProfile read_profile(const std::string& file) {
  return parse_profile(file, read_text(file, kMostSettingsBytes));
}

HardwareProfile with_limit(HardwareProfile profile, const EngineOptions& options) {
  if (!options.disk_limit || profile.link_bytes_per_second <= *options.disk_limit) return profile;
  // Cores that compute may leave as much of the link as the limit, and more.
  const double left = profile.link_bytes_per_second * (1 - profile.link_slowing);
  profile.link_slowing = std::max(0.0, 1 - left / *options.disk_limit);
  profile.link_bytes_per_second = *options.disk_limit;
  return profile;
}

HardwareProfile measure_profile(const ModelFiles& models, const EngineOptions& options,
                                ProgressLine& progress, const std::stop_token& stop) {
  MeasuredSamples samples;
  const HardwareMeasurement done =
      measure_hardware(models, options, samples, {.on_measure = shown_on(progress)}, stop);
  progress.clear();
  for (const std::string& note : done.notes) aside() << "note: " << note << "\n";
  return done.profile;
}

TextOutput open_in_cache(const std::filesystem::path& file) {
  std::error_code ignored;  // the writer says what is wrong
  std::filesystem::create_directories(file.parent_path(), ignored);
  return TextOutput(file.string());
}

HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop) {
  const auto on_note = [&](const std::string& note) {
    progress.clear();
    aside() << "note: " << note << "\n";
  };
  try {
    return canopy::find_profile(models, options, {on_note, shown_on(progress)}, stop);
  } catch (const Stopped&) {
    progress.clear();
    throw;
  }
}

}  // namespace canopy::cli
