#pragma once
#include <optional>
#include <span>
#include <vector>

#include "src/base/rng.h"
#include "src/base/types.h"

namespace canopy {

/// The token that a grower takes from a row, which need not be normalised: drawn by the kDraft
/// number of the node that the row is of; without numbers the likeliest, of equal ones the lower.
TokenId drawn_token(std::span<const float> row, const std::optional<StepRng>& rng, NodeId node);

/// Tokens that are drawn one after another, never one twice, by kDraft numbers from `first` on.
/// Fewer than `count` where fewer have a probability.
std::vector<TokenId> distinct_tokens(std::span<const float> row, int count, const StepRng& rng,
                                     std::uint64_t first);

}  // namespace canopy
