#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// The form of a speculation tree, without tokens. Breadth-first: parent[i] < i,
/// parent[0] == -1, the children of a node are consecutive.
class TreeShape {
 public:
  static TreeShape from_parents(std::vector<NodeId> parent);  // throws Error if not BFS
  static TreeShape chain(int length);
  int size() const { return static_cast<int>(parent_.size()); }
  int levels() const;  // nodes on the longest path, root included: the paper's depth
  NodeId parent(NodeId node) const { return parent_[static_cast<std::size_t>(node)]; }
  int child_count(NodeId node) const;
  std::span<const int> level_widths() const;  // nodes per depth, root first

 private:
  std::vector<NodeId> parent_;
  std::vector<int> child_count_, level_width_;
};

/// accept[k]: chance that the (k+1)-th child is the one taken, given that its parent was.
/// Unconditional on its elder siblings: the entries sum to at most 1, and only this form makes
/// E[tokens] a sum over nodes. Measured per (draft, target, temperature). Source: arXiv:2402.12374,
/// Sec. 3.
struct Acceptance {
  std::vector<double> accept;
};

/// The tree of exactly `nodes` nodes and at most `levels` levels that maximises
///   E[tokens] = sum over nodes of the product of accept along the path to it.
/// With non-increasing accept these are the nodes of highest path probability: a heap, O(n log n).
/// A vector with a noisy tail is first made monotone (pool adjacent violators). Tests hold this
/// against the paper's recursion F(n, d) = 1 + max over sum n_k = n-1 of sum_k accept_k F(n_k,
/// d-1). Source: arXiv:2402.12374, Sec. 3.1, App. C.2.
TreeShape best_tree(int nodes, int levels, const Acceptance& acceptance);
double expected_tokens(const TreeShape& shape, const Acceptance& acceptance);

}  // namespace canopy
