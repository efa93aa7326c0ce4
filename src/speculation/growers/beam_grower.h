#pragma once
#include <optional>
#include <vector>

#include "src/base/rng.h"
#include "src/speculation/growers/grower.h"

namespace canopy {

/// Grows the chain of greatest joint probability that a beam search of the draft finds: of all
/// continuations of the beams by one token the `beams` heaviest are kept, or as many are drawn by
/// their joint probability, none twice. Beams do not end at end tokens: what stands after one is
/// cut off with the text.
/// Source: "Optimized Multi-Token Joint Decoding ..." (MTAD), 3.2, whose lost algorithm this
/// follows but for duplicates, which would waste a beam.
class BeamGrower final : public Grower {
 public:
  /// `steps`: tokens of the chain. `rng`: beams are drawn by its kDraft numbers; none: the heaviest
  /// are kept, of equal ones those of the earlier beam and the lower token.
  BeamGrower(TokenId root, int beams, int steps, std::optional<StepRng> rng);
  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override;
  GrownTree finish() override;

 private:
  struct Beam {
    TokenId token = 0;
    int parent = -1;  // among all beams of all levels
    double log_q = 0, joint = 0;
  };
  struct Candidate {
    double key;  // by which it is chosen: ln of the joint probability, and noise where it is drawn
    int beam;
    TokenId token;
    double log_q;
  };
  std::vector<Candidate> choose(std::span<const DraftedRow> rows) const;

  int beams_, steps_, level_ = 0;
  std::optional<StepRng> rng_;
  std::vector<Beam> all_;  // in the order in which they are run; the root is number 0
  int first_ = 0;          // of the last level
};

}  // namespace canopy
