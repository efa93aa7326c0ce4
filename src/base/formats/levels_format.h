#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/formats/packed_rows.h"

namespace canopy::format {

/// Exponents of `exponent_bits` bits in levels. A row is that of PackedBlocks with two bits of
/// code: code c < 3 stands for the exponent base + c, code 3 for an open one. A block's tail is
///   for each level {bits}: a bit for each weight that all levels before left open, in the order of
///     their places, group after group, without gaps between groups and levels: 0 means the
///     exponent base + step(3 + level), 1 that it is open still;
///   from the next byte on the exceptions {u8 or u4 exponent}: of the weights still open then,
///   those
///     of each group from a whole byte on, of two in a byte the first in its lower half.
/// Exponents are counted modulo 2^exponent_bits. `Format` has step().
template <class Format, class Blocks, int levels, int exponent_bits>
struct ExponentLevels : Blocks {
  using Block = typename Blocks::Block;
  template <class Word>
  using Codes = typename Blocks::template Codes<Word>;
  static constexpr int kLevels = levels, kExponentBits = exponent_bits, kOpen = 3;

  CANOPY_HOST_DEVICE static constexpr std::uint32_t exponent(int base, std::uint32_t code) {
    return static_cast<std::uint32_t>(base + Format::step(static_cast<int>(code))) &
           ((1u << exponent_bits) - 1);
  }
  /// Bytes of a group's exceptions.
  CANOPY_HOST_DEVICE static constexpr std::size_t exception_bytes(int exceptions) {
    return (static_cast<std::size_t>(exceptions) * exponent_bits + 7) / 8;
  }

  CANOPY_HOST_DEVICE static constexpr std::size_t most_bytes(std::int64_t columns) {
    const auto weights = static_cast<std::size_t>(columns);
    const std::size_t bits =
        (weights * levels + 7) / 8 + static_cast<std::size_t>(Blocks::blocks(columns));
    const std::size_t exceptions =
        exponent_bits == 8 ? weights
                           : weights / 2 + static_cast<std::size_t>(Blocks::groups(columns));
    return (Blocks::fixed_bytes(columns) + bits + exceptions + kPackedAlignment - 1) /
           kPackedAlignment * kPackedAlignment;
  }

  /// The codes of weights whose code of two bits is {low, high}; open[l]: which are open after
  /// level l. Of a group's words, or the same part of each.
  template <class Word>
  CANOPY_HOST_DEVICE static Codes<Word> codes_of(Word low, Word high, const Word (&open)[levels]) {
    const auto closed = static_cast<Word>(~open[0]);  // by code 0 to 2, or by level 0, which is 3
    if constexpr (levels == 2) {
      return {{static_cast<Word>(low & closed), static_cast<Word>(high & closed), open[0]},
              open[1]};
    } else {
      static_assert(levels == 5);
      const auto at_2 = static_cast<Word>(open[1] & ~open[2]);
      return {{static_cast<Word>((low & closed) | at_2 | open[3]),
               static_cast<Word>((high & closed) | open[2]), open[0]},
              open[4]};
    }
  }

  /// Gives `codes` those of the block's groups. Returns the first of its exceptions, null if the
  /// block is not sound.
  static const std::byte* read_codes(const Block& block,
                                     Codes<std::uint64_t> (&codes)[Blocks::kBlockGroups]);
};

/// BF16 by exponents in levels: fewer bits than PackedBF16, and more work.
struct LevelsBF16 : ExponentLevels<LevelsBF16, Bf16Blocks<LevelsBF16, 2>, 5, 8> {
  static constexpr DType kDType = DType::kLevelsBF16;
  static constexpr const char *kName = "packed BF16 in levels", *kCodec = "bf16-levels-512";

  /// Codes 3 to 7 are those of the levels.
  CANOPY_HOST_DEVICE static constexpr int step(int code) {
    return code < kOpen ? code : code == 3 ? -1 : code == 4 ? 3 : 3 - code;
  }

  /// Defines the format, a bit at a time.
  static void decode_group(const StoredRow& row, std::int64_t group, std::uint16_t* out);
};

}  // namespace canopy::format
