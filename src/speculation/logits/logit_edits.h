#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "src/text/token_constraint.h"

namespace canopy {

/// The largest penalty or bias: beyond it an edit decides alone, and sums of edits stay far from
/// infinity.
inline constexpr float kMostEdit = 1e6f;

/// Changes of a text's logits before its tokens are drawn from them (docs/math.md, "Edits along a
/// path"): bias and constraint first, then the penalties.
struct LogitEditing {
  /// > 0. Of each token that stands in the prompt or in the text, once: a logit above 0 is divided
  /// by it, any other multiplied.
  float repetition = 1;
  float presence = 0;   // taken off the logit of each token that was generated
  float frequency = 0;  // the same, as many times as it was
  /// Added to the token's logit; minus infinity: the token is never taken.
  std::vector<std::pair<TokenId, float>> bias;
  /// Constraint on what may follow the prompt; it stands where the generated text begins. Null:
  /// everything.
  std::shared_ptr<const TokenConstraint> constraint;

  bool none() const {
    return repetition == 1 && presence == 0 && frequency == 0 && bias.empty() && !constraint;
  }
};

}  // namespace canopy
