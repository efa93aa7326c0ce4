#include "planner/curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "planner/isotonic.h"
#include "src/base/error.h"

namespace canopy {

Curve Curve::fit(std::span<const Sample> samples) {
  require(!samples.empty(), "curve: no samples");
  std::map<double, std::vector<double>> times;
  for (const Sample& s : samples) {
    require(std::isfinite(s.x) && s.x >= 0 && std::isfinite(s.t.count()) && s.t.count() >= 0,
            "curve: a sample is negative or not a number");
    times[s.x].push_back(s.t.count());
  }
  std::vector<double> median;
  for (auto& [x, t] : times) {
    const auto middle = t.begin() + std::ssize(t) / 2;
    std::nth_element(t.begin(), middle, t.end());
    median.push_back(*middle);
  }
  const std::vector<double> rising = non_decreasing(median);
  Curve curve;
  auto t = rising.begin();
  for (const auto& [x, unused] : times) curve.knots_.push_back({x, Seconds(*t++)});
  return curve;
}

Seconds Curve::at(double x) const {
  const auto above = std::lower_bound(knots_.begin(), knots_.end(), x,
                                      [](const Sample& s, double value) { return s.x < value; });
  if (above == knots_.begin()) return above->t;
  if (above == knots_.end() && knots_.size() == 1) return knots_.front().t;
  const Sample& right = above == knots_.end() ? knots_.back() : *above;
  const Sample& left = above == knots_.end() ? knots_[knots_.size() - 2] : *(above - 1);
  return left.t + (right.t - left.t) * ((x - left.x) / (right.x - left.x));
}

}  // namespace canopy
