#pragma once
#include <optional>
#include <span>

#include "planner/acceptance_tracker.h"
#include "planner/planner.h"
#include "src/engine/plan.h"

namespace canopy {

/// Follows what is accepted while a text is written, and gives the trees to come another shape when
/// that is predicted to be worth it. A shape is never changed within a step, nor by the tokens of
/// its own step: exactness is untouched. One thread.
class Replanner {
 public:
  /// For a plan whose tree was chosen. The cost model must outlive it.
  Replanner(const CostModel& cost, const Plan& plan, bool sampled);

  /// For a text that begins.
  AcceptanceTracker tracker() const { return AcceptanceTracker(planned_); }

  /// After every sweep: the next shape, if it should be another; looks every few seconds, as
  /// predicted, 16 sweeps at most. The texts that share the sweep are
  /// given by what was accepted of each; `context`: mean tokens of them.
  std::optional<TreeShape> after_sweep(std::span<const AcceptanceTracker* const> texts,
                                       double context, const DraftPolicy& policy);

 private:
  const CostModel* cost_;
  Acceptance planned_;
  WeightPlan weights_;
  bool sampled_;
  int interval_;  // sweeps between two looks
  int sweeps_ = 0;
};

}  // namespace canopy
