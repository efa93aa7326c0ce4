#pragma once
#include <memory>
#include <vector>

#include "src/spec/draft_policy.h"

namespace canopy {

/// The outcome of a step: the root, the accepted nodes below it, and one token drawn
/// from the target. The root was already shown, so a step yields path.size() new tokens.
struct Verdict {
  std::vector<NodeId> path;  // starts with node 0
  TokenId next = 0;          // becomes the next root
};

/// Walks the tree from the root, accepting or rejecting each child so that the text
/// is distributed exactly as if sampled from the target alone.
/// Without replacement: accept child x with chance min(1, p(x) / q(x)); on rejection
/// p <- normalise(max(p - q, 0)) and q <- q without x, renormalised.
/// Source: arXiv:2402.12374, Sec. 3.2.
/// The rule itself is a pure function over doubles, walk(tree, p, q, chooser), so that tests can
/// enumerate it exactly; this class feeds it the visited rows.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual Verdict verify(const Draft& draft, ConstTensorView target_logits, Sampling sampling,
                         const StepRng& rng, Stream& compute) = 0;
};

/// One verifier for all drawings; it dispatches on draft.drawing.
std::unique_ptr<Verifier> make_verifier(Device& device, int vocab, int max_nodes);

}  // namespace canopy
