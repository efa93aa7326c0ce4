#pragma once
// FP8 packed: the codes of a matrix in fewer bits, and its scales. Both formats have one codec, and
// differ as the plain ones do. Scales stay as they are: in memory they lie in the companion,
// between the offsets of the rows that they are for, so that a matrix is cut with what belongs to
// its rows.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/levels_format.h"

namespace canopy {

namespace format {

/// The companion of packed rows with scales: for each kRows rows {RowOffset offset[kRows]; f32
/// scale[scales_across(columns)]}, and in the end {RowOffset}. An offset past the last row is where
/// that ends.
template <class Format, class Scaled>
struct ScaledRowOffsets {
  using Plain = Scaled;
  static constexpr std::int64_t kSliceUnit = Scaled::kSliceUnit;
  static constexpr std::int64_t kOffsetBytes = sizeof(RowOffset);

  /// Bytes of the companion before the offset of a row.
  CANOPY_HOST_DEVICE static std::int64_t place_of_offset(std::int64_t columns, std::int64_t row) {
    return row / kSliceUnit * unit_bytes(columns) + row % kSliceUnit * kOffsetBytes;
  }
  /// Bytes before the scales of the rows that share a row's.
  CANOPY_HOST_DEVICE static std::int64_t place_of_scales(std::int64_t columns, std::int64_t row) {
    return row / kSliceUnit * unit_bytes(columns) + kSliceUnit * kOffsetBytes;
  }
  CANOPY_HOST_DEVICE static std::size_t offset(const std::byte* companion, std::int64_t columns,
                                               std::int64_t row) {
    return std::size_t{load<RowOffset>(companion + place_of_offset(columns, row))} *
           kPackedAlignment;
  }
  CANOPY_HOST_DEVICE static RowPlace place_of_row(const std::byte* companion, std::int64_t columns,
                                                  std::int64_t row) {
    const std::size_t begin = offset(companion, columns, row);
    return {begin - offset(companion, columns, 0), offset(companion, columns, row + 1) - begin,
            companion + place_of_scales(columns, row)};
  }
  static std::size_t companion_bytes(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>((rows + kSliceUnit - 1) / kSliceUnit * unit_bytes(columns) +
                                    kOffsetBytes);
  }
  CANOPY_HOST_DEVICE static float scale(const StoredRow& row, std::int64_t k) {
    return Scaled::scale(row, k);
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t rows,
                              std::int64_t columns);

 private:
  CANOPY_HOST_DEVICE static std::int64_t unit_bytes(std::int64_t columns) {
    return kSliceUnit * kOffsetBytes + Scaled::scales_across(columns) * std::int64_t{sizeof(float)};
  }
};

/// E4M3 by exponents in levels: nibble i of the rest, the lower half of byte i or, from 32 on, the
/// higher of byte i - 32, is the sign (bit 3) and the mantissa of weight i, whose place is i. Bases
/// are below 16.
template <class Format, class Scaled>
struct LevelsE4M3 : ScaledRowOffsets<Format, Scaled>,
                    ExponentLevels<Format, PackedBlocks<2, 32>, 2, 4> {
  using Blocks = PackedBlocks<2, 32>;
  static constexpr const char* kCodec = "e4m3-levels-512";
  static constexpr std::uint8_t kNotANumber = kE4M3NaN;

  /// Codes 3 and 4 are those of the levels.
  CANOPY_HOST_DEVICE static constexpr int step(int code) { return code < 3 ? code : 2 - code; }
  CANOPY_HOST_DEVICE static constexpr int weight_at(int place) { return place; }

  CANOPY_HOST_DEVICE static Blocks::Block block(const StoredRow& row, std::int64_t index) {
    Blocks::Block b = Blocks::block(row, index);
    b.sound = b.sound && b.base < 16;
    return b;
  }
  /// The sign and the mantissa of weight i of a group, where a code has them.
  CANOPY_HOST_DEVICE static constexpr int rest(const std::byte* group, int i) {
    const int two = static_cast<int>(group[Blocks::kCodeBytes + i % 32]);
    const int nibble = i < 32 ? two & 15 : two >> 4;
    return (nibble & 8) << 4 | (nibble & 7);
  }

  static constexpr int kPlaces = 16, kSixteens = Blocks::kGroupColumns / kPlaces;
  /// Weights 16 s to 16 s + 15 of a group, four in a word, the first in its lowest byte.
  /// `exceptions` are the group's, and these weights' begin with number `index`.
  CANOPY_HOST_DEVICE static void decode_sixteen(const std::byte* group, int s,
                                                const Blocks::Codes<std::uint32_t>& codes, int base,
                                                const std::byte* exceptions, int index,
                                                std::uint32_t (&fours)[kPlaces / 4]) {
    for (int i = 0; i < kPlaces / 4; ++i) {
      const auto two = load<std::uint32_t>(group + Blocks::kCodeBytes + kPlaces * (s % 2) + 4 * i);
      const std::uint32_t rest = s < 2 ? two : two >> 4;  // a nibble of each byte
      fours[i] = (rest & 0x08080808u) << 4 | (rest & 0x07070707u);
    }
    for (int p = 0; p < kPlaces; ++p) {
      const std::uint32_t code = (codes.plane[0] >> p & 1) | (codes.plane[1] >> p & 1) << 1 |
                                 (codes.plane[2] >> p & 1) << 2;
      std::uint32_t exponent = Format::exponent(base, code);
      if ((codes.exceptions >> p & 1) != 0) {
        exponent = std::to_integer<std::uint32_t>(exceptions[index / 2]) >> index % 2 * 4 & 15;
        ++index;
      }
      fours[p / 4] |= exponent << (3 + 8 * (p % 4));
    }
  }

  /// Defines the format, a bit at a time.
  static void decode_group(const StoredRow& row, std::int64_t group, std::uint8_t* out);
};

/// A scale for each block of 128 x 128 weights.
struct LevelsE4M3Blocks : LevelsE4M3<LevelsE4M3Blocks, E4M3Blocks> {
  static constexpr DType kDType = DType::kLevelsE4M3Blocks;
  static constexpr const char* kName = "packed FP8 by blocks";
};
/// A scale for each row.
struct LevelsE4M3Rows : LevelsE4M3<LevelsE4M3Rows, E4M3Rows> {
  static constexpr DType kDType = DType::kLevelsE4M3Rows;
  static constexpr const char* kName = "packed FP8 by rows";
};

}  // namespace format

/// The bytes of such a companion. Shapes: offsets [rows + 1]; scales as those of the plain format
/// of `dtype`. Throws Error for another dtype, or if there are not as many.
std::vector<std::byte> with_scales(DType dtype, std::span<const RowOffset> offsets,
                                   std::span<const float> scales, std::int64_t columns);

}  // namespace canopy
