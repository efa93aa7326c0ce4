// E4M3 numbers become f32 by vectors, compiled once per instruction set by each file that includes
// it after hwy/foreach_target.h.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "src/base/formats/fp8_format.h"

#ifndef CANOPY_KERNELS_CPU_FP8_ONCE
#define CANOPY_KERNELS_CPU_FP8_ONCE
namespace canopy::cpu {

constexpr std::size_t kFactorColumns = 128;  // weights of a row that have one factor
/// Writes the factors that load_e4m3() takes for columns [k0, k0 + count) of a row.
using FactorsOf = void (*)(const StoredRow& row, std::size_t k0, std::size_t count, float* out);

/// By code without its sign, the lower or upper byte of the number in BF16, which holds it exactly.
struct E4M3Bytes {
  alignas(64) std::array<std::uint8_t, 128> low{}, high{};
};
inline constexpr E4M3Bytes kE4M3Bytes = [] {
  E4M3Bytes bytes;
  for (std::size_t code = 0; code < bytes.low.size(); ++code) {
    const std::uint16_t bf16 =
        bf16_from_f32(format::f32_from_e4m3(static_cast<std::uint8_t>(code)));
    bytes.low[code] = static_cast<std::uint8_t>(bf16);
    bytes.high[code] = static_cast<std::uint8_t>(bf16 >> 8);
  }
  return bytes;
}();
/// An order of 64 columns: when their two bytes have been interleaved in each sixteen of a vector,
/// the even words of the lower halves are those of the first 16 columns, the odd words of the next,
/// then those of the upper halves.
alignas(64) inline constexpr auto kE4M3Order = [] {
  std::array<std::uint8_t, 64> order{};
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t v = 0; v < 4; ++v)
      order[i / 4 * 16 + v / 2 * 8 + i % 4 * 2 + v % 2] = static_cast<std::uint8_t>(16 * v + i);
  return order;
}();

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_FP8_ONCE

#if defined(CANOPY_KERNELS_CPU_FP8_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_FP8_INL
#else
#define CANOPY_KERNELS_CPU_FP8_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Fp8Floats = hn::CappedTag<float, 16>;
using Fp8Vec = hn::Vec<Fp8Floats>;

#if HWY_TARGET == HWY_AVX3_DL  // has an instruction that looks bytes up in a table of 128

constexpr std::size_t kFp8Vectors = 4;  // that become f32 together

/// The number by which load_e4m3() multiplies `count` codes of one scale.
HWY_INLINE float e4m3_factor(const std::uint8_t*, std::size_t, float scale) { return scale; }

HWY_INLINE __m512i look_up_e4m3(const std::array<std::uint8_t, 128>& table, __m512i code) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table.data()), code,
                                  _mm512_load_si512(table.data() + 64));
}
/// Vectors of E4M3 numbers times their factor. A code that is not a number gives NaN.
HWY_INLINE void load_e4m3(const std::uint8_t* codes, float factor, Fp8Vec (&out)[kFp8Vectors]) {
  const __m512i code =
      _mm512_permutexvar_epi8(_mm512_load_si512(kE4M3Order.data()), _mm512_loadu_si512(codes));
  const __m512i low = look_up_e4m3(kE4M3Bytes.low, code);
  constexpr int kBySelector = 0xe4;  // the first where the third has ones, else the second
  const __m512i high = _mm512_ternarylogic_epi32(look_up_e4m3(kE4M3Bytes.high, code), code,
                                                 _mm512_set1_epi8(0x7f), kBySelector);
  const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512 factors = _mm512_set1_ps(factor);
  const __m512i words[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kFp8Vectors; ++v) {
    const __m512i two = words[v / 2];
    const __m512i bits = v % 2 == 0 ? _mm512_slli_epi32(two, 16) : _mm512_and_si512(two, odd);
    out[v] = Fp8Vec{_mm512_mul_ps(_mm512_castsi512_ps(bits), factors)};
  }
}

#else

constexpr std::size_t kFp8Vectors = 2;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
#define CANOPY_FP8_BY_F32  // older sets do not know f16
constexpr float kFactorOfBits = 1;
#else
constexpr float kFactorOfBits = 256;
#endif

