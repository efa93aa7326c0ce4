#include "src/speculation/graph_grower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The tokens of highest probability, best first, of equal ones the lower; none of probability 0.
std::vector<TokenId> best_tokens(std::span<const float> row, int count) {
  std::vector<TokenId> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](TokenId a, TokenId b) {
    return row[at(a)] != row[at(b)] ? row[at(a)] > row[at(b)] : a < b;
  });
  order.erase(end, order.end());
  std::erase_if(order, [&](TokenId token) { return !(row[at(token)] > 0); });
  return order;
}

}  // namespace

GraphGrower::GraphGrower(std::span<const TokenId> text, const Growth& growth, const Limits& limits)
    : growth_(growth), limits_(limits) {
  const std::size_t kept = std::min(text.size(), at(std::max(growth.merge, 1)));
  before_.assign(text.end() - static_cast<std::ptrdiff_t>(kept), text.end());
  nodes_.push_back({.token = text.back(), .run = 0});
  frontier_ = {0};
  if (growth_.merge > 0) first_.emplace(last_tokens(0), 0);
}

std::vector<TokenId> GraphGrower::last_tokens(int node) const {
  std::vector<TokenId> tokens;
  for (; node > 0 && std::ssize(tokens) < growth_.merge; node = nodes_[at(node)].parent)
    tokens.push_back(nodes_[at(node)].token);
  for (auto token = before_.rbegin(); token != before_.rend() && std::ssize(tokens) < growth_.merge;
       ++token)
    tokens.push_back(*token);
  return tokens;
}

bool GraphGrower::reaches(int from, int to) const {
  std::vector<int> open{from};
  std::vector<bool> seen(nodes_.size(), false);
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (node == to) return true;
    if (seen[at(node)]) continue;
    seen[at(node)] = true;
    open.insert(open.end(), nodes_[at(node)].children.begin(), nodes_[at(node)].children.end());
    if (nodes_[at(node)].merged >= 0) open.push_back(nodes_[at(node)].merged);
  }
  return false;
}

std::vector<int> GraphGrower::add_children(int parent, std::span<const float> row) {
  std::vector<int> added;
  for (const TokenId token : best_tokens(row, growth_.children)) {
    const double q = static_cast<double>(row[at(token)]);
    const Node& above = nodes_[at(parent)];
    added.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back({.token = token,
                      .parent = parent,
                      .q = q,
                      .reach = above.reach * q,
                      .depth = above.depth + 1});
  }
  nodes_[at(parent)].children = added;
  return added;
}

bool GraphGrower::goes_on(int node, double best_sibling) {
  const double q = nodes_[at(node)].q;
  if (q < growth_.least || q < growth_.least_of_siblings * best_sibling) return false;
  if (growth_.merge == 0) return true;
  const auto [same, is_first] = first_.try_emplace(last_tokens(node), node);
  // An ancestor reaches the node by its children, so this also refuses every ancestor.
  if (is_first || reaches(same->second, node)) return true;
  nodes_[at(node)].merged = same->second;
  return false;
}

std::vector<DraftedNode> GraphGrower::take(std::span<const DraftedRow> rows) {
  require(rows.size() == frontier_.size(), "draft: a graph is run a level at a time");
  std::vector<std::vector<int>> added;
  for (std::size_t i = 0; i < rows.size(); ++i)
    added.push_back(add_children(frontier_[i], rows[i].drawn));
  frontier_.clear();
  for (const std::vector<int>& siblings : added)
    for (const int node : siblings)
      if (goes_on(node, nodes_[at(siblings.front())].q)) frontier_.push_back(node);
  if (++level_ >= growth_.steps) return {};

  const std::size_t most = at(std::min(limits_.widest, limits_.run - runs_));
  if (frontier_.size() > most) {
    std::stable_sort(frontier_.begin(), frontier_.end(),
                     [&](int a, int b) { return nodes_[at(a)].reach > nodes_[at(b)].reach; });
    frontier_.resize(most);
    std::sort(frontier_.begin(), frontier_.end());
  }
  std::vector<DraftedNode> next;
  for (const int node : frontier_) {
    nodes_[at(node)].run = runs_++;
    next.push_back({nodes_[at(node)].token, nodes_[at(nodes_[at(node)].parent)].run});
  }
  return next;
}

GrownTree GraphGrower::finish() {
  struct Unfolded {  // a node of the tree to be
    int node;        // of the graph
    int parent;      // of the tree
    double reach;
    bool copy;
  };
  std::vector<Unfolded> open{{0, -1, 1.0, false}}, kept;
  // Best first: no child is likelier than its parent, so what is kept is a tree. Equal ones in the
  // order in which they came up.
  const auto worse = [&](std::size_t a, std::size_t b) {
    return open[a].reach != open[b].reach ? open[a].reach < open[b].reach : a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(worse)> queue(worse);
  queue.push(0);
  while (!queue.empty() && std::ssize(kept) < limits_.nodes) {
    const Unfolded best = open[queue.top()];
    queue.pop();
    const int number = static_cast<int>(kept.size());
    kept.push_back(best);
    const Node& node = nodes_[at(best.node)];
    const bool merged = node.merged >= 0;
    for (const int child : nodes_[at(merged ? node.merged : best.node)].children) {
      open.push_back({child, number, best.reach * nodes_[at(child)].q, best.copy || merged});
      queue.push(open.size() - 1);
    }
  }

  std::vector<std::vector<int>> children(kept.size());  // of the tree, by rank
  for (std::size_t i = 1; i < kept.size(); ++i)
    children[at(kept[i].parent)].push_back(static_cast<int>(i));
  GrownTree grown{TokenTree(nodes_.front().token), {0}, {0.0}};
  grown.copied = {false};
  std::vector<int> order{0};  // kept nodes, breadth first: their numbers in the tree
  for (std::size_t node = 0; node < order.size(); ++node) {
    std::vector<TokenId> tokens;
    for (const int child : children[at(order[node])]) {
      const Unfolded& unfolded = kept[at(child)];
      const Node& of = nodes_[at(unfolded.node)];
      tokens.push_back(of.token);
      order.push_back(child);
      grown.run.push_back(unfolded.copy ? -1 : of.run);
      grown.log_q.push_back(std::log(of.q));
      grown.copied.push_back(unfolded.copy);
    }
    if (!tokens.empty()) grown.tree.add_children(static_cast<NodeId>(node), tokens);
  }
  return grown;
}

}  // namespace canopy
