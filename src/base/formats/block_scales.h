#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

/// The f16 scale and minimum of a block of weights; a format without a minimum ignores it, and one
/// whose scales are powers of two takes the nearest.
struct BlockScales {
  std::uint16_t scale = 0, minimum = 0;
};

template <class Format>
void put_scales(BlockScales scales, std::byte* block) {
  if constexpr (format::kHasOwnScale<Format>) {
    Format::put_scale(block, {scales.scale, format::ScaleType::kF16});
  } else if constexpr (format::kHasPowerScale<Format>) {
    const float exponent = std::round(std::log2(f32_from_f16(scales.scale)));
    block[Format::kScaleAt] = static_cast<std::byte>(128 + static_cast<int>(exponent));
  } else {
    std::memcpy(block + Format::kScaleAt, &scales.scale, sizeof scales.scale);
  }
  if constexpr (Format::kMinimumAt >= 0)
    std::memcpy(block + Format::kMinimumAt, &scales.minimum, sizeof scales.minimum);
}

/// The scales with which these blocks of random bits have elements of this root mean square, and of
/// mean zero if the format has a minimum. Elements are scale a + minimum b, a and b being whole.
template <class Format>
BlockScales random_scales(std::span<const std::byte> blocks, double deviation) {
  double n = 0, sum_a = 0, sum_b = 0, aa = 0, ab = 0, bb = 0;
  for (std::size_t at = 0; at < blocks.size(); at += Format::kBlockBytes) {
    const std::byte* const block = &blocks[at];
    for (int i = 0; i < Format::kBlockElements; ++i) {
      const int group = i / Format::kGroupElements;
      const double a = Format::group_scale(block, group) * Format::code(block, i);
      double b = 0;
      if constexpr (Format::kMinimumAt >= 0) b = Format::group_minimum(block, group);
      n += 1, sum_a += a, sum_b += b, aa += a * a, ab += a * b, bb += b * b;
    }
  }
  const double ratio = sum_b == 0 ? 0 : -sum_a / sum_b;  // of minimum and scale
  const double scale = deviation / std::sqrt((aa + 2 * ratio * ab + ratio * ratio * bb) / n);
  return {f16_from_f32(static_cast<float>(scale)), f16_from_f32(static_cast<float>(ratio * scale))};
}

}  // namespace canopy
