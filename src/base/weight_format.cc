#include "src/base/weight_format.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "src/base/error.h"
#include "src/base/half.h"

namespace canopy {

namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float load_f16(const std::byte* from) { return f32_from_f16(load<std::uint16_t>(from)); }

/// Value i of a block of 32 four-bit values.
int nibble(const std::byte* block, std::size_t i) {
  const int both = std::to_integer<int>(block[i % 16]);
  return i < 16 ? both & 15 : both >> 4;
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* row, std::span<float> out) {
  row_bytes(dtype, static_cast<std::int64_t>(out.size()));  // throws unless whole blocks
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t block = i / 32, in_block = i % 32;
    switch (dtype) {
      case DType::kF32:
        out[i] = load<float>(row + 4 * i);
        break;
      case DType::kBF16:
        out[i] = f32_from_bf16(load<std::uint16_t>(row + 2 * i));
        break;
      case DType::kF16:
        out[i] = load_f16(row + 2 * i);
        break;
      case DType::kQ8_0: {
        const std::byte* b = row + 34 * block;
        out[i] = load_f16(b) * static_cast<float>(load<std::int8_t>(b + 2 + in_block));
        break;
      }
      case DType::kQ4_0: {
        const std::byte* b = row + 18 * block;
        out[i] = load_f16(b) * static_cast<float>(nibble(b + 2, in_block) - 8);
        break;
      }
      case DType::kQ4_1: {
        const std::byte* b = row + 20 * block;
        out[i] =
            std::fma(load_f16(b), static_cast<float>(nibble(b + 4, in_block)), load_f16(b + 2));
        break;
      }
      case DType::kI32:
      case DType::kU64:
      case DType::kQ4_K:
      case DType::kQ6_K:
        throw Error(std::string("rows of ") + name(dtype) +
                    " cannot be read as weights; use F32, F16, BF16, Q8_0, Q4_0 or Q4_1");
    }
  }
}

}  // namespace canopy
