#pragma once
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// A text that a beam search has found.
struct FoundText {
  std::vector<TokenId> tokens;
  double log_probability = 0;  // of all its tokens, natural
  double score = 0;            // that over the length to the power of the penalty
  bool ended = false;          // by an end token, which is its last
};

/// The beams of a search, as Hugging Face's generate(num_beams, early_stopping=False) keeps them:
/// of all continuations of the beams by one token the heaviest go on; one that ends leaves the
/// beams if it is among the `beams` heaviest, and is kept if it is among the best that ended. The
/// search is over when no beam can beat the worst of those any more. Sums are of natural logs, in
/// double; of equal ones those of the earlier beam and the lower token come first. Host only, one
/// thread.
///
/// With Limits::joint the text is decided that number of tokens at a time: then the heaviest beam
/// goes on alone, or the text that ended in them is what was found, where that is heavier.
/// Source: "Optimized Multi-Token Joint Decoding ..." (MTJD), Section 3, with W beams for the
/// argmax.
class BeamSet {
 public:
  struct Limits {
    int beams = 1;
    double length_penalty = 1;
    int most_tokens = 1;  // of a text
    int joint = 0;        // tokens that are decided together, without a length penalty; 0: all
  };
  struct Beam {
    std::vector<TokenId> tokens;
    double log_probability = 0;
    int parent = 0;  // its number among the beams before the last extend()
  };
  /// `ends`: the tokens that end a text. At first there is one beam, without tokens.
  BeamSet(Limits limits, std::vector<TokenId> ends);

  const std::vector<Beam>& live() const { return live_; }
  bool done() const { return done_; }
  /// Goes a token further. `logits`: of each beam's next token, [vocab] each. Throws Error unless
  /// all are finite.
  void extend(std::span<const std::span<const float>> logits);
  /// Returns what was found, the best first; beams that have not ended count as they are.
  std::vector<FoundText> texts() const;

 private:
  double score(double log_probability, std::size_t tokens) const;
  void keep(std::vector<FoundText>& found, FoundText text) const;
  void decide();

  Limits limits_;
  std::vector<TokenId> ends_;
  std::vector<Beam> live_;
  std::vector<FoundText> found_;  // the best first
  bool done_ = false;
};

/// A continuation of a beam by one token.
struct BeamCandidate {
  double log_probability = 0;  // of the beam and the token
  int beam = 0;
  TokenId token = 0;
};
/// The `count` heaviest of all continuations, in the order of BeamSet. `start`: log probabilities
/// of the beams; `logits`: of their next tokens, each over the same vocabulary. The
/// tokens `leave_out` are none. Throws Error unless all logits are finite.
std::vector<BeamCandidate> heaviest(std::span<const double> start,
                                    std::span<const std::span<const float>> logits,
                                    std::size_t count, std::span<const TokenId> leave_out = {});

}  // namespace canopy
