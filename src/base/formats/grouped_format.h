#pragma once
// Rows of whole numbers of four or eight bits whose groups are no runs of columns: what GPTQ and
// compressed-tensors mean where columns were ordered by activation. The group of each column, which
// all rows share, is the companion of the matrix.
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/companion.h"
#include "src/base/formats/integer_formats.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace format {

/// Throws Error unless there is a group, and each column is of one.
void check_groups(std::span<const std::byte> companion, std::int64_t columns);

/// A row is {{u16 s; u8 z; u8 type} group[G]; u4 or u8 q[columns]}, the parts as those of Integers;
/// 32 divides the columns. The companion is {u32 G; u16 group[columns]}. A weight is s (q - z) of
/// its column's group, exact in f32.
template <int kBits>
struct Grouped {
  using Group = Integers<kBits, 32>;  // of which a row has the beginning for each group
  static constexpr std::int64_t kSliceUnit = 1;
  static constexpr int kCodeBits = kBits, kGroupBytes = Group::kCodesAt, kColumnsAt = 4;

  CANOPY_HOST_DEVICE static std::size_t companion_bytes(std::int64_t, std::int64_t columns) {
    return static_cast<std::size_t>(kColumnsAt + columns * std::int64_t{sizeof(std::uint16_t)});
  }
  CANOPY_HOST_DEVICE static constexpr std::size_t fixed_bytes(std::int64_t columns) {
    return static_cast<std::size_t>(columns * kBits / 8);
  }
  CANOPY_HOST_DEVICE static std::int64_t groups(const std::byte* companion) {
    return load<std::uint32_t>(companion);
  }
  CANOPY_HOST_DEVICE static RowPlace place_of_row(const std::byte* companion, std::int64_t columns,
                                                  std::int64_t i) {
    const std::size_t bytes =
        static_cast<std::size_t>(groups(companion) * kGroupBytes) + fixed_bytes(columns);
    return {static_cast<std::size_t>(i) * bytes, bytes, companion};
  }
  CANOPY_HOST_DEVICE static int group(const std::byte* companion, std::int64_t k) {
    return load<std::uint16_t>(companion + kColumnsAt + k * std::int64_t{sizeof(std::uint16_t)});
  }
  CANOPY_HOST_DEVICE static float decode(const StoredRow& row, std::int64_t k) {
    const std::byte* const group = row.data + Grouped::group(row.companion, k) * kGroupBytes;
    const std::byte* const codes = row.data + groups(row.companion) * kGroupBytes;
    const int q = kBits == 4 ? nibble(codes + k / 32 * 16, static_cast<int>(k % 32))
                             : static_cast<int>(codes[k]);
    return Group::scale(group) * static_cast<float>(q - static_cast<int>(group[Group::kZeroAt]));
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t,
                              std::int64_t columns) {
    check_groups(companion, columns);
  }
};

struct I4Grouped : Grouped<4> {
  static constexpr DType kDType = DType::kI4Grouped;
  static constexpr const char *kName = "I4 by groups of columns", *kCodec = "I4_grouped";
};
struct I8Grouped : Grouped<8> {
  static constexpr DType kDType = DType::kI8Grouped;
  static constexpr const char *kName = "I8 by groups of columns", *kCodec = "I8_grouped";
};

}  // namespace format

using GroupedFormats = format::List<format::I4Grouped, format::I8Grouped>;

/// True of the formats above.
template <class Format>
inline constexpr bool kIsGrouped = requires {
  Format::kColumnsAt;
};

/// A format above as data.
struct GroupedFormat {
  DType dtype;
  const char* codec;
  int bits;
  const CompanionFormat* companion;
};
template <class... Formats>
constexpr auto as_data_of_grouped(format::List<Formats...>) {
  return std::array{GroupedFormat{Formats::kDType, Formats::kCodec, Formats::kCodeBits,
                                  &kCompanionOf<Formats>}...};
}
inline constexpr auto kGroupedFormats = as_data_of_grouped(GroupedFormats());

/// Null for a dtype that is none of them.
constexpr const GroupedFormat* find_grouped_format(DType dtype) {
  for (const GroupedFormat& f : kGroupedFormats)
    if (f.dtype == dtype) return &f;
  return nullptr;
}

/// The companion of a matrix of `rows` rows whose column k is of group of[k]. Throws Error where a
/// group has no 16 bits.
Companion companion_of_groups(const GroupedFormat& format, std::span<const std::int32_t> of,
                              std::int64_t rows);

}  // namespace canopy
