#include "planner/tree_shape.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include "planner/isotonic.h"
#include "src/base/error.h"

namespace canopy {
namespace {

constexpr int kMostNodes = 1'000'000;  // of a shape that a user names by a formula
constexpr const char* kTooManyNodes = "tree shape: more than a million nodes";

void check(const std::vector<double>& accept) {
  double sum = 0;
  for (const double p : accept) {
    require(std::isfinite(p) && p >= 0, "acceptance vector: an entry is not a probability");
    sum += p;
  }
  // Measured vectors are written with six digits or so: allow their rounding.
  require(sum <= 1 + 1e-4,
          "acceptance vector: the entries sum to more than 1; give each child's "
          "unconditional chance, not the chance after its elders were refused");
}

void check(const Acceptance& acceptance) {
  check(acceptance.accept);
  for (const std::vector<double>& accept : acceptance.deeper) check(accept);
}

/// The same with the nearest vector that does not rise for each of its own.
Acceptance falling(const Acceptance& acceptance) {
  Acceptance falling{non_increasing(acceptance.accept)};
  for (const std::vector<double>& accept : acceptance.deeper)
    falling.deeper.push_back(non_increasing(accept));
  return falling;
}

/// Per node: how many levels below the root it lies.
std::vector<int> depths(const TreeShape& shape) {
  std::vector<int> depth(static_cast<std::size_t>(shape.size()), 0);
  for (std::size_t node = 1; node < depth.size(); ++node)
    depth[node] = depth[static_cast<std::size_t>(shape.parents()[node])] + 1;
  return depth;
}

/// The chance of the child of this rank of a node; ranks beyond the vector have none.
double chance_of(const Acceptance& acceptance, int level, std::size_t rank) {
  const std::vector<double>& accept = acceptance.below(level);
  return rank < accept.size() ? accept[rank] : 0.0;
}

/// Renumbers nodes, given in any order with parents first and siblings in order, breadth-first.
std::vector<NodeId> breadth_first(std::span<const NodeId> parent) {
  std::vector<std::vector<NodeId>> children(parent.size());
  for (std::size_t node = 1; node < parent.size(); ++node)
    children[static_cast<std::size_t>(parent[node])].push_back(static_cast<NodeId>(node));
  std::vector<NodeId> order{0}, result{-1};
  for (std::size_t at = 0; at < order.size(); ++at)
    for (const NodeId child : children[static_cast<std::size_t>(order[at])]) {
      order.push_back(child);
      result.push_back(static_cast<NodeId>(at));
    }
  return result;
}

}  // namespace

TreeRoom TreeRoom::of(const TreeShape& shape) {
  TreeRoom room{.nodes = shape.size()};
  NodeId node = 0;
  for (const int width : shape.level_widths()) {
    int inner = 0, children = 0;
    for (const NodeId end = node + width; node < end; ++node) {
      inner += shape.child_count(node) > 0 ? 1 : 0;
      children = std::max(children, shape.child_count(node));
    }
    room.inner += inner;
    room.widest = std::max(room.widest, inner);
    room.proposals += inner * children;
  }
  return room;
}

TreeRoom TreeRoom::of_nodes(int nodes) {
  return {nodes, nodes, nodes, std::numeric_limits<int>::max(), std::numeric_limits<int>::max()};
}

bool TreeRoom::holds(const TreeRoom& needed) const {
  return needed.nodes <= nodes && needed.inner <= inner && needed.widest <= widest &&
         needed.proposals <= proposals && needed.run <= run;
}

TreeRoom TreeRoom::for_texts(int texts) const {
  const auto times = [texts](int count) {
    return static_cast<int>(
        std::min<std::int64_t>(std::int64_t{count} * texts, std::numeric_limits<int>::max()));
  };
  return {times(nodes), times(inner), times(widest), times(proposals), times(run)};
}

TreeRoom TreeRoom::for_each_of(int texts) const {
  return {nodes / texts, inner / texts, widest / texts, proposals / texts, run / texts};
}

TreeShape TreeShape::from_parents(std::vector<NodeId> parent) {
  require(!parent.empty() && parent[0] == -1, "tree shape: node 0 must be the root, of parent -1");
  TreeShape shape;
  shape.parent_ = std::move(parent);
  shape.child_count_.assign(shape.parent_.size(), 0);
  std::vector<std::size_t> depth(shape.parent_.size(), 0);
  shape.level_width_ = {1};
  for (std::size_t node = 1; node < shape.parent_.size(); ++node) {
    const NodeId up = shape.parent_[node];
    // Parents in order and before their children: exactly the breadth-first numberings.
    if (up < 0 || up >= static_cast<NodeId>(node) || up < shape.parent_[node - 1])
      throw Error("tree shape: node " + std::to_string(node) + " of parent " + std::to_string(up) +
                  " is out of breadth-first order");
    ++shape.child_count_[static_cast<std::size_t>(up)];
    depth[node] = depth[static_cast<std::size_t>(up)] + 1;
    if (depth[node] == shape.level_width_.size()) shape.level_width_.push_back(0);
    ++shape.level_width_[depth[node]];
  }
  return shape;
}

TreeShape TreeShape::chain(int nodes) {
  require(nodes >= 1, "tree shape: a chain has at least one node, the root");
  std::vector<NodeId> parent;
  for (NodeId node = 0; node < nodes; ++node) parent.push_back(node - 1);
  return from_parents(std::move(parent));
}

TreeShape TreeShape::branching(std::span<const int> children) {
  constexpr std::size_t kMost = kMostNodes;
  std::vector<NodeId> parent{-1};
  std::size_t level = 0;  // its first node
  for (const int count : children) {
    require(count >= 1, "tree shape: a node that has children has at least 1");
    const std::size_t end = parent.size();
    require(static_cast<std::size_t>(count) <= kMost / (end - level) &&
                end + (end - level) * static_cast<std::size_t>(count) <= kMost,
            kTooManyNodes);
    for (; level < end; ++level)
      parent.insert(parent.end(), static_cast<std::size_t>(count), static_cast<NodeId>(level));
  }
  return from_parents(std::move(parent));
}

TreeShape TreeShape::k_ary(int k, int nodes) {
  require(k >= 1, "tree shape: a node that has children has at least 1");
  require(nodes >= 1, "tree shape: there is at least one node, the root");
  require(nodes <= kMostNodes, kTooManyNodes);
  std::vector<NodeId> parent{-1};
  for (NodeId node = 1; node < nodes; ++node) parent.push_back((node - 1) / k);
  return from_parents(std::move(parent));
}

TreeShape TreeShape::sequences(int count, int length) {
  require(length >= 1, "tree shape: a sequence has at least one node");
  require(length <= kMostNodes, kTooManyNodes);
  std::vector<int> children(static_cast<std::size_t>(length), 1);
  children.front() = count;
  return branching(children);
}

TreeShape best_tree(int nodes, int levels, const Acceptance& acceptance) {
  require(nodes >= 1 && levels >= 1, "tree: nodes and levels must be at least 1");
  check(acceptance);
  const Acceptance likely = falling(acceptance);

  struct Candidate {  // the next child of `parent`, not yet in the tree
    double parent_score, score;
    NodeId parent;
    int level;
    std::size_t rank;
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    // Equal scores: the shallower first, as levels cost time; then the older parent.
    if (a.score != b.score) return a.score < b.score;
    if (a.level != b.level) return a.level > b.level;
    return a.parent > b.parent;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> frontier(worse);
  const auto offer = [&](double parent_score, NodeId parent, int level, std::size_t rank) {
    if (level < levels && rank < likely.below(level - 1).size())
      frontier.push(
          {parent_score, parent_score * likely.below(level - 1)[rank], parent, level, rank});
  };

  std::vector<NodeId> parent{-1};
  offer(1.0, 0, 1, 0);
  while (static_cast<int>(parent.size()) < nodes) {
    if (frontier.empty())
      throw Error("tree: " + std::to_string(nodes) + " nodes do not fit in " +
                  std::to_string(levels) + " levels with " + std::to_string(likely.accept.size()) +
                  " children a node; the largest such tree has " + std::to_string(parent.size()) +
                  " nodes");
    const Candidate best = frontier.top();
    frontier.pop();
    const auto node = static_cast<NodeId>(parent.size());
    parent.push_back(best.parent);
    offer(best.parent_score, best.parent, best.level, best.rank + 1);
    offer(best.score, node, best.level + 1, 0);
  }
  return TreeShape::from_parents(breadth_first(parent));
}

TreeShape pruned(const TreeShape& shape, int nodes, const Acceptance& acceptance) {
  require(nodes >= 1, "a tree has at least its root");
  if (nodes >= shape.size()) return shape;
  const auto size = static_cast<std::size_t>(shape.size());
  std::vector<double> reach(size, 1.0);
  std::vector<std::size_t> rank(size, 0), order(size);
  const std::vector<int> depth = depths(shape);
  for (std::size_t node = 1; node < size; ++node) {
    const auto parent = static_cast<std::size_t>(shape.parent(static_cast<NodeId>(node)));
    const bool eldest =
        shape.parent(static_cast<NodeId>(node) - 1) != shape.parent(static_cast<NodeId>(node));
    rank[node] = eldest ? 0 : rank[node - 1] + 1;
    reach[node] = reach[parent] * chance_of(acceptance, depth[parent], rank[node]);
    if (!eldest) reach[node] = std::min(reach[node], reach[node - 1]);
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  // No child is likelier than its parent or its elder sibling, so what comes first is a tree.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return reach[a] > reach[b]; });
  order.resize(static_cast<std::size_t>(nodes));
  std::sort(order.begin(), order.end());
  std::vector<NodeId> parents, number(size, -1);
  for (const std::size_t node : order) {
    number[node] = static_cast<NodeId>(parents.size());
    const NodeId parent = shape.parent(static_cast<NodeId>(node));
    parents.push_back(parent < 0 ? -1 : number[static_cast<std::size_t>(parent)]);
  }
  return TreeShape::from_parents(std::move(parents));
}

double expected_tokens(const TreeShape& shape, const Acceptance& acceptance) {
  check(acceptance);
  const auto size = static_cast<std::size_t>(shape.size());
  std::vector<double> score(size, 1.0);
  double sum = 1;
  const std::vector<int> depth = depths(shape);
  std::size_t rank = 0;
  for (std::size_t node = 1; node < size; ++node) {
    const auto parent = static_cast<std::size_t>(shape.parents()[node]);
    rank = shape.parents()[node] == shape.parents()[node - 1] ? rank + 1 : 0;
    score[node] = score[parent] * chance_of(acceptance, depth[parent], rank);
    sum += score[node];
  }
  return sum;
}

}  // namespace canopy
