#include "src/speculation/growers/graph_grower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

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

GraphGrower::GraphGrower(std::span<const TokenId> text, const Growth& growth, const Limits& limits,
                         Propose propose)
    : growth_(growth), limits_(limits), propose_(std::move(propose)) {
  if (!propose_)
    propose_ = [children = growth.children](std::span<const float> row, int) {
      return best_tokens(row, children);
    };
  const std::size_t kept = std::min(text.size(), at(std::max(growth.merge, 1)));
  before_.assign(text.end() - static_cast<std::ptrdiff_t>(kept), text.end());
  nodes_.push_back({.token = text.back(), .run = 0});
  frontier_ = {0};
  if (growth_.merge > 0) first_.emplace(last_tokens(0), 0);
  unfolded_.push_back({0, -1, 1.0, false});
}

int GraphGrower::original(int node) const {
  return nodes_[at(node)].merged >= 0 ? nodes_[at(node)].merged : node;
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
  for (const TokenId token : propose_(row, nodes_[at(parent)].run)) {
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
  if (growth_.within_level) {
    unfold_level();
    if (std::ssize(unfolded_) >= limits_.nodes) return {};  // nothing fits below these
    first_.clear();
  }
  for (const std::vector<int>& siblings : added) {
    double best = 0;
    for (const int node : siblings) best = std::max(best, nodes_[at(node)].q);
    for (const int node : siblings)
      if (goes_on(node, best)) frontier_.push_back(node);
  }
  if (++level_ >= growth_.steps) return {};
  narrow_frontier();
  std::vector<DraftedNode> next;
  for (const int node : frontier_) {
    nodes_[at(node)].run = runs_++;
    next.push_back({nodes_[at(node)].token, nodes_[at(nodes_[at(node)].parent)].run});
  }
  return next;
}

void GraphGrower::narrow_frontier() {
  const std::size_t most = at(std::min(limits_.widest, limits_.run - runs_));
  if (frontier_.size() <= most) return;
  std::stable_sort(frontier_.begin(), frontier_.end(),
                   [&](int a, int b) { return nodes_[at(a)].reach > nodes_[at(b)].reach; });
  frontier_.resize(most);
  std::sort(frontier_.begin(), frontier_.end());
}

void GraphGrower::unfold_level() {
  std::vector<std::size_t> parents(unfolded_.size() - last_level_);
  std::iota(parents.begin(), parents.end(), last_level_);
  std::stable_sort(parents.begin(), parents.end(), [&](std::size_t a, std::size_t b) {
    return unfolded_[a].reach > unfolded_[b].reach;
  });
  last_level_ = unfolded_.size();
  for (const std::size_t parent : parents) {
    const Unfolded above = unfolded_[parent];
    const int from = original(above.node);
    for (const int child : nodes_[at(from)].children) {
      if (std::ssize(unfolded_) >= limits_.nodes) return;
      unfolded_.push_back({child, static_cast<int>(parent), above.reach * nodes_[at(child)].q,
                           above.copy || from != above.node});
    }
  }
}

void GraphGrower::unfold_best() {
  std::vector<Unfolded> open = std::exchange(unfolded_, {});
  // Best first: no child is likelier than its parent, so what is kept is a tree. Equal ones in the
  // order in which they came up.
  const auto worse = [&](std::size_t a, std::size_t b) {
    return open[a].reach != open[b].reach ? open[a].reach < open[b].reach : a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(worse)> queue(worse);
  queue.push(0);
  while (!queue.empty() && std::ssize(unfolded_) < limits_.nodes) {
    const Unfolded best = open[queue.top()];
    queue.pop();
    const int number = static_cast<int>(unfolded_.size());
    unfolded_.push_back(best);
    const int from = original(best.node);
    for (const int child : nodes_[at(from)].children) {
      open.push_back(
          {child, number, best.reach * nodes_[at(child)].q, best.copy || from != best.node});
      queue.push(open.size() - 1);
    }
  }
}

GrownTree GraphGrower::finish() {
  if (!growth_.within_level) unfold_best();
  std::vector<std::vector<int>> children(unfolded_.size());  // of the tree, by rank
  for (std::size_t i = 1; i < unfolded_.size(); ++i)
    children[at(unfolded_[i].parent)].push_back(static_cast<int>(i));
  GrownTree grown{TokenTree(nodes_.front().token), {0}, {0.0}};
  grown.copied = {false};
  grown.row = {0};
  std::vector<int> order{0};  // unfolded nodes, breadth first: their numbers in the tree
  for (std::size_t node = 0; node < order.size(); ++node) {
    std::vector<TokenId> tokens;
    for (const int child : children[at(order[node])]) {
      const Unfolded& unfolded = unfolded_[at(child)];
      const Node& of = nodes_[at(unfolded.node)];
      tokens.push_back(of.token);
      order.push_back(child);
      grown.run.push_back(unfolded.copy ? -1 : of.run);
      grown.log_q.push_back(std::log(of.q));
      grown.copied.push_back(unfolded.copy);
      grown.row.push_back(nodes_[at(original(unfolded.node))].run);
    }
    if (!tokens.empty()) grown.tree.add_children(static_cast<NodeId>(node), tokens);
  }
  return grown;
}

}  // namespace canopy
