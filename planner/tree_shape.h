#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// The most nodes of a tree that is run: four times the most that is ever chosen. Its masks take
/// 2 MB, and a GPU finds no more children of a node than this at once.
inline constexpr int kMostTreeNodes = 4096;

/// The form of a speculation tree, without tokens. Breadth-first: parent[i] < i,
/// parent[0] == -1, the children of a node are consecutive. The default is the root alone.
/// Immutable but for assignment; any thread may read.
class TreeShape {
 public:
  /// Throws Error naming the first node that breaks breadth-first order.
  static TreeShape from_parents(std::vector<NodeId> parent);
  static TreeShape chain(int nodes);  // each node but the last has one child; throws if nodes < 1
  /// Each node of level l has children[l], the root being level 0; throws if one is less than 1, or
  /// there are more than a million nodes. Source: arXiv:2310.15141, (k_1, ..., k_t).
  static TreeShape branching(std::span<const int> children);
  /// The first `nodes` nodes, breadth-first, of the tree in which each has k children (k = 2:
  /// binary); throws if k or nodes is less than 1, or there are more than a million nodes.
  static TreeShape k_ary(int k, int nodes);
  /// `count` independent sequences of `length` nodes below the root: count * length + 1 nodes.
  static TreeShape sequences(int count, int length);

  int size() const { return static_cast<int>(parent_.size()); }
  /// The paper's depth: the root's level counts.
  int levels() const { return static_cast<int>(level_width_.size()); }
  std::span<const NodeId> parents() const { return parent_; }
  NodeId parent(NodeId node) const { return parent_[static_cast<std::size_t>(node)]; }
  int child_count(NodeId node) const { return child_count_[static_cast<std::size_t>(node)]; }
  std::span<const int> level_widths() const { return level_width_; }  // nodes per level, root first
  bool operator==(const TreeShape&) const = default;

 private:
  std::vector<NodeId> parent_{-1};
  std::vector<int> child_count_{0}, level_width_{1};
};

/// Room for the trees of a sweep, of all texts together, and for growing them. Plain data.
struct TreeRoom {
  int nodes = 0, inner = 0;  // inner: those with children
  int widest = 0;            // most inner nodes of a level
  int proposals = 0;  // of all levels: as many for each inner node as any of its level has children
  int run = 0;        // nodes that valued trees run (planner/calibrated); 0: there are none

  static TreeRoom of(const TreeShape& shape);
  /// Any trees of `nodes` nodes together.
  static TreeRoom of_nodes(int nodes);
  bool holds(const TreeRoom& needed) const;
  TreeRoom for_texts(int texts) const;    // that need as much each
  TreeRoom for_each_of(int texts) const;  // an equal part for each
  bool operator==(const TreeRoom&) const = default;
};

/// accept[k]: chance that the (k+1)-th child is the one taken, given that its parent was.
/// Unconditional on its elder siblings: the entries sum to at most 1, and only this form makes
/// E[tokens] a sum over nodes. A node has at most accept.size() children. Measured per (draft,
/// target, temperature). Source: arXiv:2402.12374, Sec. 3.
struct Acceptance {
  std::vector<double> accept;
  /// The vectors of nodes 1, 2, ... levels below the root, where acceptance depends on how deep a
  /// node lies; the last one holds for all below that, too. Empty: `accept` holds everywhere.
  std::vector<std::vector<double>> deeper = {};

  /// The vector for the children of a node that lies `level` levels below the root.
  const std::vector<double>& below(int level) const {
    if (level == 0 || deeper.empty()) return accept;
    return deeper[std::min(static_cast<std::size_t>(level), deeper.size()) - 1];
  }
};

/// Builds the tree of exactly `nodes` nodes and at most `levels` levels (the root's included) that
/// maximises E[tokens]; docs/math.md, "The best tree". Built with a heap, O(n log n). A vector that
/// is not non-increasing is first replaced by the nearest one that is. Children of probability 0
/// are used only when nothing else is left, to make the size exact.
/// Throws Error if no such tree exists (too few levels or ranks for the nodes), or if the vector is
/// not one of probabilities.
/// Source: arXiv:2402.12374, Sec. 3.1, App. C.2, whose recursion is the tests' oracle; a vector for
/// each level changes nothing, as a node's score still bounds those below and after it.
TreeShape best_tree(int nodes, int levels, const Acceptance& acceptance);

/// The `nodes` nodes of a tree that are most likely to be reached; all if it has no more. Ranks
/// beyond the vector count as 0, and a vector that rises is cut off where it does. Throws Error if
/// nodes < 1.
TreeShape pruned(const TreeShape& shape, int nodes, const Acceptance& acceptance);

/// Expected tokens of a step: the sum over nodes of the product of accept along the path to each;
/// ranks beyond the vector count as 0. Source: arXiv:2402.12374, Proposition 3.4.
double expected_tokens(const TreeShape& shape, const Acceptance& acceptance);

}  // namespace canopy
