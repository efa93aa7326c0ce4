#pragma once
#include <stop_token>

#include "src/cli/output/progress_line.h"
#include "src/cli/output/standard_output.h"
#include "src/measure/hardware.h"

namespace canopy::cli {

/// The profile in a file. Throws Error naming the file.
HardwareProfile read_profile(const std::string& file);

/// The profile of a machine whose disk gives no more than an engine's limit, where it has one.
HardwareProfile with_limit(HardwareProfile profile, const EngineOptions& options);

/// measure_hardware(), shown on the progress line. Throws Stopped on request.
HardwareProfile measure_profile(const ModelFiles& models, const EngineOptions& options,
                                ProgressLine& progress, const std::stop_token& stop);
/// A file of the user's cache, whose folder is made if it is not there. Throws Error.
TextOutput open_in_cache(const std::filesystem::path& file);

/// Finds what the cache keeps of these models on this machine, else measures now, and keeps it
/// there if it can; notes on stderr say so.
HardwareProfile find_profile(const ModelFiles& models, const EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop);

}  // namespace canopy::cli
