// Weights become f32, or BF16: one unpacking for each format, compiled once per instruction set by
// each file that includes it after hwy/foreach_target.h. Loads take any address.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/unpack/codes-inl.h"
#include "kernels/cpu/unpack/fp8-inl.h"
#include "kernels/cpu/unpack/packed-inl.h"
#include "kernels/weight_view.h"
#include "src/base/formats/packed_format.h"
#include "src/base/formats/weight_format.h"

#ifndef CANOPY_KERNELS_CPU_WEIGHTS_ONCE
#define CANOPY_KERNELS_CPU_WEIGHTS_ONCE
namespace canopy::cpu {

/// Writes columns [k0, k0 + count) of a row as f32, vector i to out + i * step (aligned). Elements
/// past `count`, up to a whole vector, are zeros. k0 and, of formats in blocks, count are multiples
/// of a block; of packed formats k0 is one of kBlock.
using Unpack = void (*)(const StoredRow& row, std::size_t k0, std::size_t count, float* out,
                        std::size_t step);
/// Writes those of a packed row as BF16, and anything up to column k0 + kBlock.
using UnpackBF16 = void (*)(const StoredRow& row, std::size_t k0, std::uint16_t* out);
/// Writes those of a row of FP8, packed, as codes, up to column k0 + count, then anything up to k0
/// + kBlock, and a FactorsOf's factors of these.
using UnpackFp8 = void (*)(const StoredRow& row, std::size_t k0, std::size_t count,
                           std::uint8_t* codes, float* factors);

/// `count` rows of k weights each, at any address, packed or not.
struct WeightRows {
  const std::uint8_t* data;  // the first row; with a companion, the matrix's first
  CompanionView companion;   // the matrix's
  std::size_t first;         // row of the matrix, with a companion
  std::size_t count, k;
  std::size_t row_bytes;    // of a row without a companion
  std::size_t block_bytes;  // of kBlock columns, of packed rows about
  Unpack unpack;
  UnpackBF16 unpack_bf16;  // of formats that pack BF16, else null
  FactorsOf fp8_factors;   // of FP8, else null
  UnpackFp8 unpack_fp8;    // of formats that pack FP8, else null
  bool bf16;               // which tiles can read as they lie

  StoredRow row(std::size_t n) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(data);
    const auto columns = static_cast<std::int64_t>(k);
    if (companion.format == nullptr) return {bytes + n * row_bytes, row_bytes, columns};
    const RowPlace at = place(n);
    return {bytes + at.offset, at.bytes, columns, at.companion};
  }
  /// Returns about where block `index` of row n lies, for prefetches: rows past the last may be
  /// asked for.
  const std::uint8_t* block(std::size_t n, std::size_t index) const {
    if (companion.format == nullptr) return data + n * row_bytes + index * block_bytes;
    const RowPlace row = place(std::min(n, count - 1));
    return data + row.offset + (n < count ? 0 : row.bytes) + index * block_bytes;
  }

 private:
  RowPlace place(std::size_t n) const {
    return companion.format->place_of_row(companion.data, static_cast<std::int64_t>(k),
                                          static_cast<std::int64_t>(first + n));
  }
};

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_WEIGHTS_ONCE

#if defined(CANOPY_KERNELS_CPU_WEIGHTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_WEIGHTS_INL
#else
#define CANOPY_KERNELS_CPU_WEIGHTS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;
using std::uint8_t;

