#pragma once
#include <algorithm>
#include <vector>

#include "planner/tree_shape.h"
#include "src/base/rng.h"
#include "src/speculation/draft.h"
#include "src/speculation/rules/verification_rule.h"
#include "src/speculation/token_tree.h"

namespace canopy {

/// Down the tree as the vector has it: child k is the accepted one with chance p_k.
inline Verdict draw_walk(const TokenTree& tree, const Acceptance& acceptance, const StepRng& rng) {
  Verdict verdict{{0}, tree.token(0)};
  while (true) {
    const NodeId node = verdict.path.back();
    const TokenTree::Range children = tree.children(node);
    double left = rng.uniform(StepRng::Purpose::kAccept, static_cast<std::uint64_t>(node));
    int k = 0;
    const auto& p = acceptance.below(tree.depth(node));
    for (; k < children.count && k < std::ssize(p); ++k)
      if ((left -= p[static_cast<std::size_t>(k)]) < 0) break;
    if (k == children.count || k == std::ssize(p)) return verdict;
    verdict.path.push_back(children.first + k);
  }
}

/// Goes along the nodes of a verdict: `tell` takes each one's level, how many children it had, and
/// which of them was accepted, -1 for none. Where the drafter grew less than a shape of `nodes` and
/// `levels`, and the walk ended for want of a child, it had nothing to be right about: that counts
/// as one child that was refused.
template <class Tell>
void observe(const TokenTree& tree, const Verdict& verdict, int nodes, int levels,
             const Tell& tell) {
  for (std::size_t i = 0; i < verdict.path.size(); ++i) {
    const TokenTree::Range children = tree.children(verdict.path[i]);
    if (children.count == 0) {
      const bool grew_less = tree.size() < nodes && static_cast<int>(i) + 1 < levels;
      tell(static_cast<int>(i), grew_less ? 1 : 0, -1);
      continue;
    }
    const bool last = i + 1 == verdict.path.size();
    tell(static_cast<int>(i), children.count, last ? -1 : verdict.path[i + 1] - children.first);
  }
}

/// The same by the draft's best tokens, of a tree whose children may be any of them: as if all had
/// been children. A node that the draft never ran asks nothing.
template <class Tell>
void observe_ranks(const Draft& draft, const Verdict& verdict, const Tell& tell) {
  for (std::size_t i = 0; i < verdict.path.size(); ++i) {
    const std::vector<TokenId>& best = draft.best[static_cast<std::size_t>(verdict.path[i])];
    const bool last = i + 1 == verdict.path.size();
    const TokenId written = last ? verdict.next : draft.tree.token(verdict.path[i + 1]);
    const auto place = std::find(best.begin(), best.end(), written);
    tell(static_cast<int>(i), static_cast<int>(best.size()),
         place == best.end() ? -1 : static_cast<int>(place - best.begin()));
  }
}

}  // namespace canopy
