#pragma once
#include <optional>

#include "src/cli/command.h"
#include "src/engine/plan.h"

namespace canopy::cli {

/// -n: nothing for -1. Throws UsageError.
std::optional<int> wanted_tokens(const boost::program_options::variables_map& values);

/// The context where no flag gives one: what the request needs behind plan.max_prompt, or all that
/// the model was made for. Throws UsageError where there is no room for a token.
void fit_context(std::optional<int> wanted, const ModelConfig& model, PlanRequest& plan);

}  // namespace canopy::cli
