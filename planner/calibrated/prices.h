#pragma once
#include <cstddef>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "planner/cost_model.h"

namespace canopy {

/// Prices at the predicted costs of this step, and of smaller trees, where a text gains `tokens` of
/// each sweep. The step has the forwards of valued trees. Throws Error like CostModel::step.
GrowthPrices growth_prices(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                           double tokens);

/// The tokens that a text gained of a sweep, in the mean of the last sweeps.
class RecentTokens {
 public:
  static constexpr std::size_t kSweeps = 16;
  void add(double tokens);
  /// `before`: where there was no sweep yet.
  double mean(double before) const;

 private:
  std::vector<double> last_;  // a ring
  std::size_t next_ = 0;
};

}  // namespace canopy
