#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace canopy::testing {

/// Calls take(bytes, columns) with rows of a packed format that nothing has packed: any bytes at
/// all, no fewer than a row has at least.
template <class Format, class Take>
void for_any_rows(const Take& take) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t columns = 1 + random() % 1200;
    std::vector<std::byte> bytes(Format::fixed_bytes(static_cast<std::int64_t>(columns)) +
                                 random() % 300);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    bytes.shrink_to_fit();
    take(bytes, columns);
  }
}

}  // namespace canopy::testing