/// kLanes elements of a format whose elements stand alone.
template <class Format>
HWY_INLINE Vec load_plain(const uint8_t* from) {
  if constexpr (std::is_same_v<Format, format::F32>) {
    return hn::LoadU(Floats(), reinterpret_cast<const float*>(from));
  } else if constexpr (std::is_same_v<Format, format::BF16>) {
    const hn::Rebind<hwy::bfloat16_t, Floats> half;
    return hn::PromoteTo(Floats(), hn::LoadU(half, reinterpret_cast<const hwy::bfloat16_t*>(from)));
  } else {
    static_assert(std::is_same_v<Format, format::F16>);
    const hn::Rebind<hwy::float16_t, Floats> half;
    return hn::PromoteTo(Floats(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
  }
}
HWY_INLINE float scalar_f16(const uint8_t* from) {
  const hn::CappedTag<float, 1> one;
  const hn::Rebind<hwy::float16_t, decltype(one)> half;
  hwy::float16_t value;
  std::memcpy(&value, from, sizeof value);
  return hn::GetLane(hn::PromoteTo(one, hn::LoadU(half, &value)));
}

/// A block as vectors: block(at) has elements [at, at + kLanes), `at` a multiple of kLanes. A
/// format without a faster way below goes by its plain definition.
template <class Format>
struct BlockVectors {
  const uint8_t* block;
  HWY_INLINE explicit BlockVectors(const uint8_t* from) : block(from) {}
  HWY_INLINE Vec operator()(size_t at) const {
    HWY_ALIGN float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i)
      values[i] =
          Format::decode(reinterpret_cast<const std::byte*>(block), static_cast<int>(at + i));
    return hn::Load(Floats(), values);
  }
};
/// format::element_of_group for a vector, with the same bits: the products are exact, fused or not,
/// or the only operation.
template <class Format>
requires(Format::kGroupElements > 0) struct BlockVectors<Format> {
  static constexpr size_t kGroup = Format::kGroupElements;
  static constexpr size_t kGroups = Format::kBlockElements / kGroup;
  static constexpr bool kHasMinimum = Format::kMinimumAt >= 0;
  static_assert(kGroup % kMaxLanes == 0);
  const uint8_t* block;
  float scale[kGroups], minimum[kHasMinimum ? kGroups : 1];

  HWY_INLINE explicit BlockVectors(const uint8_t* from) : block(from) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(block);
    float d;
    if constexpr (format::kHasOwnScale<Format>)
      d = Format::scale(bytes);
    else
      d = scalar_f16(block + Format::kScaleAt);
    for (size_t g = 0; g < kGroups; ++g)
      scale[g] = d * static_cast<float>(Format::group_scale(bytes, static_cast<int>(g)));
    if constexpr (kHasMinimum) {
      const float m = scalar_f16(block + Format::kMinimumAt);
      for (size_t g = 0; g < kGroups; ++g)
        minimum[g] = m * static_cast<float>(Format::group_minimum(bytes, static_cast<int>(g)));
    }
  }
  HWY_INLINE Vec operator()(size_t at) const {
    const Vec codes = float_codes(Format(), block, at);
    const Vec scales = hn::Set(Floats(), scale[at / kGroup]);
    if constexpr (kHasMinimum)
      return hn::MulAdd(scales, codes, hn::Set(Floats(), minimum[at / kGroup]));
    else
      return hn::Mul(scales, codes);
  }
};

template <class Format>
HWY_INLINE void unpack_plain(const uint8_t* row, size_t k0, size_t count, float* out, size_t step) {
  constexpr size_t kBytes = Format::kBlockBytes;
  const uint8_t* from = row + k0 * kBytes;
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes, out += step)
    hn::Store(load_plain<Format>(from + k * kBytes), Floats(), out);
  if (k < count) {
    uint8_t tail[kLanes * sizeof(float)] = {};
    std::memcpy(tail, from + k * kBytes, (count - k) * kBytes);
    hn::Store(load_plain<Format>(tail), Floats(), out);
  }
}

template <class Format>
HWY_INLINE void unpack_blocks(const uint8_t* row, size_t k0, size_t count, float* out,
                              size_t step) {
  constexpr size_t kElements = Format::kBlockElements, kBytes = Format::kBlockBytes;
  static_assert(kElements % kMaxLanes == 0 && kBlock % kElements == 0);
  const uint8_t* block = row + k0 / kElements * kBytes;
  for (size_t k = 0; k < count; k += kElements, block += kBytes) {
    const BlockVectors<Format> values(block);
    for (size_t at = 0; at < kElements; at += kLanes, out += step)
      hn::Store(values(at), Floats(), out);
  }
}

