#pragma once
#include <optional>
#include <span>

#include "src/base/rng.h"
#include "src/base/types.h"

namespace canopy {

/// The token that a grower takes from a row, which need not be normalised: drawn by the kDraft
/// number of the node that the row is of; without numbers the likeliest, of equal ones the lower.
TokenId drawn_token(std::span<const float> row, const std::optional<StepRng>& rng, NodeId node);

}  // namespace canopy
