#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace canopy {

/// first, first + 1, ...: positions of a text, slots of a cache, rows of a batch.
inline std::vector<std::int32_t> counting(int first, std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace canopy
