#include "src/base/formats/levels_format.h"

#include <algorithm>
#include <array>

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
bool exponents_of(const LevelsBF16::Block& block, std::array<std::uint8_t, kBlockColumns>& out) {
  std::array<bool, kBlockColumns> open{};
  const auto weights = static_cast<std::size_t>(block.groups * LevelsBF16::kGroupColumns);
  const auto close = [&](std::size_t i, std::uint32_t code) {
    open[i] = code == LevelsBF16::kOpen;
    out[i] = static_cast<std::uint8_t>(LevelsBF16::exponent(block.base, code));
  };
  for (std::size_t i = 0; i < weights; ++i) {
    const std::byte* const group = block.group + i / 64 * LevelsBF16::kGroupBytes;
    const auto bit = [&](int plane) {
      return static_cast<std::uint32_t>(load_u64(group + 8 * plane) >> i % 64 & 1);
    };
    close(i, bit(0) + 2 * bit(1));
  }
  std::size_t bit = 0;
  for (int level = 0; level < LevelsBF16::kLevels; ++level)
    for (std::size_t i = 0; i < weights; ++i) {
      if (!open[i]) continue;
      if (bit == 8 * block.tail_bytes) return false;
      if ((block.tail[bit / 8] >> static_cast<int>(bit % 8) & std::byte{1}) == std::byte{0}) {
        open[i] = false;
        out[i] = static_cast<std::uint8_t>(
            LevelsBF16::exponent(block.base, static_cast<std::uint32_t>(3 + level)));
      }
      ++bit;
    }
  std::size_t at = (bit + 7) / 8;
  for (std::size_t i = 0; i < weights; ++i) {
    if (!open[i]) continue;
    if (at == block.tail_bytes) return false;
    out[i] = std::to_integer<std::uint8_t>(block.tail[at++]);
  }
  return block.sound && LevelsBF16::fills_tail(block, at);
}

}  // namespace

const std::byte* LevelsBF16::read_codes(const Block& block, Codes<Word> (&codes)[kBlockGroups]) {
  Word low[kBlockGroups] = {}, high[kBlockGroups] = {}, before[kBlockGroups] = {};
  Word open[kBlockGroups][kLevels];
  for (int g = 0; g < block.groups; ++g) {
    low[g] = load_u64(block.group + g * kGroupBytes);
    high[g] = load_u64(block.group + g * kGroupBytes + 8);
    before[g] = low[g] & high[g];
  }
  std::size_t bit = 0;
  const auto all_open = [&] {
    std::size_t count = 0;
    for (const Word mask : before) count += static_cast<std::size_t>(count_ones(mask));
    return count;
  };
  for (int level = 0; level < kLevels; ++level) {
    if (bit + all_open() > 8 * block.tail_bytes) return nullptr;
    for (int g = 0; g < kBlockGroups; ++g) {
      const int count = count_ones(before[g]);
      open[g][level] = deposit(bits_of(block.tail, bit, count), before[g]);
      bit += static_cast<std::size_t>(count);
      before[g] = open[g][level];
    }
  }
  for (int g = 0; g < kBlockGroups; ++g) codes[g] = codes_of(low[g], high[g], open[g]);
  const std::size_t levels = (bit + 7) / 8;
  return block.sound && fills_tail(block, levels + all_open()) ? block.tail + levels : nullptr;
}

void LevelsBF16::decode_group(const StoredRow& row, std::int64_t group, std::uint16_t* out) {
  const Block b = block(row, group / kBlockGroups);
  std::array<std::uint8_t, canopy::format::kBlockColumns> exponents{};
  if (!exponents_of(b, exponents)) {
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

}  // namespace canopy::format
