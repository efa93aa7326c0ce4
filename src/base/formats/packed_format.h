#pragma once
// The formats of packed weights: codes that hold the values of a plain 16-bit format in fewer bits
// and give them back bit for bit. A row's length depends on its values, so a packed matrix has the
// offsets of its rows as its companion. Each format is said once, as in
// src/base/formats/weight_format.h: a new one is an enumerator of DType, a struct here, its name in
// PackedFormats, an overload of for_each_group() in packed_format.cc that reads rows, and one of
// pack_row() (src/convert/pack/pack_row.h) that writes them. Vectors for the CPU are a
// specialisation in kernels/cpu/weights-inl.h.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/companion.h"
#include "src/base/formats/fp8_format.h"
#include "src/base/formats/grouped_format.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

/// Rows of a packed matrix begin at multiples of this many bytes from its first row, and so count
/// their offsets: 32 bits reach 16 GiB.
inline constexpr std::size_t kPackedAlignment = 4;

/// A packed matrix has rows + 1 of them: where each row begins, and the last one ends, in units of
/// kPackedAlignment bytes, counted from anywhere before them.
using RowOffset = std::uint32_t;

namespace format {

CANOPY_HOST_DEVICE inline int count_ones(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __popcll(bits);
#else
  return std::popcount(bits);
#endif
}
/// Does what load() does, in a GPU's memory from a multiple of four bytes.
CANOPY_HOST_DEVICE inline std::uint64_t load_u64(const std::byte* from) {
#if defined(__CUDA_ARCH__)
  return std::uint64_t{load<std::uint32_t>(from + 4)} << 32 | load<std::uint32_t>(from);
#else
  return load<std::uint64_t>(from);
#endif
}

/// The companion of a packed format: rows + 1 RowOffsets.
template <class Format>
struct RowOffsets {
  static constexpr std::int64_t kSliceUnit = 1;
  CANOPY_HOST_DEVICE static std::size_t offset(const std::byte* companion, std::int64_t row) {
    return std::size_t{load<RowOffset>(companion + row * std::int64_t{sizeof(RowOffset)})} *
           kPackedAlignment;
  }
  CANOPY_HOST_DEVICE static RowPlace place_of_row(const std::byte* companion, std::int64_t,
                                                  std::int64_t row) {
    const std::size_t begin = offset(companion, row);
    return {begin - offset(companion, 0), offset(companion, row + 1) - begin, nullptr};
  }
  static std::size_t companion_bytes(std::int64_t rows, std::int64_t) {
    return static_cast<std::size_t>(rows + 1) * sizeof(RowOffset);
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t rows,
                              std::int64_t columns);
};

// Each has: kDType; kName; kCodec, what files call it; Plain, whose bits it gives back; the
// companion of RowOffsets; kGroupColumns, how many weights decode_group() writes; fixed_bytes() and
// most_bytes(columns), what a row takes at least and at most; decode_group(row, group, out), the
// weights of a group as Plain::Element, those past the row's end included, whatever they are. What
// a row says of itself cannot lead outside of its bytes: weights of a part that contradicts itself
// are NaN, which a sweep does not go on with.

/// BF16 by a window of exponents. In 512 columns of a trained matrix, 95 to 98 of 100 exponents are
/// among seven neighbours. A row is, in this order,
///   for each block of 512 columns {u8 base; u8 zero; u16 first}: the window's lowest exponent, and
///     how many exceptions the row has before the block;
///   for each group of 64 columns {u64 code[3]; u8 rest[64]}: bit p of code[0], [1], [2] is the
///     lowest, middle, highest bit of the code of the weight with place p, and rest[p] its sign and
///     seven bits of mantissa;
///   the exceptions {u8 exponent}: of the weights with code 7, in the order of their places;
///   zeros up to a multiple of four bytes.
/// Code c < 7 stands for the exponent base + c. Columns past the last have code 0 and rest 0.
/// Weight i of a group has the place that lets two interleavings of bytes, 16 by 16, put its
/// exponent next to the rest of it and all weights in order: place().
struct PackedBF16 : RowOffsets<PackedBF16> {
  static constexpr DType kDType = DType::kPackedBF16;
  static constexpr const char *kName = "packed BF16", *kCodec = "bf16-window-512";
  using Plain = BF16;
  static constexpr int kBlockColumns = 512, kGroupColumns = 64;
  static constexpr int kCodes = 7;  // and one that says: an exception
  static constexpr int kHighestBase = 255 - (kCodes - 1);
  static constexpr int kHeaderBytes = 4, kCodeBytes = 24;
  static constexpr int kGroupBytes = kCodeBytes + kGroupColumns;
  static constexpr int kBlockGroups = kBlockColumns / kGroupColumns;
  static constexpr std::uint16_t kNotANumber = 0x7fff;

