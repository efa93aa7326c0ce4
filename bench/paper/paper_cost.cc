#include "bench/paper/paper_cost.h"

#include <algorithm>
#include <cstddef>

#include "src/base/error.h"

namespace canopy {
namespace {

/// True if a tree of `nodes` nodes exists: levels hold 1, k, k^2, ... nodes.
bool fits(int nodes, int levels, std::size_t k) {
  const auto wanted = static_cast<std::size_t>(nodes);
  std::size_t width = 1, held = 1;
  for (int level = 1; level < levels && held < wanted; ++level) {
    width = std::min(width * k, wanted);
    held += width;
  }
  return held >= wanted;
}

}  // namespace

Seconds PaperCost::step(int nodes, int forwards, int sequences) const {
  const Seconds sweep = target.at(static_cast<double>(nodes) * sequences);
  const Seconds drafts = draft * forwards;
  return drafting == Drafting::kBeforeSweep ? sweep + drafts : std::max(sweep, drafts);
}

PaperChoice best_choice(const PaperCost& cost, const Acceptance& acceptance,
                        std::span<const int> sizes, int most_levels) {
  PaperChoice best;
  for (const int nodes : sizes)
    for (int levels = 1; levels <= std::min(most_levels, nodes); ++levels) {
      if (!fits(nodes, levels, acceptance.accept.size())) continue;
      const TreeShape shape = best_tree(nodes, levels, acceptance);
      const double tokens = expected_tokens(shape, acceptance);
      const Seconds per_token = cost.step(nodes, shape.levels()) / tokens;
      if (best.nodes == 0 || per_token < best.per_token)
        best = {nodes, shape.levels(), tokens, per_token};
    }
  require(best.nodes > 0, "paper's grid: no tree has one of these sizes in so few levels");
  return best;
}

}  // namespace canopy
