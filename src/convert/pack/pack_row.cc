#include "src/convert/pack/pack_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "src/base/error.h"

namespace canopy {

namespace {

using Window = format::PackedBF16;
using Levels = format::LevelsBF16;
using Fp8Levels = format::LevelsE4M3Rows;  // and by blocks, whose rows are the same
using Tails = std::vector<std::byte>;      // of the blocks of a row

constexpr int kExponents = 256;
constexpr std::size_t kGroupColumns = 64;
constexpr int kFp8Exponents = 16;
constexpr std::size_t kBytesOfWord = sizeof(std::uint64_t);
constexpr std::size_t kTurns = 4;
constexpr std::size_t kTogether = 8;  // weights of a group whose places follow one another

std::uint8_t exponent_of(std::uint16_t bits) { return static_cast<std::uint8_t>(bits >> 7); }
std::uint8_t exponent_of(std::uint8_t code) { return code >> 3 & (kFp8Exponents - 1); }

/// Counts of each exponent in a block.
class Exponents {
 public:
  explicit Exponents(std::span<const std::uint16_t> block) {
    std::uint8_t lowest = kExponents - 1, highest = 0;  // a loop that becomes whole vectors
    for (const std::uint16_t bits : block) {
      lowest = std::min(lowest, exponent_of(bits));
      highest = std::max(highest, exponent_of(bits));
    }
    lowest_ = lowest;
    highest_ = highest;
    // Neighbours are often equal, and a count waits for the same count before it: four take turns.
    std::array<std::array<std::uint16_t, kExponents>, kTurns> seen{};
    std::size_t i = 0;
    for (; i + kTurns <= block.size(); i += kTurns)
      for (std::size_t turn = 0; turn < kTurns; ++turn) ++seen[turn][exponent_of(block[i + turn])];
    for (; i < block.size(); ++i) ++seen[0][exponent_of(block[i])];
    for (std::size_t e = lowest; e <= highest; ++e)
      count_[kMargin + e] = seen[0][e] + seen[1][e] + seen[2][e] + seen[3][e];
  }
  int lowest() const { return lowest_; }
  int highest() const { return highest_; }
  /// The count of an exponent, as far as kMargin outside of those that there are.
  int count(int exponent) const { return count_[static_cast<std::size_t>(kMargin + exponent)]; }

 private:
  static constexpr int kMargin = 8;
  int lowest_ = 0, highest_ = 0;
  std::array<int, kExponents + 2 * kMargin> count_{};
};

/// The lowest exponent of the window that holds most of them.
int best_base(Window, const Exponents& exponents) {
  int base = std::clamp(exponents.lowest() - (Window::kCodes - 1), 0, Window::kHighestBase);
  int inside = 0;
  for (int e = base; e < base + Window::kCodes; ++e) inside += exponents.count(e);
  int best = base, most = inside;
  while (base < std::min(exponents.highest(), Window::kHighestBase)) {
    inside += exponents.count(base + Window::kCodes) - exponents.count(base);
    if (++base, inside > most) best = base, most = inside;
  }
  return best;
}

/// The base with which the levels and exceptions of `weights` weights take the fewest bits.
int best_base(Levels, const Exponents& exponents, int weights) {
  int best = 0, fewest = std::numeric_limits<int>::max();
  for (int base = std::max(exponents.lowest() - Levels::step(4), 0);
       base <= std::min(exponents.highest() + 4, kExponents - 1); ++base) {
    int open = weights, bits = 0;
    for (int code = 0; code < Levels::kOpen + Levels::kLevels; ++code) {
      if (code >= Levels::kOpen) bits += open;
      open -= exponents.count(base + Levels::step(code));
    }
    bits += 8 * open;
    if (bits < fewest) best = base, fewest = bits;
  }
  return best;
}

/// The same of FP8, whose exponents are counted modulo 16.
int best_base(Fp8Levels, std::span<const std::uint8_t> block) {
  std::array<int, kFp8Exponents> count{};
  for (const std::uint8_t code : block) ++count[exponent_of(code)];
  int best = 0, fewest = std::numeric_limits<int>::max();
  for (int base = 0; base < kFp8Exponents; ++base) {
    int open = static_cast<int>(block.size()), bits = 0;
    for (std::uint32_t code = 0; code < Fp8Levels::kOpen + Fp8Levels::kLevels; ++code) {
      if (code >= Fp8Levels::kOpen) bits += open;
      open -= count[Fp8Levels::exponent(base, code)];
    }
    bits += Fp8Levels::kExponentBits * open;
    if (bits < fewest) best = base, fewest = bits;
  }
  return best;
}

/// Byte i's bit `bit` as bit i, of eight bytes.
std::uint64_t bit_of_each(std::uint64_t bytes, std::size_t bit) {
  // The product puts the lowest bit of byte i at bit 56 + i, and nothing is carried into those.
  return (bytes >> bit & 0x0101010101010101u) * 0x0102040810204080u >> 56;
}

using Group = std::array<std::uint16_t, kGroupColumns>;
/// Up to kGroupColumns weights by place, as whole vectors: columns past the last have code 0 and
/// rest 0.
template <class Format>
Group placed(std::span<const std::uint16_t> weights, int base) {
  Group group;
  group.fill(static_cast<std::uint16_t>(base << 7));
  for (std::size_t i = 0; i < weights.size(); i += kTogether)
    std::copy_n(&weights[i], std::min(kTogether, weights.size() - i),
                &group[static_cast<std::size_t>(Format::place(static_cast<int>(i)))]);
  return group;
}

/// Writes the planes of a group's codes. Returns which have all bits.
template <std::size_t planes>
std::uint64_t write_codes(const std::array<std::uint8_t, kGroupColumns>& code, std::byte* to) {
  std::array<std::uint64_t, planes> plane{};
  for (std::size_t p = 0; p < code.size(); p += kBytesOfWord) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, &code[p], sizeof eight);
    for (std::size_t bit = 0; bit < planes; ++bit) plane[bit] |= bit_of_each(eight, bit) << p;
  }
  std::memcpy(to, plane.data(), sizeof plane);
  std::uint64_t all = ~std::uint64_t{0};
  for (const std::uint64_t bits : plane) all &= bits;
  return all;
}