  /// Weights 0 to 31 lie in the lower halves of the group's four sixteens, the others in the upper.
  CANOPY_HOST_DEVICE static constexpr int place(int i) {
    return (i & 31) / 8 * 16 + i / 32 * 8 + i % 8;
  }
  CANOPY_HOST_DEVICE static constexpr int weight_at(int place) {
    return place % 16 / 8 * 32 + place / 16 * 8 + place % 8;
  }

  CANOPY_HOST_DEVICE static constexpr std::int64_t blocks(std::int64_t columns) {
    return (columns + kBlockColumns - 1) / kBlockColumns;
  }
  CANOPY_HOST_DEVICE static constexpr std::int64_t groups(std::int64_t columns) {
    return (columns + kGroupColumns - 1) / kGroupColumns;
  }
  CANOPY_HOST_DEVICE static constexpr std::size_t fixed_bytes(std::int64_t columns) {
    return static_cast<std::size_t>(kHeaderBytes * blocks(columns) + kGroupBytes * groups(columns));
  }

  CANOPY_HOST_DEVICE static constexpr std::size_t most_bytes(std::int64_t columns) {
    return (fixed_bytes(columns) + static_cast<std::size_t>(columns) + kPackedAlignment - 1) /
           kPackedAlignment * kPackedAlignment;
  }

  /// Bit p: the weight with place p is an exception.
  CANOPY_HOST_DEVICE static std::uint64_t exceptions_in(const std::byte* group) {
    return load_u64(group) & load_u64(group + 8) & load_u64(group + 16);
  }

  CANOPY_HOST_DEVICE static const std::byte* group(const StoredRow& row, std::int64_t index) {
    return row.data + blocks(row.columns) * kHeaderBytes + index * kGroupBytes;
  }

  /// A block of a row.
  struct Block {
    const std::byte* group;       // the first of its groups
    const std::byte* exceptions;  // the first of its exceptions
    int groups, base;
    bool sound;  // its exceptions are as many as its neighbours say, and in the row
  };
  CANOPY_HOST_DEVICE static Block block(const StoredRow& row, std::int64_t index) {
    int exceptions = 0;
    for (std::int64_t g = index * kBlockGroups;
         g < (index + 1) * kBlockGroups && g < groups(row.columns); ++g)
      exceptions += count_ones(exceptions_in(group(row, g)));
    return block(row, index, exceptions);
  }
  /// `exceptions`: how many the block has, by its codes.
  CANOPY_HOST_DEVICE static Block block(const StoredRow& row, std::int64_t index, int exceptions) {
    const std::int64_t all = blocks(row.columns);
    const std::byte* const header = row.data + index * kHeaderBytes;
    Block b{};
    b.group = group(row, index * kBlockGroups);
    const std::int64_t left = groups(row.columns) - index * kBlockGroups;
    b.groups = static_cast<int>(left < kBlockGroups ? left : kBlockGroups);
    b.base = static_cast<int>(header[0]);
    const std::size_t first = load<std::uint16_t>(header + 2);
    b.exceptions = row.data + fixed_bytes(row.columns) + first;
    const std::size_t end = first + static_cast<std::size_t>(exceptions);
    const std::size_t room = row.bytes - fixed_bytes(row.columns);
    const bool agrees = index + 1 < all ? end == load<std::uint16_t>(header + kHeaderBytes + 2)
                                        : room - end < kPackedAlignment;
    b.sound = header[1] == std::byte{0} && b.base <= kHighestBase && end <= room && agrees;
    return b;
  }

  CANOPY_HOST_DEVICE static void decode_group(const StoredRow& row, std::int64_t group,
                                              std::uint16_t* out) {
    const Block b = block(row, group / kBlockGroups);
    const int within = static_cast<int>(group % kBlockGroups);
    if (!b.sound) {
      for (int i = 0; i < kGroupColumns; ++i) out[i] = kNotANumber;
      return;
    }
    const std::byte* exception = b.exceptions;
    for (int g = 0; g < within; ++g)
      exception += count_ones(exceptions_in(b.group + g * kGroupBytes));
    const std::byte* const from = b.group + within * kGroupBytes;
    for (int s = 0; s < kSixteens; ++s) {
      std::uint32_t pairs[kPlaces / 2];
      exception += decode_sixteen(from, s, b.base, exception, pairs);
      for (int i = 0; i < kPlaces; ++i)
        out[weight_at(kPlaces * s + i)] = static_cast<std::uint16_t>(pairs[i / 2] >> i % 2 * 16);
    }
  }

