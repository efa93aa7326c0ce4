#pragma once
// Room src/measure: measurements of this machine and these models: cost curves, acceptance,
// perplexity, methods side by side; the user's cache of them.
// In: an engine, or its parts by engine_parts.h. Out: profiles, acceptance, tables.
// Must not know: flags, HTTP.
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "planner/hardware_profile.h"
#include "src/engine/engine.h"
#include "src/measure/steps/measured_samples.h"

namespace canopy {

/// Names what a measurement depends on besides the models: the device, its threads, the disk that
/// holds the target.
std::string machine_of(const ModelFiles& models, const EngineOptions& options);

/// A hash of the sources of everything that is measured, and of how: a profile made by other code
/// says nothing of this program's steps.
std::string_view measured_code();

using OnMeasure = std::function<void(std::string_view what)>;  // is about to be measured
struct MeasureOptions {
  OnMeasure on_measure = {};
  std::function<void()> on_samples = {};        // there are more than before, at each step perhaps
  std::chrono::milliseconds most_time{10'000};  // unless what is needed takes longer
};
struct HardwareMeasurement {
  HardwareProfile profile;
  /// Its time and the parts of that, if it was above most_time; what it left out for want of time.
  std::vector<std::string> notes;
};
/// Times what a step is made of: the link, and arithmetic by rows, on sweeps over the first layers
/// of the target, streamed within options.plan.memory; levels of the draft; verification. What is
/// needed is timed first; then more sizes, and all of it again, until the time is over. What
/// `samples` has is not timed again; it gains the rest, from which a later call may go on. Throws
/// Error if the budget has no room for it, Stopped on request.
HardwareMeasurement measure_hardware(const ModelFiles& models, const EngineOptions& options,
                                     MeasuredSamples& samples, const MeasureOptions& how = {},
                                     std::stop_token stop = {});

/// Returns the file of the user's cache for a profile of these models on this machine.
std::filesystem::path profile_file(const HardwareProfile& profile);
std::filesystem::path profile_file(const ModelFiles& models, const EngineOptions& options);

}  // namespace canopy
