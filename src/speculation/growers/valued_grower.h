#pragma once
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "src/speculation/growers/copy_index.h"
#include "src/speculation/growers/grower.h"

namespace canopy {

/// Grows the tree of the draft's best tokens that are worth most: a token is worth the product of
/// the calibrated chances on the path to it. Nodes are added and dropped again while the draft's
/// rows come in, so children must not be drawn from q: for texts of which the target's own sample
/// decides. Source: EAGLE-2 (arXiv:2406.16858) grows by the draft's own probability; the value and
/// the rule are of this project (docs/math.md, "Trees that the draft's rows shape").
class ValuedGrower final : public Grower {
 public:
  struct Limits {
    int nodes = 1;     // of the tree, its root included
    int rows = 4;      // that a forward runs
    int run = 1;       // nodes that are run in all, the root included
    int forwards = 0;  // after the root's
    GrowthPrices prices = {};
    int vocab = std::numeric_limits<int>::max();  // tokens that a child can be, of copies
  };
  /// `copies`: of the text, which ends with the root; null: none. It must outlive the grower.
  ValuedGrower(TokenId root, const Limits& limits, const ChanceVector& weights,
               const CopyIndex* copies = nullptr);
  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override;
  GrownTree finish() override;

  /// Tokens that the tree is expected to bring: 1 and its nodes' values.
  double expected_tokens() const;
  /// Hands out the best tokens at each node that was run, as GrownTree::run counts.
  std::vector<BestTokens> take_best() { return std::move(best_); }

  /// The share of a node's value that its children are taken to have where it is run.
  static constexpr double kOfChildren = 0.75;

 private:
  struct Candidate {
    TokenId token = 0;
    int parent = -1;  // as nodes that were run are counted
    int rank = 0, depth = 0;
    double value = 1;
    int run = -1;
  };
  void name_copy(int run);
  void add_children(int parent, const BestTokens& best);
  /// Leaves the candidates that the tree has room for, and finds how many of them it is to have.
  void keep_best();
  /// The tree, as those of its nodes below the root that are worth most come first.
  std::span<Candidate> tree() { return std::span(best_first_).first(kept_); }
  std::span<const Candidate> tree() const { return std::span(best_first_).first(kept_); }
  /// The price of one more node where there are `below` below the root.
  double price_after(std::size_t below) const;
  std::vector<DraftedNode> choose_rows();

  TokenId root_;
  Limits limits_;
  ChanceVector weights_;
  const CopyIndex* copies_;
  std::vector<Candidate> best_first_;  // as many as there is room for, the best so far
  std::size_t kept_ = 0;               // of these, in the tree
  std::vector<DraftedNode> run_;       // nodes that were run
  std::vector<double> value_;          // of these
  std::vector<int> depth_;
  std::vector<BestTokens> best_;  // of those whose rows came
  double last_ = 0;               // the value that a candidate must exceed to find room
  double least_ = 0;              // the value that one more node must exceed: theta
  int forwards_ = 0;
};

}  // namespace canopy