/// An Unpack of a format with a companion that is not packed. One without a faster way goes by its
/// plain definition.
template <class Format>
struct CompanionVectors {
  static void unpack(const StoredRow& row, size_t k0, size_t count, float* out, size_t step) {
    for (size_t k = 0; k < count; k += kLanes, out += step)
      for (size_t i = 0; i < kLanes; ++i)
        out[i] = k + i < count ? Format::decode(row, static_cast<std::int64_t>(k0 + k + i)) : 0.0f;
  }
};
template <class Format>
requires(kIsFp8<Format>) struct CompanionVectors<Format> {
  static_assert(Format::kScaleColumns == 0 || Format::kScaleColumns == kFactorColumns);
  static void unpack(const StoredRow& row, size_t k0, size_t count, float* out, size_t step) {
    const auto* const codes = reinterpret_cast<const uint8_t*>(row.data) + k0;
    for (size_t k = 0; k < count; k += kFactorColumns, out += kFactorColumns / kLanes * step)
      unpack_e4m3(codes + k, std::min(kFactorColumns, count - k),
                  Format::scale(row, static_cast<std::int64_t>(k0 + k)), out, step);
  }
};

/// A gather finds what a row has of each column's group.
template <class Format>
requires(kIsGrouped<Format>&& kLanes >= 8) struct CompanionVectors<Format> {
  static_assert(kBlock % 32 == 0 && 32 % kLanes == 0);
  static void unpack(const StoredRow& row, size_t k0, size_t count, float* out, size_t step) {
    const hn::Rebind<std::uint16_t, Floats> shorts;
    const hn::Rebind<hwy::float16_t, Floats> halves;
    const auto* const groups = reinterpret_cast<const std::int32_t*>(row.data);
    const auto* const of =
        reinterpret_cast<const std::uint16_t*>(row.companion + Format::kColumnsAt);
    const auto* const codes = reinterpret_cast<const uint8_t*>(row.data) +
                              Format::groups(row.companion) * Format::kGroupBytes;
    for (size_t k = k0; k < k0 + count; k += kLanes, out += step) {
      const auto word =
          hn::GatherIndex(Ints(), groups, hn::PromoteTo(Ints(), hn::LoadU(shorts, of + k)));
      const auto half = hn::BitCast(
          halves, hn::TruncateTo(shorts, hn::BitCast(hn::Rebind<std::uint32_t, Floats>(), word)));
      const auto is_bf16 = hn::RebindMask(Floats(), hn::TestBit(word, hn::Set(Ints(), 1 << 24)));
      const Vec scale = hn::IfThenElse(is_bf16, hn::BitCast(Floats(), hn::ShiftLeft<16>(word)),
                                       hn::PromoteTo(Floats(), half));
      const auto zero = hn::And(hn::ShiftRight<16>(word), hn::Set(Ints(), 255));
      const auto q =
          Format::kCodeBits == 4 ? nibbles(codes + k / 32 * 16, k % 32) : bits_of<8>(codes + k, 0);
      hn::Store(hn::Mul(scale, hn::ConvertTo(Floats(), hn::Sub(q, zero))), Floats(), out);
    }
  }
};

/// An Unpack.
template <class Format>
void unpack_row(const StoredRow& row, size_t k0, size_t count, float* out, size_t step) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(row.data);
  if constexpr (kPacksFp8<Format>) {
    HWY_ALIGN uint8_t codes[kBlock];
    PackedVectors<Format>::unpack(row, k0, codes);
    for (size_t k = 0; k < count; k += kFactorColumns, out += kFactorColumns / kLanes * step)
      unpack_e4m3(codes + k, std::min(kFactorColumns, count - k),
                  Format::scale(row, static_cast<std::int64_t>(k0 + k)), out, step);
  } else if constexpr (kIsPacked<Format>) {
    HWY_ALIGN std::uint16_t plain[kBlock];
    PackedVectors<Format>::unpack(row, k0, plain);
    unpack_plain<typename Format::Plain>(reinterpret_cast<const uint8_t*>(plain), 0, count, out,
                                         step);
  } else if constexpr (kHasCompanion<Format>) {
    CompanionVectors<Format>::unpack(row, k0, count, out, step);
  } else if constexpr (kInBlocks<Format>) {
    unpack_blocks<Format>(bytes, k0, count, out, step);
  } else {
    unpack_plain<Format>(bytes, k0, count, out, step);
  }
}
/// An UnpackBF16. Vectors that the last weights share with none are zeros there.
template <class Format>
void unpack_packed_bf16(const StoredRow& row, size_t k0, std::uint16_t* out) {
  static_assert(Format::kGroupColumns % kMaxLanes == 0);
  PackedVectors<Format>::unpack(row, k0, out);
}