/// Does the same. All that share their scale with a code that is not a number become NaN: the bits
/// of such a code are those of a number in f16 and f32.
HWY_INLINE float e4m3_factor(const std::uint8_t* codes, std::size_t count, float scale) {
  const hn::CappedTag<std::uint8_t, 64> bytes;
  const auto rest = hn::Set(bytes, std::uint8_t{format::kE4M3NaN});
  auto largest = hn::Zero(bytes);
  std::size_t i = 0;
  for (; i + hn::Lanes(bytes) <= count; i += hn::Lanes(bytes))
    largest = hn::Max(largest, hn::And(hn::LoadU(bytes, codes + i), rest));
  bool has_nan = !hn::AllFalse(bytes, hn::Eq(largest, rest));
  for (; i < count; ++i) has_nan = has_nan || (codes[i] & 0x7f) == format::kE4M3NaN;
  return has_nan ? f32_from_bf16(0x7fff) : kFactorOfBits * scale;  // finite: check_scales()
}

HWY_INLINE void load_e4m3(const std::uint8_t* codes, float factor, Fp8Vec (&out)[kFp8Vectors]) {
  const Fp8Floats floats;
  const auto factors = hn::Set(floats, factor);
#ifdef CANOPY_FP8_BY_F32  // which has 2^-120 of the numbers under these bits
  const hn::Rebind<std::int8_t, Fp8Floats> bytes;
  const hn::Rebind<std::int32_t, Fp8Floats> ints;
  const auto bits = hn::Set(ints, static_cast<std::int32_t>(0x87f00000u));
  for (std::size_t v = 0; v < kFp8Vectors; ++v) {
    const auto* const from = reinterpret_cast<const std::int8_t*>(codes) + v * hn::Lanes(floats);
    const auto wide = hn::ShiftLeft<20>(hn::PromoteTo(ints, hn::LoadU(bytes, from)));
    const auto number =
        hn::Mul(hn::BitCast(floats, hn::And(wide, bits)), hn::Set(floats, 0x1p120f));
    out[v] = hn::Mul(number, factors);
  }
#undef CANOPY_FP8_BY_F32
#else  // f16 has 1/256 of them
  const hn::Repartition<std::int16_t, Fp8Floats> words;
  const hn::Rebind<std::int8_t, decltype(words)> bytes;
  const hn::Half<decltype(words)> some_words;
  const hn::Rebind<hwy::float16_t, Fp8Floats> halves;
  const auto code = hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(codes));
  const auto half = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(words, code)),
                            hn::Set(words, static_cast<std::int16_t>(0xbfff)));
  const auto number = [&](auto of_vector) HWY_ATTR {
    return hn::Mul(hn::PromoteTo(floats, hn::BitCast(halves, of_vector)), factors);
  };
  out[0] = number(hn::LowerHalf(some_words, half));
  out[1] = number(hn::UpperHalf(some_words, half));
#endif
}

#endif

/// Writes `count` numbers times their scale, vector i to out + i * step, aligned, and zeros up to a
/// whole vector. count: at most kFactorColumns.
HWY_INLINE void unpack_e4m3(const std::uint8_t* codes, std::size_t count, float scale, float* out,
                            std::size_t step) {
  const Fp8Floats floats;
  constexpr std::size_t kWidth = hn::MaxLanes(Fp8Floats()), kStep = kFp8Vectors * kWidth;
  const float factor = e4m3_factor(codes, count, scale);
  std::size_t k = 0;
  for (; k + kStep <= count; k += kStep) {
    Fp8Vec values[kFp8Vectors];
    load_e4m3(codes + k, factor, values);
    for (std::size_t v = 0; v < kFp8Vectors; ++v, out += step) hn::Store(values[v], floats, out);
  }
  if (k == count) return;
  std::uint8_t tail[kStep] = {};
  std::memcpy(tail, codes + k, count - k);
  Fp8Vec values[kFp8Vectors];
  load_e4m3(tail, factor, values);
  for (std::size_t v = 0; k < count; k += kWidth, ++v, out += step)
    hn::Store(values[v], floats, out);
}

/// Does what a FactorsOf does, of codes that were unpacked.
template <class Format>
void fp8_factors_of_codes(const std::uint8_t* codes, const StoredRow& row, std::size_t k0,
                          std::size_t count, float* out) {
  for (std::size_t k = 0; k < count; k += kFactorColumns)
    *out++ = e4m3_factor(codes + k, std::min(kFactorColumns, count - k),
                         Format::scale(row, static_cast<std::int64_t>(k0 + k)));
}
/// A FactorsOf.
template <class Format>
void fp8_factors(const StoredRow& row, std::size_t k0, std::size_t count, float* out) {
  static_assert(Format::kScaleColumns == 0 || Format::kScaleColumns == kFactorColumns);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(row.data) + k0;
  fp8_factors_of_codes<Format>(codes, row, k0, count, out);
}
/// The FactorsOf of a format, null for one that is not FP8.
template <class Format>
constexpr FactorsOf fp8_factors_of() {
  if constexpr (kIsFp8<Format>)
    return fp8_factors<Format>;
  else
    return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_FP8_INL
