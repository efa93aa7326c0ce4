#include "src/base/formats/fp8_format.h"

#include <algorithm>
#include <sstream>
#include <string>

namespace canopy::format {

std::uint8_t e4m3_from_f32(float value) {
  const float size = std::min(std::abs(value), kLargestE4M3);
  std::uint8_t below = 0;  // the last code of a number that is not larger
  for (std::uint8_t bit = 0x40; bit != 0; bit >>= 1)
    if (const auto code = static_cast<std::uint8_t>(below | bit);
        code < kE4M3NaN && f32_from_e4m3(code) <= size)
      below = code;
  if (below + 1 < kE4M3NaN) {
    const auto above = static_cast<std::uint8_t>(below + 1);
    const float down = size - f32_from_e4m3(below), up = f32_from_e4m3(above) - size;
    if (up < down || (up == down && below % 2 != 0)) below = above;
  }
  return static_cast<std::uint8_t>(below | (std::signbit(value) ? 0x80 : 0));
}

void check_scales(std::span<const std::byte> scales, std::int64_t rows, std::int64_t columns,
                  std::int64_t scale_rows, std::int64_t scale_columns) {
  if (scale_columns == 0) scale_columns = std::max<std::int64_t>(columns, 1);
  const std::int64_t across = (columns + scale_columns - 1) / scale_columns;
  const auto count = static_cast<std::int64_t>(scales.size() / sizeof(float));
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = load<float>(scales.data() + i * std::int64_t{sizeof(float)});
    if (scale > 0 && std::isfinite(scale * kLargestE4M3)) continue;
    const auto range = [](std::int64_t index, std::int64_t length, std::int64_t end) {
      const std::int64_t first = index * length, last = std::min(first + length, end) - 1;
      return std::to_string(first) + " to " + std::to_string(last);
    };
    std::ostringstream value;
    value << scale;
    throw Error("the scale of rows " + range(i / across, scale_rows, rows) + ", columns " +
                range(i % across, scale_columns, columns) + " is " + value.str() +
                "; scales are above 0, and the largest weight finite");
  }
}

}  // namespace canopy::format