  static constexpr int kPlaces = 16, kSixteens = kGroupColumns / kPlaces;
  /// The weights with places 16 s to 16 s + 15 of a group, two in a word, the first in its lower
  /// half. The group is of a sound block whose window begins at `base`; `exception` is the first of
  /// these weights'. Returns how many they have.
  CANOPY_HOST_DEVICE static int decode_sixteen(const std::byte* group, int s, int base,
                                               const std::byte* exception, std::uint32_t* pairs) {
    std::uint32_t plane[3], rest[4];
    for (int i = 0; i < 3; ++i) plane[i] = load<std::uint16_t>(group + 8 * i + 2 * s);
    for (int i = 0; i < 4; ++i)
      rest[i] = load<std::uint32_t>(group + kCodeBytes + kPlaces * s + 4 * i);
    int exceptions = 0;
    const auto weight = [&](int p) {
      const std::uint32_t code =
          (plane[0] >> p & 1) | (plane[1] >> p & 1) << 1 | (plane[2] >> p & 1) << 2;
      const std::uint32_t exponent = code < kCodes
                                         ? static_cast<std::uint32_t>(base) + code
                                         : std::to_integer<std::uint32_t>(exception[exceptions++]);
      const std::uint32_t bits = rest[p / 4] >> 8 * (p % 4) & 0xff;
      return (bits & 0x80) << 8 | exponent << 7 | (bits & 0x7f);
    };
    for (int p = 0; p < kPlaces; p += 2) {
      const std::uint32_t first = weight(p);
      pairs[p / 2] = first | weight(p + 1) << 16;
    }
    return exceptions;
  }
};

/// Throws Error unless the rows begin at the matrix's first byte, follow one another and have from
/// `least` to `most` bytes each, for `columns` columns.
void check_row_offsets(std::span<const std::byte> companion, std::int64_t rows,
                       std::int64_t columns, std::size_t least, std::size_t most);
template <class Format>
void RowOffsets<Format>::check_companion(std::span<const std::byte> companion, std::int64_t rows,
                                         std::int64_t columns) {
  check_row_offsets(companion, rows, columns, Format::fixed_bytes(columns),
                    Format::most_bytes(columns));
}

}  // namespace format

using PackedFormats = format::List<format::PackedBF16>;
/// Formats that a WeightView may have.
using MatrixFormats = decltype(WeightFormats() + PackedFormats() + Fp8Formats() + GroupedFormats());

template <class Format>
inline constexpr bool kIsPacked = requires {
  typename Format::Plain;
};

/// A packed format as data.
struct PackedFormat {
  DType dtype, plain;
  const char *name, *codec;
  const CompanionFormat* companion;
};
template <class... Formats>
constexpr auto as_data_of_packed(format::List<Formats...>) {
  return std::array{PackedFormat{Formats::kDType, Formats::Plain::kDType, Formats::kName,
                                 Formats::kCodec, &kCompanionOf<Formats>}...};
}
inline constexpr auto kPackedFormats = as_data_of_packed(PackedFormats());

/// Null for a dtype that is not packed.
constexpr const PackedFormat* find_packed_format(DType dtype) {
  for (const PackedFormat& f : kPackedFormats)
    if (f.dtype == dtype) return &f;
  return nullptr;
}
constexpr bool is_packed(DType dtype) { return find_packed_format(dtype) != nullptr; }

/// The companion of a packed matrix whose rows take `row_bytes` bytes each.
Companion companion_of_rows(const PackedFormat& format, std::span<const std::size_t> row_bytes,
                            std::int64_t columns);

/// The bits of a row's weights in its plain format, those that decode_group() gives. Shapes: row
/// and out [columns]. Throws Error for a dtype that is not packed.
void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint16_t> out);
/// The weights of a row of any format as f32. Throws Error as dequantize_row() does.
void row_as_f32(DType dtype, const StoredRow& row, std::span<float> out);

}  // namespace canopy
