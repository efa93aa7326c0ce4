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

 private:
  double nodes_ = 0, longest_ = 0, accepted_ = 0;
  std::vector<double> ranks_;
  std::array<double, kLongestGram> recurring_ = {};
};

}  // namespace canopy
