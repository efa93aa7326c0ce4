#pragma once
#include <filesystem>

#include "src/cli/options/sampling_options.h"
#include "src/engine/plan.h"

namespace canopy::cli {

/// What generation_config.json of the model advises, for what the user leaves open: into `options`
/// and the plan. Says on stderr how tokens are drawn, and by whose word. Throws Error.
void take_advice(const std::filesystem::path& model, SamplingOptions& options, PlanRequest& plan);

}  // namespace canopy::cli
