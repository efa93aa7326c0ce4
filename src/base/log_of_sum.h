#pragma once
#include <limits>
#include <span>

namespace canopy {

/// The natural log of the sum of exp(x), in double: what a logit less it is, is a log probability.
/// Numbers come in pieces, in their order; its bits do not depend on where they are cut.
class LogOfSum {
 public:
  void add(std::span<const float> x);
  /// NaN unless all are finite. At least one number was added.
  double value() const;

 private:
  float top_ = -std::numeric_limits<float>::infinity();
  double sum_ = 0;  // of exp(x - top_)
  bool finite_ = true;
};

/// That of numbers that are all there. Shape: x [at least 1].
double log_of_sum(std::span<const float> x);

}  // namespace canopy
