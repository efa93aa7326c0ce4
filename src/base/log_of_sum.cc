#include "src/base/log_of_sum.h"

#include <cmath>

namespace canopy {

void LogOfSum::add(std::span<const float> x) {
  for (const float one : x) {
    finite_ = finite_ && std::isfinite(one);
    if (one > top_) {
      sum_ = sum_ * std::exp(static_cast<double>(top_) - one) + 1;
      top_ = one;
    } else {
      sum_ += std::exp(static_cast<double>(one) - top_);
    }
  }
}

double LogOfSum::value() const {
  return finite_ ? top_ + std::log(sum_) : std::numeric_limits<double>::quiet_NaN();
}

double log_of_sum(std::span<const float> x) {
  LogOfSum sum;
  sum.add(x);
  return sum.value();
}

}  // namespace canopy
