#pragma once
#include <vector>

#include "planner/tree_shape.h"

namespace canopy {

/// The acceptance vector of one text, followed while it is written: each rank's share of
/// acceptances among the nodes that had a child of that rank, recent nodes counting more. Begins
/// with a vector that counts like a few dozen nodes; ranks that no node has keep its value. One
/// thread.
class AcceptanceTracker {
 public:
  explicit AcceptanceTracker(const Acceptance& before);
  /// A node that the verifier stood on: how many children it had, and the rank, from 0, of the one
  /// that was accepted; -1 if none was.
  /// `level`: how many levels below the root; it counts where the first vector depends on that.
  void observe(int level, int children, int accepted);
  Acceptance estimate() const;
  /// Lets all that came before count for at most `nodes` nodes.
  void fade_to(double nodes);

 private:
  struct Rank {
    double accepted, asked;  // sums of weights
  };
  std::vector<std::vector<Rank>> levels_;  // the last one of all below it, too
};

}  // namespace canopy
