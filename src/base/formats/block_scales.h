#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

/// Scale and minimum of a block of weights; a format without a minimum ignores it. Each takes the
/// nearest that it has. One whose groups alone have scales gives each this one or a neighbour of
/// it, as the bits in its place say.
struct BlockScales {
  float scale = 0, minimum = 0;
};

inline void put_f16(float value, std::byte* to) {
  const std::uint16_t half = f16_from_f32(value);
  std::memcpy(to, &half, sizeof half);
}
template <class Format>
void put_scale(Format, float scale, std::byte* block) {
  if constexpr (requires(format::Scale16 value) { Format::put_scale(block, value); })
    Format::put_scale(block, {f16_from_f32(scale), format::ScaleType::kF16});
  else if constexpr (format::kIsOfTable<Format>)
    Format::put_scale(block, scale);
  else if constexpr (format::kHasOwnScale<Format>)
    put_f16(scale * static_cast<float>(Format::kParts), block + Format::kScaleAt);
  else
    put_f16(scale, block + Format::kScaleAt);
}
inline void put_scale(format::MXFP4 to, float scale, std::byte* block) {
  const float exponent = std::round(std::log2(std::abs(scale)));
  block[to.kScaleAt] = static_cast<std::byte>(128 + static_cast<int>(exponent));
}
inline void put_scale(format::IQ1_M to, float scale, std::byte* block) {
  const unsigned half = f16_from_f32(scale * static_cast<float>(to.kParts));
  for (int i = 0; i < 4; ++i) {
    std::byte& high = block[to.kGroupsAt + 2 * i + 1];
    high = (high & std::byte{15}) | static_cast<std::byte>((half >> (4 * i) & 15u) << 4);
  }
}
inline void put_scale(format::NVFP4 to, float scale, std::byte* block) {
  const float wanted = std::abs(scale) / to.scale(block);
  int nearest = 0;
  for (int byte = 0; byte < 127; ++byte)
    if (std::abs(static_cast<float>(to.whole_scale(byte)) - wanted) <
        std::abs(static_cast<float>(to.whole_scale(nearest)) - wanted))
      nearest = byte;
  for (std::byte* group = block; group < block + to.kCodesAt; ++group)
    *group =
        static_cast<std::byte>(std::clamp(nearest + std::to_integer<int>(*group) % 3 - 1, 0, 126));
}

/// Each group's own scale becomes one from 1/2 to 2.
inline void put_scale(format::F4_256 to, float scale, std::byte* block) {
  const float factor = scale / to.scale(block);
  std::memcpy(block + to.kFactorAt, &factor, sizeof factor);
  for (std::byte* group = block + to.kScalesAt; group < block + to.kCodesAt; ++group)
    *group = (*group & std::byte{15}) | std::byte{0x30};
}

template <class Format>
void put_scales(BlockScales scales, std::byte* block) {
  put_scale(Format(), scales.scale, block);
  if constexpr (Format::kMinimumAt >= 0) put_f16(scales.minimum, block + Format::kMinimumAt);
}

/// True if put_scale() sets the scales of the groups, too.
template <class Format>
inline constexpr bool kScalesAreSet =
    std::is_same_v<Format, format::NVFP4> || std::is_same_v<Format, format::F4_256>;

/// The scales with which these blocks of random bits have elements of this root mean square, and of
/// mean zero if the format has a minimum. Elements are scale a + minimum b, a and b being whole.
template <class Format>
BlockScales random_scales(std::span<const std::byte> blocks, double deviation) {
  double n = 0, sum_a = 0, sum_b = 0, aa = 0, ab = 0, bb = 0;
  for (std::size_t at = 0; at < blocks.size(); at += Format::kBlockBytes) {
    const std::byte* const block = &blocks[at];
    for (int i = 0; i < Format::kBlockElements; ++i) {
      const int group = i / Format::kGroupElements;
      double scale = 1;
      if constexpr (!kScalesAreSet<Format>) scale = Format::group_scale(block, group);
      const double a = scale * Format::code(block, i);
      double b = 0;
      if constexpr (Format::kMinimumAt >= 0) b = Format::group_minimum(block, group);
      n += 1, sum_a += a, sum_b += b, aa += a * a, ab += a * b, bb += b * b;
    }
  }
  const double ratio = sum_b == 0 ? 0 : -sum_a / sum_b;  // of minimum and scale
  const double scale = deviation / std::sqrt((aa + 2 * ratio * ab + ratio * ratio * bb) / n);
  return {static_cast<float>(scale), static_cast<float>(ratio * scale)};
}

}  // namespace canopy
