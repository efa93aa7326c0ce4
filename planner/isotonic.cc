#include "planner/isotonic.h"

#include <cstddef>

namespace canopy {
namespace {

/// ordered(a, b): mean b may come after mean a.
template <class Ordered>
std::vector<double> pool_violators(std::span<const double> values, Ordered ordered) {
  struct Pool {
    double sum;
    std::size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1 && !ordered(pools[pools.size() - 2].mean(), pools.back().mean())) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back() = {pools.back().sum + last.sum, pools.back().count + last.count};
    }
  }
  std::vector<double> result;
  for (const Pool& pool : pools) result.insert(result.end(), pool.count, pool.mean());
  return result;
}

}  // namespace

std::vector<double> non_increasing(std::span<const double> values) {
  return pool_violators(values, [](double a, double b) { return a >= b; });
}

std::vector<double> non_decreasing(std::span<const double> values) {
  return pool_violators(values, [](double a, double b) { return a <= b; });
}

}  // namespace canopy
