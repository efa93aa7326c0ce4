#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/plan/plan.h"

namespace canopy::cli {

// Runs of canopy bench decode: what --methods and --tree-sizes ask for.

/// --methods. `without_model`: the draft has none, so that "all" are those that can do without.
/// Throws UsageError.
std::vector<SpeculationMethod> parse_methods(const std::string& text, bool without_model,
                                             bool with_inner);

/// Makes the request for one method, so that all have about as many nodes where a size is given: a
/// chain exactly as many, without a size the length that generate would take.
PlanRequest request_for(const PlanRequest& common, SpeculationMethod method);

/// Returns each method with the numbers of nodes that it runs with, one after another; 0: as
/// generate has it. A chain has those of the trees besides its own.
std::vector<std::pair<SpeculationMethod, int>> runs_of(
    const std::vector<SpeculationMethod>& methods, const std::vector<int>& sizes,
    const std::optional<TreeShape>& shape);

}  // namespace canopy::cli
