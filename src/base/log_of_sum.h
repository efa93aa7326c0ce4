#pragma once
#include <span>

namespace canopy {

/// The natural log of the sum of exp(x), in double: what a logit less it is, is a log probability.
/// NaN unless all are finite. Shape: x [at least 1].
double log_of_sum(std::span<const float> x);

}  // namespace canopy
