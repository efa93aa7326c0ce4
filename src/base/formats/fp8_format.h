#pragma once
// FP8: weights of a byte each, E4M3 numbers, and the scales that multiply them. These lie apart, as
// the companion of the matrix, in f32 whatever the file has. Rows stream as they lie in the file.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/companion.h"
#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace format {

inline constexpr int kE4M3NaN = 0x7f;  // and with a sign; the format has no infinities
inline constexpr float kLargestE4M3 = 448;

/// The number of a byte: its sign, four bits of exponent with a bias of 7, three of mantissa. It is
/// 256 times that of f16 with these bits, and exact in 16 bits.
CANOPY_HOST_DEVICE constexpr float f32_from_e4m3(std::uint8_t code) {
  const int magnitude = code & 0x7f;
  const float value = magnitude == kE4M3NaN
                          ? f32_from_bf16(0x7fff)
                          : f32_from_f16(static_cast<std::uint16_t>(magnitude << 7)) * 256.0f;
  return (code & 0x80) != 0 ? -value : value;
}

/// The code of the nearest number, of two the one with an even code; of numbers that are larger
/// than all, the largest. Not for NaN.
std::uint8_t e4m3_from_f32(float value);

/// A scale of one byte: 2^(code - 127). Code 255 is no number.
CANOPY_HOST_DEVICE constexpr float f32_from_e8m0(std::uint8_t code) {
  if (code == 0) return 0x1p-127f;
  return f32_from_bf16(code == 255 ? 0x7fff : static_cast<std::uint16_t>(code << 7));
}

/// Throws Error unless all scales are above zero, and so small that the largest weight is finite.
void check_scales(std::span<const std::byte> scales, std::int64_t rows, std::int64_t columns,
                  std::int64_t scale_rows, std::int64_t scale_columns);

/// A row is {e4m3 code[columns]}, the companion f32 scale[ceil(rows / kRows)][ceil(columns /
/// kColumns)]; kColumns 0 stands for all columns. A weight is code x scale, rounded once.
template <std::int64_t kRows, std::int64_t kColumns>
struct ScaledE4M3 {
  using Element = std::uint8_t;  // a code
  static constexpr std::int64_t kSliceUnit = kRows;
  static constexpr std::int64_t kScaleRows = kRows, kScaleColumns = kColumns;

  CANOPY_HOST_DEVICE static constexpr std::int64_t scales_across(std::int64_t columns) {
    if constexpr (kColumns == 0)
      return 1;
    else
      return (columns + kColumns - 1) / kColumns;
  }
  CANOPY_HOST_DEVICE static std::size_t companion_bytes(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>((rows + kRows - 1) / kRows * scales_across(columns)) *
           sizeof(float);
  }
  CANOPY_HOST_DEVICE static constexpr std::size_t fixed_bytes(std::int64_t columns) {
    return static_cast<std::size_t>(columns);
  }
  CANOPY_HOST_DEVICE static RowPlace place_of_row(const std::byte* companion, std::int64_t columns,
                                                  std::int64_t i) {
    return {static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns),
            companion + companion_bytes(i / kRows * kRows, columns)};
  }
  CANOPY_HOST_DEVICE static float scale(const StoredRow& row, std::int64_t k) {
    std::int64_t index = 0;
    if constexpr (kColumns > 0) index = k / kColumns;
    return load<float>(row.companion + index * std::int64_t{sizeof(float)});
  }
  CANOPY_HOST_DEVICE static float decode(const StoredRow& row, std::int64_t k) {
    return f32_from_e4m3(static_cast<std::uint8_t>(row.data[k])) * scale(row, k);
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t rows,
                              std::int64_t columns) {
    check_scales(companion, rows, columns, kRows, kColumns);
  }
};

/// A scale for each block of 128 x 128 weights, those at the edges smaller.
struct E4M3Blocks : ScaledE4M3<128, 128> {
  static constexpr DType kDType = DType::kE4M3Blocks;
  static constexpr const char* kName = "FP8 by blocks";
};
/// A scale for each row; one of the whole matrix is repeated.
struct E4M3Rows : ScaledE4M3<1, 0> {
  static constexpr DType kDType = DType::kE4M3Rows;
  static constexpr const char* kName = "FP8 by rows";
};

}  // namespace format

using Fp8Formats = format::List<format::E4M3Blocks, format::E4M3Rows>;

template <class Format>
inline constexpr bool kIsFp8 = requires {
  Format::kScaleColumns;
};
/// The companions of these formats; null for a dtype that is none of them.
template <class... Formats>
constexpr const CompanionFormat* find_fp8(format::List<Formats...>, DType dtype) {
  const CompanionFormat* found = nullptr;
  ((dtype == Formats::kDType ? void(found = &kCompanionOf<Formats>) : void()), ...);
  return found;
}
constexpr const CompanionFormat* find_fp8_format(DType dtype) {
  return find_fp8(Fp8Formats(), dtype);
}

}  // namespace canopy
