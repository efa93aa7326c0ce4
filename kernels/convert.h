#pragma once
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace canopy {

/// Scalar conversions between f32 and the 16-bit formats, which travel as their bits. To 16 bits
/// they round to nearest, ties to even; a NaN stays a NaN; what is too large becomes infinity.
constexpr float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
constexpr std::uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
float f32_from_f16(std::uint16_t bits);
std::uint16_t f16_from_f32(float value);

/// One row of weights as f32: the plain definition of each format, which the fast kernels are
/// tested against. `row` may start at any byte. Blocks (little-endian; d, m are f16):
///   Q8_0 {d, i8 q[32]}: d q.   Q4_0 {d, u4 q[32]}: d (q - 8).   Q4_1 {d, m, u4 q[32]}: d q + m,
///   byte i of a 4-bit block holding q[i] in its low and q[16 + i] in its high half.
/// Throws Error if out.size() is not whole blocks, or for dtypes that are not weights or that no
/// kernel computes with yet (Q4_K, Q6_K).
void dequantize_row(DType dtype, const std::byte* row, std::span<float> out);

}  // namespace canopy
