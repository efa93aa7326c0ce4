#pragma once
// Rows of packed weights: codes that hold the values of a plain format in fewer bits. Here is what
// such formats share: where rows of different lengths lie, and blocks and groups of weights.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/companion.h"
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

/// Throws Error unless the rows begin at the matrix's first byte, follow one another and have from
/// `least` to `most` bytes each, for `columns` columns.
void check_row_offsets(std::span<const std::byte> companion, std::int64_t rows,
                       std::int64_t columns, std::size_t least, std::size_t most);

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
                              std::int64_t columns) {
    check_row_offsets(companion, rows, columns, Format::fixed_bytes(columns),
                      Format::most_bytes(columns));
  }
};

/// Rows in blocks of 512 columns and groups of 64, with `planes` bits of code for each weight and
/// `rest_bytes` bytes of a group for what codes say nothing of. A row is, in this order,
///   for each block {u8 base; u8 zero; u16 first}: an exponent that its codes count from, and where
///     its tail begins, in bytes from the first one;
///   for each group {u64 code[planes]; u8 rest[rest_bytes]}: bit p of code[i] is bit i of the code
///     of the weight with place p;
///   the tails, block after block: what the codes leave to say;
///   zeros up to a multiple of four bytes.
/// Columns past the last have code 0 and rest 0. A block that contradicts itself is not sound, and
/// its weights are NaN.
template <int planes, int rest_bytes>
struct PackedBlocks {
  static constexpr int kBlockColumns = 512, kGroupColumns = 64;
  static constexpr int kBlockGroups = kBlockColumns / kGroupColumns;
  static constexpr int kHeaderBytes = 4, kCodeBytes = 8 * planes;
  static constexpr int kGroupBytes = kCodeBytes + rest_bytes;

  CANOPY_HOST_DEVICE static constexpr std::int64_t blocks(std::int64_t columns) {
    return (columns + kBlockColumns - 1) / kBlockColumns;
  }
  CANOPY_HOST_DEVICE static constexpr std::int64_t groups(std::int64_t columns) {
    return (columns + kGroupColumns - 1) / kGroupColumns;
  }
  CANOPY_HOST_DEVICE static constexpr std::size_t fixed_bytes(std::int64_t columns) {
    return static_cast<std::size_t>(kHeaderBytes * blocks(columns) + kGroupBytes * groups(columns));
  }
  CANOPY_HOST_DEVICE static const std::byte* group(const StoredRow& row, std::int64_t index) {
    return row.data + blocks(row.columns) * kHeaderBytes + index * kGroupBytes;
  }

  /// A block of a row.
  struct Block {
    const std::byte* group;  // the first of its groups
    const std::byte* tail;
    std::size_t tail_bytes;  // of the row's last block with the zeros that follow
    int groups, base;
    bool last;   // of its row
    bool sound;  // its header is, and its tail lies in the row
  };
  CANOPY_HOST_DEVICE static Block block(const StoredRow& row, std::int64_t index) {
    const std::byte* const header = row.data + index * kHeaderBytes;
    const std::int64_t left = groups(row.columns) - index * kBlockGroups;
    const std::size_t room = row.bytes - fixed_bytes(row.columns);
    const std::size_t first = load<std::uint16_t>(header + 2);
    Block b{};
    b.group = group(row, index * kBlockGroups);
    b.tail = row.data + fixed_bytes(row.columns) + first;
    b.groups = static_cast<int>(left < kBlockGroups ? left : kBlockGroups);
    b.base = static_cast<int>(header[0]);
    b.last = index + 1 == blocks(row.columns);
    const std::size_t end = b.last ? room : load<std::uint16_t>(header + kHeaderBytes + 2);
    b.sound = header[1] == std::byte{0} && first <= end && end <= room;
    b.tail_bytes = b.sound ? end - first : 0;
    return b;
  }
  /// True if a tail of `bytes` bytes is the block's.
  CANOPY_HOST_DEVICE static bool fills_tail(const Block& b, std::size_t bytes) {
    return bytes <= b.tail_bytes && b.tail_bytes - bytes < (b.last ? kPackedAlignment : 1);
  }

  /// Codes of weights by places, of a whole group or a part: bits 0, 1 and 2 of each, and which
  /// have none, as their exponent is a byte of the tail.
  template <class Word>
  struct Codes {
    Word plane[3], exceptions;
  };
};

/// Such rows of BF16: rest[p] is the sign and seven bits of mantissa of the weight with place p.
/// Weight i of a group has the place that lets two interleavings of bytes, 16 by 16, put its
/// exponent next to the rest of it and all weights in order: place().
template <class Format, int planes>
struct Bf16Blocks : RowOffsets<Format>, PackedBlocks<planes, 64> {
  using Plain = BF16;
  using PackedBlocks<planes, 64>::kGroupColumns, PackedBlocks<planes, 64>::kCodeBytes;
  template <class Word>
  using Codes = typename PackedBlocks<planes, 64>::template Codes<Word>;
  static constexpr std::uint16_t kNotANumber = 0x7fff;

  /// Weights 0 to 31 lie in the lower halves of the group's four sixteens, the others in the upper.
  CANOPY_HOST_DEVICE static constexpr int place(int i) {
    return (i & 31) / 8 * 16 + i / 32 * 8 + i % 8;
  }
  CANOPY_HOST_DEVICE static constexpr int weight_at(int place) {
    return place % 16 / 8 * 32 + place / 16 * 8 + place % 8;
  }

  static constexpr int kPlaces = 16, kSixteens = kGroupColumns / kPlaces;
  /// The weights with places 16 s to 16 s + 15 of a group, two in a word, the first in its lower
  /// half. `exception` is the first of these weights'.
  CANOPY_HOST_DEVICE static void decode_sixteen(const std::byte* group, int s,
                                                const Codes<std::uint32_t>& codes, int base,
                                                const std::byte* exception, std::uint32_t* pairs) {
    std::uint32_t rest[4];
    for (int i = 0; i < 4; ++i)
      rest[i] = load<std::uint32_t>(group + kCodeBytes + kPlaces * s + 4 * i);
    const auto weight = [&](int p) {
      const std::uint32_t code = (codes.plane[0] >> p & 1) | (codes.plane[1] >> p & 1) << 1 |
                                 (codes.plane[2] >> p & 1) << 2;
      const std::uint32_t exponent = (codes.exceptions >> p & 1) != 0
                                         ? std::to_integer<std::uint32_t>(*exception++)
                                         : Format::exponent(base, code);
      const std::uint32_t bits = rest[p / 4] >> 8 * (p % 4) & 0xff;
      return (bits & 0x80) << 8 | exponent << 7 | (bits & 0x7f);
    };
    for (int p = 0; p < kPlaces; p += 2) {
      const std::uint32_t first = weight(p);
      pairs[p / 2] = first | weight(p + 1) << 16;
    }
  }
};

}  // namespace format
}  // namespace canopy