/// Writes a group, whose exponents from `codes` above the base on have code `codes`. Returns which
/// these are.
template <class Format, std::size_t planes>
std::uint64_t write_group(const Group& group, int base, std::uint8_t codes, std::byte* to) {
  std::array<std::uint8_t, kGroupColumns> code;
  for (std::size_t p = 0; p < group.size(); ++p) {
    const auto above = static_cast<std::uint8_t>(exponent_of(group[p]) - base);  // huge if below
    code[p] = std::min(above, codes);
    to[Format::kCodeBytes + p] = static_cast<std::byte>((group[p] >> 8 & 0x80) | (group[p] & 0x7f));
  }
  return write_codes<planes>(code, to);
}

/// Calls take(exponent) for the weights of a group that `mask` has.
template <class Take>
void for_exponents(const Group& group, std::uint64_t mask, const Take& take) {
  for (; mask != 0; mask &= mask - 1)
    take(exponent_of(group[static_cast<std::size_t>(std::countr_zero(mask))]));
}

/// Writes a block's groups to `to`, and appends its tail. Returns its base.
int pack_block(Window format, std::span<const std::uint16_t> block, std::byte* to, Tails& tails) {
  const int base = best_base(format, Exponents(block));
  for (std::size_t g = 0; g < block.size(); g += kGroupColumns, to += Window::kGroupBytes) {
    const Group group =
        placed<Window>(block.subspan(g, std::min(kGroupColumns, block.size() - g)), base);
    for_exponents(group, write_group<Window, 3>(group, base, Window::kCodes, to),
                  [&](std::uint8_t e) { tails.push_back(std::byte{e}); });
  }
  return base;
}

/// Appends the levels of what is open, exponents in the order of their groups and places, and
/// leaves those that the last one leaves open.
template <class Format>
void append_levels(Format, int base, std::vector<std::uint8_t>& open, Tails& tails) {
  std::size_t bit = 0;
  for (std::uint32_t code = Format::kOpen; code < Format::kOpen + Format::kLevels; ++code) {
    const std::uint32_t closed = Format::exponent(base, code);
    for (const std::uint8_t e : open) {
      if (bit % 8 == 0) tails.push_back(std::byte{0});
      if (e != closed) tails.back() |= std::byte{1} << bit % 8;
      ++bit;
    }
    std::erase(open, closed);
  }
}

