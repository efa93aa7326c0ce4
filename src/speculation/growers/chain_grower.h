#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "src/base/rng.h"
#include "src/speculation/growers/grower.h"
#include "src/speculation/rules/verification_rule.h"

namespace canopy {

/// Record of how often a draft was right when it was so sure: acceptance by the highest probability
/// of the row that a token came from, in 16 bins. Recent tokens count more, as in
/// AcceptanceTracker. Where a bin has seen little, what all tokens showed counts: refusals next to
/// those that there would be if the draft were as often right as it is sure, which is what a text
/// begins with. One thread.
class ConfidenceTracker {
 public:
  static constexpr std::size_t kBins = 16;
  void observe(double confidence, bool accepted);
  /// The chance that a token is accepted whose row has this highest probability.
  double acceptance(double confidence) const;

 private:
  static constexpr double kBefore = 8;   // tokens that what all showed counts for in a bin
  static constexpr double kRefused = 2;  // refusals that the beginning counts for
  struct Bin {
    double accepted = 0, asked = 0;  // sums of weights
  };
  std::array<Bin, kBins> bins_;
  double refused_ = 0, expected_ = 0;  // refusals of all tokens; and if it were as often right
};

/// Grows a chain, one token a level, as long as the next token's chance of being reached is at
/// least Growth::bound, and at most `longest` tokens. The chance is the product of what the tracker
/// says of the rows down to it. A token is never looked at before it is certain to stay: whether it
/// is drawn depends on the tokens above it alone, so the rule stays exact for every chain
/// (docs/math.md, "Chains of adaptive length").
/// Source: arXiv:2211.17192, 3.5, leaves open how the length is chosen.
class ChainGrower final : public Grower {
 public:
  struct Limits {
    Growth::Kind kind = Growth::Kind::kReach;  // or kConfidence: the draft is not sure of the token
    double bound = 0;
    int longest = 0;  // tokens below the root
  };
  /// `tracker` must outlive it. `rng`: tokens are drawn by its kDraft numbers; none: each is the
  /// row's likeliest, of equal ones the lower.
  ChainGrower(TokenId root, Limits limits, const ConfidenceTracker& tracker,
              std::optional<StepRng> rng);
  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override;
  GrownTree finish() override { return {std::move(tree_), std::move(run_)}; }
  std::span<const double> confidences() const override { return confidences_; }

 private:
  Limits limits_;
  const ConfidenceTracker& tracker_;
  std::optional<StepRng> rng_;
  TokenTree tree_;
  std::vector<std::int32_t> run_;
  std::vector<double> confidences_;
  double reach_ = 1;
};

/// Records what a verdict shows of a chain whose tokens had these confidences.
void observe(ConfidenceTracker& tracker, std::span<const double> confidences,
             const Verdict& verdict);

}  // namespace canopy