/// An UnpackFp8.
template <class Format>
void unpack_packed_fp8(const StoredRow& row, size_t k0, size_t count, uint8_t* codes,
                       float* factors) {
  PackedVectors<Format>::unpack(row, k0, codes);
  fp8_factors_of_codes<Format>(codes, row, k0, count, factors);
}

[[maybe_unused]] static Unpack unpack_of(DType dtype) {
  return visit_format(MatrixFormats(), dtype,
                      []<class Format>(Format) -> Unpack { return unpack_row<Format>; });
}

/// Rows of a format without a companion.
template <class Format>
WeightRows weight_rows(const uint8_t* data, size_t count, size_t k) {
  return {.data = data,
          .companion = {},
          .first = 0,
          .count = count,
          .k = k,
          .row_bytes = static_cast<size_t>(bytes_of_row<Format>(static_cast<std::int64_t>(k))),
          .block_bytes = static_cast<size_t>(bytes_of_row<Format>(kBlock)),
          .unpack = unpack_row<Format>,
          .unpack_bf16 = nullptr,
          .fp8_factors = nullptr,
          .unpack_fp8 = nullptr,
          .bf16 = std::is_same_v<Format, format::BF16>};
}
/// The UnpackBF16 of a format, null for one that does not pack BF16.
template <class Format>
constexpr UnpackBF16 unpack_bf16_of() {
  if constexpr (kIsPacked<Format>)
    if constexpr (std::is_same_v<typename Format::Plain, format::BF16>)
      return unpack_packed_bf16<Format>;
  return nullptr;
}
/// The UnpackFp8 of a format, null for one that does not pack FP8.
template <class Format>
constexpr UnpackFp8 unpack_fp8_of() {
  if constexpr (kPacksFp8<Format>) return unpack_packed_fp8<Format>;
  return nullptr;
}
/// Rows [first, first + count) of a matrix.
template <class Format>
WeightRows weight_rows(const WeightView& w, size_t first, size_t count) {
  const auto* const data = reinterpret_cast<const uint8_t*>(w.payload());
  const auto k = static_cast<size_t>(w.columns());
  if constexpr (kHasCompanion<Format>)
    return {.data = data,
            .companion = w.companion(),
            .first = first,
            .count = count,
            .k = k,
            .row_bytes = 0,
            .block_bytes = Format::fixed_bytes(2 * kBlock) - Format::fixed_bytes(kBlock),
            .unpack = unpack_row<Format>,
            .unpack_bf16 = unpack_bf16_of<Format>(),
            .fp8_factors = fp8_factors_of<Format>(),
            .unpack_fp8 = unpack_fp8_of<Format>(),
            .bf16 = false};
  else
    return weight_rows<Format>(
        data + first * static_cast<size_t>(bytes_of_row<Format>(w.columns())), count, k);
}
[[maybe_unused]] static WeightRows weight_rows_of(DType dtype, const uint8_t* data, size_t count,
                                                  size_t k) {
  return visit_format(dtype,
                      [&]<class Format>(Format) { return weight_rows<Format>(data, count, k); });
}
[[maybe_unused]] static WeightRows weight_rows_of(const WeightView& w, size_t first, size_t count) {
  return visit_format(MatrixFormats(), w.format(),
                      [&]<class Format>(Format) { return weight_rows<Format>(w, first, count); });
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_WEIGHTS_INL
