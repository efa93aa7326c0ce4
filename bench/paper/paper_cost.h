#pragma once
#include <span>

#include "planner/curve.h"
#include "planner/tree_shape.h"

namespace canopy {

/// When the draft grows its tree.
enum class Drafting {
  kBeforeSweep,  // nothing overlaps: the paper's sum
  kDuringSweep,  // at the same time as the sweep, the longer of the two counts: the ideal
};

/// The cost model of the Sequoia paper, for its own tables; that of this system is `CostModel`,
/// which knows of links and memory. Immutable; any thread may read.
/// Source: arXiv:2402.12374, Sec. 3.3, equation (1); math.md (P1).
struct PaperCost {
  Curve target;   // t(n): the target's forward over n tokens
  Seconds draft;  // c: a forward of the draft
  Drafting drafting = Drafting::kBeforeSweep;

  /// t(b n) + d c, or the larger of the two: a step of b = `sequences` trees of n = `nodes` nodes,
  /// for which the draft runs d = `forwards` times. Trees of the paper's tables count a forward for
  /// each level, the root's too; a chain of g drafted tokens needs g.
  Seconds step(int nodes, int forwards, int sequences = 1) const;
};

/// A point of the paper's grid search.
struct PaperChoice {
  int nodes = 0, levels = 0;
  double tokens = 0;  // G(n, d)
  Seconds per_token{};
};

/// The best tree and its depth for the size of `sizes` that takes least time per token of at most
/// `most_levels` levels, a forward each; of equals the smaller, then the shallower. Throws Error if
/// no tree of any size exists.
PaperChoice best_choice(const PaperCost& cost, const Acceptance& acceptance,
                        std::span<const int> sizes, int most_levels);

}  // namespace canopy
