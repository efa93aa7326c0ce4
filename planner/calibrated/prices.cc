#include "planner/calibrated/prices.h"

#include <algorithm>
#include <numeric>

#include "planner/curve.h"
#include "src/base/error.h"

namespace canopy {

namespace {

constexpr int kPricedParts = 8;  // of a tree's size: between them its cost is taken to be straight

}  // namespace

GrowthPrices growth_prices(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                           double tokens) {
  require(step.valued.has_value(), "growth prices: a step without valued trees");
  const int nodes = step.shape->size();
  const Seconds whole = cost.step(step, weights).step;
  if (!(whole.count() > 0)) return {};
  const auto in_tokens = [&](Seconds more) { return std::max(0.0, tokens * (more / whole)); };
  GrowthPrices prices;
  StepQuery other = step;
  ++other.valued->forwards;
  prices.forward = in_tokens(cost.step(other, weights).step - whole);
  other = step;
  std::vector<Sample> sizes{{static_cast<double>(nodes), whole}};
  for (int part = 0; part < kPricedParts; ++part) {
    // Rows cost the same wherever they hang.
    const TreeShape smaller = TreeShape::chain(std::max(2, nodes * part / kPricedParts));
    if (smaller.size() >= nodes || sizes.back().x == smaller.size()) continue;
    other.shape = &smaller;
    sizes.push_back({static_cast<double>(smaller.size()), cost.step(other, weights).step});
  }
  const Curve curve = Curve::fit(sizes);
  for (int n = 1; n <= nodes; ++n) prices.trees.push_back(in_tokens(curve.at(n) - curve.at(1)));
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
