#include "src/measure/tree_figures.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

namespace canopy {
namespace {

/// Counts the nodes in n-grams that two or more nodes end; the root is in none.
std::size_t nodes_in_recurring(const CheckedTree& tree, int n) {
  std::map<std::vector<TokenId>, std::vector<std::vector<NodeId>>> places;
  for (NodeId end = 1; end < std::ssize(tree.parents); ++end) {
    std::vector<NodeId> nodes;
    std::vector<TokenId> tokens;
    for (NodeId node = end; node > 0 && std::ssize(nodes) < n;
         node = tree.parents[static_cast<std::size_t>(node)]) {
      nodes.push_back(node);
      tokens.push_back(tree.tokens[static_cast<std::size_t>(node)]);
    }
    if (std::ssize(nodes) == n) places[std::move(tokens)].push_back(std::move(nodes));
  }
  std::set<NodeId> found;
  for (const auto& [gram, at] : places)
    if (at.size() > 1)
      for (const std::vector<NodeId>& nodes : at) found.insert(nodes.begin(), nodes.end());
  return found.size();
}

double share(double of, double all) { return all > 0 ? of / all : 0; }

std::vector<double> shares(std::span<const double> counts, double all) {
  std::vector<double> of;
  for (const double count : counts) of.push_back(share(count, all));
  return of;
}

void count(std::vector<double>& counts, std::size_t of) {
  if (of >= counts.size()) counts.resize(of + 1);
  ++counts[of];
}

}  // namespace

void TreeFigures::add(const CheckedTree& tree) {
  const auto parent = [&](NodeId node) { return tree.parents[static_cast<std::size_t>(node)]; };
  std::vector<int> depths(tree.parents.size());
  std::vector<std::size_t> children(tree.parents.size()), rank(tree.parents.size());
  for (NodeId node = 1; node < std::ssize(tree.parents); ++node) {
    const auto at = static_cast<std::size_t>(node), above = static_cast<std::size_t>(parent(node));
    depths[at] = depths[above] + 1;
    rank[at] = children[above]++;
  }
  nodes_ += static_cast<double>(tree.parents.size() - 1);
  const int longest = *std::ranges::max_element(depths);
  ++trees_;
  longest_ += longest;
  count(by_longest_, static_cast<std::size_t>(longest));
  count(by_accepted_, tree.path.size() - 1);
  refused_ += children[static_cast<std::size_t>(tree.path.back())] > 0 ? 1 : 0;
  for (std::size_t i = 1; i < tree.path.size(); ++i) {
    count(ranks_, rank[static_cast<std::size_t>(tree.path[i])]);
    ++accepted_;
  }
  for (int n = 1; n <= kLongestGram; ++n)
    recurring_[static_cast<std::size_t>(n - 1)] += static_cast<double>(nodes_in_recurring(tree, n));
}

double TreeFigures::accepted_of_longest() const { return share(accepted_, longest_); }

std::vector<double> TreeFigures::accepted_by_rank() const { return shares(ranks_, accepted_); }

std::vector<double> TreeFigures::by_longest() const { return shares(by_longest_, trees_); }

std::vector<double> TreeFigures::by_accepted() const { return shares(by_accepted_, trees_); }

double TreeFigures::refused() const { return share(refused_, trees_); }

std::array<double, TreeFigures::kLongestGram> TreeFigures::recurring() const {
  std::array<double, kLongestGram> of = {};
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = share(recurring_[i], nodes_);
  return of;
}

}  // namespace canopy