int pack_block(Levels format, std::span<const std::uint16_t> block, std::byte* to, Tails& tails) {
  const int base = best_base(format, Exponents(block), static_cast<int>(block.size()));
  std::vector<std::uint8_t> open;
  for (std::size_t g = 0; g < block.size(); g += kGroupColumns, to += Levels::kGroupBytes) {
    const Group group =
        placed<Levels>(block.subspan(g, std::min(kGroupColumns, block.size() - g)), base);
    for_exponents(group, write_group<Levels, 2>(group, base, Levels::kOpen, to),
                  [&](std::uint8_t e) { open.push_back(e); });
  }
  append_levels(format, base, open, tails);
  for (const std::uint8_t e : open) tails.push_back(std::byte{e});
  return base;
}

int pack_block(Fp8Levels format, std::span<const std::uint8_t> block, std::byte* to, Tails& tails) {
  const int base = best_base(format, block);
  std::vector<std::uint8_t> open;
  for (std::size_t g = 0; g < block.size(); g += kGroupColumns, to += Fp8Levels::kGroupBytes) {
    std::array<std::uint8_t, kGroupColumns> code{};
    for (std::size_t i = 0; i < std::min(kGroupColumns, block.size() - g); ++i) {
      const std::uint8_t weight = block[g + i], exponent = exponent_of(weight);
      code[i] = std::min<std::uint8_t>((exponent - base) & (kFp8Exponents - 1), Fp8Levels::kOpen);
      if (code[i] == Fp8Levels::kOpen) open.push_back(exponent);
      const int rest = (weight >> 4 & 8) | (weight & 7);
      to[Fp8Levels::kCodeBytes + i % 32] |= static_cast<std::byte>(i < 32 ? rest : rest << 4);
    }
    write_codes<2>(code, to);
  }
  append_levels(format, base, open, tails);
  // The same exponents again, as each group's begin at a byte.
  const auto is_exception = [&](std::uint8_t weight) {
    return std::ranges::find(open, exponent_of(weight)) != open.end();
  };
  for (std::size_t g = 0; g < block.size(); g += kGroupColumns) {
    bool high = false;
    for (const std::uint8_t weight : block.subspan(g, std::min(kGroupColumns, block.size() - g))) {
      if (!is_exception(weight)) continue;
      const auto nibble = static_cast<std::byte>(exponent_of(weight));
      if (high)
        tails.back() |= nibble << 4;
      else
        tails.push_back(nibble);
      high = !high;
    }
  }
  return base;
}

template <class Format>
bool pack(Format format, std::span<const typename Format::Plain::Element> row,
          std::vector<std::byte>& out) {
  const std::int64_t columns = std::ssize(row);
  const std::size_t begin = out.size();
  require(begin % kPackedAlignment == 0, "a packed row begins at a multiple of its alignment");
  out.resize(begin + Format::fixed_bytes(columns));
  Tails tails;
  tails.reserve(row.size() / 8);
  std::size_t header = begin, group = begin + static_cast<std::size_t>(Format::kHeaderBytes *
                                                                       Format::blocks(columns));
  for (std::size_t k = 0; k < row.size(); k += Format::kBlockColumns) {
    const auto block = row.subspan(k, std::min<std::size_t>(Format::kBlockColumns, row.size() - k));
    const auto first = static_cast<std::uint16_t>(tails.size());
    out[header] = static_cast<std::byte>(pack_block(format, block, &out[group], tails));
    std::memcpy(&out[header + 2], &first, sizeof first);
    header += Format::kHeaderBytes;
    group += Format::kBlockGroups * Format::kGroupBytes;
    if (tails.size() > std::numeric_limits<std::uint16_t>::max()) {
      out.resize(begin);
      return false;
    }
  }
  out.insert(out.end(), tails.begin(), tails.end());
  out.resize((out.size() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment);
  return true;
}

}  // namespace

bool pack_row(Window format, std::span<const std::uint16_t> row, std::vector<std::byte>& out) {
  return pack(format, row, out);
}
bool pack_row(Levels format, std::span<const std::uint16_t> row, std::vector<std::byte>& out) {
  return pack(format, row, out);
}
bool pack_row(format::LevelsE4M3Blocks, std::span<const std::uint8_t> row,
              std::vector<std::byte>& out) {
  return pack(Fp8Levels(), row, out);
}
bool pack_row(format::LevelsE4M3Rows, std::span<const std::uint8_t> row,
              std::vector<std::byte>& out) {
  return pack(Fp8Levels(), row, out);
}

}  // namespace canopy
