#include "src/speculation/growers/valued_grower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

ValuedGrower::ValuedGrower(TokenId root, const Limits& limits, const ChanceVector& weights,
                           const CopyIndex* copies)
    : root_(root),
      limits_(limits),
      weights_(weights),
      copies_(copies),
      run_{{root, -1}},
      value_{1},
      depth_{0} {
  require(limits.nodes >= 1 && limits.rows >= 1 && limits.run >= 1,
          "draft: a valued tree has a root, and forwards have rows");
  least_ = price_after(0);
}

double ValuedGrower::price_after(std::size_t below) const {
  const std::vector<double>& trees = limits_.prices.trees;
  return below + 1 < trees.size() ? trees[below + 1] - trees[below] : 0;
}

/// Makes the token that is copied after this node's path one of its children.
void ValuedGrower::name_copy(int run) {
  std::vector<TokenId> path;
  for (int node = run; node > 0 && path.size() < CopyIndex::kLongestMatch;
       node = run_[at(node)].parent)
    path.push_back(run_[at(node)].token);
  std::reverse(path.begin(), path.end());
  const auto match = copies_->find(path);
  if (!match || match->next >= limits_.vocab) return;
  BestTokens& best = best_[at(run)];
  const auto place = std::find(best.tokens.begin(), best.tokens.end(), match->next);
  best.row.copied = static_cast<int>(place - best.tokens.begin()) + 1;
  best.row.match = match->length;
  if (place == best.tokens.end()) best.tokens.push_back(match->next);
}

void ValuedGrower::add_children(int parent, const BestTokens& best) {
  const int depth = depth_[at(parent)] + 1;
  for (int rank = 1; rank <= best.row.children(); ++rank) {
    const double value = value_[at(parent)] * chance_of(weights_, chance_features(best.row, rank));
    if (value > last_)  // not so for what is no number
      best_first_.push_back({best.tokens[at(rank - 1)], parent, rank, depth, value, -1});
  }
}

void ValuedGrower::keep_best() {
  // A child is worth less than its parent, so what comes first is a tree.
  std::sort(best_first_.begin(), best_first_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.value != b.value) return a.value > b.value;
    return std::tie(a.depth, a.parent, a.rank) < std::tie(b.depth, b.parent, b.rank);
  });
  best_first_.resize(std::min(best_first_.size(), at(limits_.nodes - 1)));
  if (best_first_.size() == at(limits_.nodes - 1)) last_ = best_first_.back().value;
  kept_ = 0;
  double gain = 0, most = 0;
  for (std::size_t i = 0; i < best_first_.size(); ++i) {
    gain += best_first_[i].value - price_after(i);
    if (gain > most) most = gain, kept_ = i + 1;
  }
  least_ = kept_ == at(limits_.nodes - 1) ? last_ : price_after(kept_);
}

std::vector<DraftedNode> ValuedGrower::choose_rows() {
  const int room = limits_.run - static_cast<int>(value_.size());
  const std::size_t most = at(std::max(0, std::min(limits_.rows, room)));
  std::vector<Candidate*> chosen;
  double gain = 0;
  for (Candidate& one : tree()) {
    const double of_children = kOfChildren * one.value;
    if (chosen.size() == most || !(of_children > least_)) break;
    if (one.run >= 0) continue;
    chosen.push_back(&one);
    gain += of_children - least_;
  }
  if (chosen.empty() || forwards_ == limits_.forwards || !(gain > limits_.prices.forward))
    return {};
  ++forwards_;
  std::vector<DraftedNode> next;
  for (Candidate* const one : chosen) {
    one->run = static_cast<int>(value_.size());
    value_.push_back(one->value);
    depth_.push_back(one->depth);
    next.push_back(run_.emplace_back(DraftedNode{one->token, one->parent}));
  }
  return next;
}

std::vector<DraftedNode> ValuedGrower::take(std::span<const DraftedRow> rows) {
  const auto first = static_cast<int>(best_.size());
  require(first + std::ssize(rows) == std::ssize(value_),
          "draft: a valued tree takes the rows that it asked for");
  for (const DraftedRow& row : rows) {
    require(row.best != nullptr, "draft: a valued tree is grown from best tokens");
    best_.push_back(*row.best);
    if (copies_ != nullptr) name_copy(static_cast<int>(std::ssize(best_)) - 1);
  }
  if (limits_.nodes == 1) return {};
  for (int run = first; run < static_cast<int>(best_.size()); ++run)
    add_children(run, best_[at(run)]);
  keep_best();
  return choose_rows();
}

double ValuedGrower::expected_tokens() const {
  return std::accumulate(tree().begin(), tree().end(), 1.0,
                         [](double sum, const Candidate& one) { return sum + one.value; });
}

GrownTree ValuedGrower::finish() {
  std::vector<std::vector<const Candidate*>> children(value_.size());  // by parent, by rank
  for (const Candidate& one : tree()) children[at(one.parent)].push_back(&one);
  GrownTree grown{TokenTree(root_), {0}};
  for (std::size_t node = 0; node < grown.run.size(); ++node) {
    if (grown.run[node] < 0) continue;
    std::vector<const Candidate*>& of = children[at(grown.run[node])];
    std::sort(of.begin(), of.end(),
              [](const Candidate* a, const Candidate* b) { return a->rank < b->rank; });
    std::vector<TokenId> tokens;
    for (const Candidate* const child : of) {
      tokens.push_back(child->token);
      grown.run.push_back(child->run);
    }
    if (!tokens.empty()) grown.tree.add_children(static_cast<NodeId>(node), tokens);
  }
  return grown;
}

}  // namespace canopy
