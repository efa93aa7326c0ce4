#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "planner/hardware_profile.h"
#include "src/engine/engine.h"

namespace canopy {

/// What a measurement depends on beside the models: the device, its threads, the disk that holds
/// the target.
std::string machine_of(const ModelFiles& models, const EngineOptions& options);

/// A hash of the sources of everything that is measured, and of how: a profile made by other code
/// says nothing of this program's steps.
std::string_view measured_code();

using OnMeasure = std::function<void(std::string_view what)>;  // is about to be measured
/// Times what a step is made of: the link, and arithmetic by rows, on sweeps over the first layers
/// of the target, streamed within options.plan.memory; levels of the draft; verification. Seconds,
/// for most models; on_measure is told what comes. Throws Error if the budget has no room for
/// it, Stopped on request.
HardwareProfile measure_hardware(const ModelFiles& models, const EngineOptions& options,
                                 const OnMeasure& on_measure = {}, std::stop_token stop = {});

/// Where the user's cache keeps a profile of these models on this machine.
std::filesystem::path profile_file(const HardwareProfile& profile);
std::filesystem::path profile_file(const ModelFiles& models, const EngineOptions& options);

}  // namespace canopy
