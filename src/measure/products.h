#pragma once
#include <cstdint>
#include <string>

namespace canopy {

/// Bytes of memory that measure_products() takes: its weights, twice while they are made.
inline constexpr std::uint64_t kProductBytes = 320u << 20;

/// Rates of the CPU in products with a matrix that is too large for its caches, as a sweep makes
/// them.
struct ProductRates {
  std::string device;
  double bytes_per_second = 0;  // of BF16 weights by one row: the speed of the memory
  double flops = 0;             // per second, by 64 rows: that of the multiply-add units
};
ProductRates measure_products(int threads);

}  // namespace canopy
