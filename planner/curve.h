#pragma once
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

struct Sample {
  double x = 0;  // tokens, say, or bytes
  Seconds t{};
};

/// Time as a function of size, through measured points: non-decreasing and piecewise linear, level
/// before the first point, and beyond the last with the slope of the last piece. Immutable; any
/// thread may read.
class Curve {
 public:
  /// Samples in any order; those of equal x count by their median, and times that fall with x are
  /// pooled. Throws Error without samples, or if one is negative or not finite.
  static Curve fit(std::span<const Sample> samples);
  Seconds at(double x) const;
  std::span<const Sample> knots() const { return knots_; }  // by rising x

 private:
  std::vector<Sample> knots_;
};

}  // namespace canopy
