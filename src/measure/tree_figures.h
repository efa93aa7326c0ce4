#pragma once
#include <array>
#include <vector>

#include "src/engine/session.h"

namespace canopy {

/// Sums over trees that were checked: where in them the accepted tokens lay, and how often they
/// say the same. Source: GSD's figures 3, 7 and 8; docs/math.md, "Graphs of a draft's best
/// tokens".
class TreeFigures {
 public:
  static constexpr int kLongestGram = 4;

  void add(const CheckedTree& tree);

  /// Accepted tokens / the trees' longest paths; 0 of no tree. Roots are no drafted tokens.
  double accepted_of_longest() const;
  /// Returns the shares of the accepted tokens that were first, second, ... children; empty where
  /// no token was accepted.
  std::vector<double> accepted_by_rank() const;
  /// Returns at [n - 1] the share of the drafted nodes that lie in an n-gram, nodes one below
  /// another, which stands elsewhere in the same tree, too.
  std::array<double, kLongestGram> recurring() const;
  /// Returns at [n] the share of the trees whose longest path has n tokens below the root; empty of
  /// no tree.
  std::vector<double> by_longest() const;
  /// Returns at [n] the share of the trees of which n tokens were accepted; empty of no tree.
  std::vector<double> by_accepted() const;
  /// The share of the trees in which the accepted path ended above drafted tokens; 0 of no tree.
  double refused() const;

 private:
  double trees_ = 0, refused_ = 0, nodes_ = 0, longest_ = 0, accepted_ = 0;
  std::vector<double> ranks_, by_longest_, by_accepted_;
  std::array<double, kLongestGram> recurring_ = {};
};

}  // namespace canopy
