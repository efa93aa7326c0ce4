#include "src/base/log_of_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace canopy {

double log_of_sum(std::span<const float> x) {
  const float top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  bool finite = true;
  for (const float one : x) {
    finite = finite && std::isfinite(one);
    sum += std::exp(static_cast<double>(one) - top);
  }
  return finite ? top + std::log(sum) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace canopy
