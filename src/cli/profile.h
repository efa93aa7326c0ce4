#pragma once
#include <optional>
#include <stop_token>

#include "src/cli/progress_line.h"
#include "src/engine/hardware.h"

namespace canopy::cli {

/// The profile in a file. Throws Error naming the file.
HardwareProfile read_profile(const std::string& file);

/// Measures, saying so on stderr, and keeps the result for the next time: in `file`, or in the
/// user's cache if that is empty. Throws Stopped on request; nothing is written then.
HardwareProfile measure_profile(const ModelFiles& models, const EngineOptions& options,
                                const std::string& file, ProgressLine& progress,
                                const std::stop_token& stop);

/// --profile's, else what the cache keeps of these models on this machine, else measured now.
HardwareProfile find_profile(const boost::program_options::variables_map& values,
                             const ModelFiles& models, const EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop);

}  // namespace canopy::cli
