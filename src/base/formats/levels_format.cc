#include "src/base/formats/levels_format.h"

#include <algorithm>
#include <array>

#include "src/base/formats/levels_fp8_format.h"

namespace canopy::format {

namespace {

using Word = std::uint64_t;
constexpr std::size_t kBlockColumns = LevelsBF16::kBlockColumns;

/// Gives the ones of `mask`, from the lowest on, the values of as many bits.
Word deposit(Word bits, Word mask) {
  Word out = 0;
  for (; mask != 0; mask &= mask - 1, bits >>= 1)
    if ((bits & 1) != 0) out |= mask & -mask;
  return out;
}

/// Bits [at, at + count) of a tail that has them, count at most 64.
Word bits_of(const std::byte* tail, std::size_t at, int count) {
  Word bits = 0;
  const std::size_t end = at + static_cast<std::size_t>(count);
  for (std::size_t byte = at / 8; byte * 8 < end; ++byte) {
    const auto value = std::to_integer<Word>(tail[byte]);
    bits |= byte * 8 >= at ? value << (byte * 8 - at) : value >> (at - byte * 8);
  }
  return bits;
}

/// The exponents of a block, by places, group after group. False if it is not sound.
template <class Format>
bool exponents_of(const typename Format::Block& block,
                  std::array<std::uint8_t, kBlockColumns>& out) {
  std::array<bool, kBlockColumns> open{};
  const auto weights = static_cast<std::size_t>(block.groups * Format::kGroupColumns);
  const auto close = [&](std::size_t i, std::uint32_t code) {
    open[i] = code == Format::kOpen;
    out[i] = static_cast<std::uint8_t>(Format::exponent(block.base, code));
  };
  for (std::size_t i = 0; i < weights; ++i) {
    const std::byte* const group = block.group + i / 64 * Format::kGroupBytes;
    const auto bit = [&](int plane) {
      return static_cast<std::uint32_t>(load_u64(group + 8 * plane) >> i % 64 & 1);
    };
    close(i, bit(0) + 2 * bit(1));
  }
  std::size_t bit = 0;
  for (int level = 0; level < Format::kLevels; ++level)
    for (std::size_t i = 0; i < weights; ++i) {
      if (!open[i]) continue;
      if (bit == 8 * block.tail_bytes) return false;
      if ((block.tail[bit / 8] >> static_cast<int>(bit % 8) & std::byte{1}) == std::byte{0}) {
        open[i] = false;
        out[i] = static_cast<std::uint8_t>(
            Format::exponent(block.base, static_cast<std::uint32_t>(3 + level)));
      }
      ++bit;
    }
  constexpr std::size_t kBits = Format::kExponentBits;
  for (std::size_t i = 0; i < weights; ++i) {
    if (i % 64 == 0) bit = (bit + 7) / 8 * 8;
    if (!open[i]) continue;
    if (bit + kBits > 8 * block.tail_bytes) return false;
    out[i] = static_cast<std::uint8_t>(std::to_integer<int>(block.tail[bit / 8]) >> bit % 8 &
                                       ((1 << kBits) - 1));
    bit += kBits;
  }
  return block.sound && Format::fills_tail(block, (bit + 7) / 8);
}

}  // namespace

template <class Format, class Blocks, int levels, int exponent_bits>
const std::byte* ExponentLevels<Format, Blocks, levels, exponent_bits>::read_codes(
    const Block& block, Codes<Word> (&codes)[Blocks::kBlockGroups]) {
  constexpr int kGroups = Blocks::kBlockGroups;
  Word low[kGroups] = {}, high[kGroups] = {}, before[kGroups] = {};
  Word open[kGroups][levels];
  for (int g = 0; g < block.groups; ++g) {
    low[g] = load_u64(block.group + g * Blocks::kGroupBytes);
    high[g] = load_u64(block.group + g * Blocks::kGroupBytes + 8);
    before[g] = low[g] & high[g];
  }
  std::size_t bit = 0;
  for (int level = 0; level < levels; ++level) {
    std::size_t all_open = 0;
    for (const Word mask : before) all_open += static_cast<std::size_t>(count_ones(mask));
    if (bit + all_open > 8 * block.tail_bytes) return nullptr;
    for (int g = 0; g < kGroups; ++g) {
      const int count = count_ones(before[g]);
      open[g][level] = deposit(bits_of(block.tail, bit, count), before[g]);
      bit += static_cast<std::size_t>(count);
      before[g] = open[g][level];
    }
  }
  std::size_t exceptions = 0;
  for (int g = 0; g < kGroups; ++g) {
    codes[g] = ExponentLevels::codes_of(low[g], high[g], open[g]);
    exceptions += exception_bytes(count_ones(before[g]));
  }
  const std::size_t bytes = (bit + 7) / 8;
  return block.sound && Blocks::fills_tail(block, bytes + exceptions) ? block.tail + bytes
                                                                      : nullptr;
}

void LevelsBF16::decode_group(const StoredRow& row, std::int64_t group, std::uint16_t* out) {
  const Block b = block(row, group / kBlockGroups);
  std::array<std::uint8_t, canopy::format::kBlockColumns> exponents{};
  if (!exponents_of<LevelsBF16>(b, exponents)) {
    std::fill_n(out, kGroupColumns, kNotANumber);
    return;
  }
  const auto within = static_cast<std::size_t>(group % kBlockGroups);
  const std::byte* const rest =
      b.group + within * std::size_t{kGroupBytes} + std::size_t{kCodeBytes};
  for (int p = 0; p < kGroupColumns; ++p) {
    const auto bits = std::to_integer<int>(rest[p]);
    const int exponent =
        exponents[within * std::size_t{kGroupColumns} + static_cast<std::size_t>(p)];
    out[weight_at(p)] =
        static_cast<std::uint16_t>((bits & 0x80) << 8 | exponent << 7 | (bits & 0x7f));
  }
}

template <class Format, class Scaled>
void LevelsE4M3<Format, Scaled>::decode_group(const StoredRow& row, std::int64_t group,
                                              std::uint8_t* out) {
  const auto b = block(row, group / Blocks::kBlockGroups);
  std::array<std::uint8_t, canopy::format::kBlockColumns> exponents{};
  if (!exponents_of<Format>(b, exponents)) {
    std::fill_n(out, Blocks::kGroupColumns, kNotANumber);
    return;
  }
  const auto within = static_cast<std::size_t>(group % Blocks::kBlockGroups);
  const std::byte* const from = b.group + within * std::size_t{Blocks::kGroupBytes};
  for (std::size_t i = 0; i < std::size_t{Blocks::kGroupColumns}; ++i)
    out[i] = static_cast<std::uint8_t>(rest(from, static_cast<int>(i)) |
                                       exponents[within * Blocks::kGroupColumns + i] << 3);
}

template struct ExponentLevels<LevelsBF16, Bf16Blocks<LevelsBF16, 2>, 5, 8>;
template struct ExponentLevels<LevelsE4M3Blocks, PackedBlocks<2, 32>, 2, 4>;
template struct ExponentLevels<LevelsE4M3Rows, PackedBlocks<2, 32>, 2, 4>;
template struct LevelsE4M3<LevelsE4M3Blocks, E4M3Blocks>;
template struct LevelsE4M3<LevelsE4M3Rows, E4M3Rows>;

}  // namespace canopy::format
