#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace canopy {

/// Scalar conversions between f32 and the 16-bit formats, which travel as their bits. To 16 bits
/// they round to nearest, ties to even; a NaN stays a NaN; what is too large becomes infinity. A
/// GPU has an instruction for each, with the same bits but for those of a NaN.
constexpr float f32_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
constexpr std::uint16_t bf16_from_f32(float value) {
#if defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    std::uint16_t rounded = 0;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
  }
#endif
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
constexpr float f32_from_f16(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
#endif
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact: 10 bits
  return sign != 0 ? -magnitude : magnitude;
}
constexpr std::uint16_t f16_from_f32(float value) {
#if defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    std::uint16_t rounded = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
  }
#endif
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, halfway from the largest f16 to the next step
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, or zero
    // Adding 1/2, whose last bit is 2^-24, rounds to that multiple; the fraction then counts them.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {  // a carry out of the fraction steps the exponent, as it should
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}
/// The largest f16 for a finite value beyond it, of its sign; any other value as it is. So rounding
/// makes no infinity, and hides none.
constexpr float within_f16(float value) {
  constexpr float kLargest = 65504.0f;
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  if (magnitude <= std::bit_cast<std::uint32_t>(kLargest) || magnitude >= 0x7f800000u) return value;
  return value < 0 ? -kLargest : kLargest;
}

}  // namespace canopy
