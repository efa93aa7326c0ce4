#include "planner/calibrated/prices.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"

namespace canopy {

GrowthPrices growth_prices(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                           double tokens) {
  require(step.valued.has_value(), "growth prices: a step without valued trees");
  const Seconds whole = cost.step(step, weights).step;
  if (!(whole.count() > 0)) return {};
  const auto in_tokens = [&](Seconds more) { return std::max(0.0, tokens * (more / whole)); };
  GrowthPrices prices;
  StepQuery other = step;
  ++other.valued->forwards;
  prices.forward = in_tokens(cost.step(other, weights).step - whole);
  // A row less of each text; its price does not depend on where the row would hang.
  const TreeShape smaller = TreeShape::chain(std::max(2, step.shape->size() - 1));
  if (smaller.size() >= step.shape->size()) return prices;
  other = step;
  other.shape = &smaller;
  prices.node = in_tokens(whole - cost.step(other, weights).step);
  return prices;
}

void RecentTokens::add(double tokens) {
  if (last_.size() < kSweeps) return last_.push_back(tokens);
  last_[next_] = tokens;
  next_ = (next_ + 1) % kSweeps;
}

double RecentTokens::mean(double before) const {
  if (last_.empty()) return before;
  return std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
}

}  // namespace canopy
