#include "src/convert/pack/pack_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "src/base/error.h"

namespace canopy {

namespace {

using Format = format::PackedBF16;

constexpr std::size_t kExponents = 256;
constexpr std::size_t kBytesOfWord = sizeof(std::uint64_t);
constexpr std::size_t kTurns = 4;
constexpr std::size_t kTogether = 8;  // weights of a group whose places follow one another

std::uint8_t exponent_of(std::uint16_t bits) { return static_cast<std::uint8_t>(bits >> 7); }

/// The lowest exponent of the window that holds most of them.
int best_base(std::span<const std::uint16_t> block) {
  std::uint8_t lowest = kExponents - 1, highest = 0;  // a loop that becomes whole vectors
  for (const std::uint16_t bits : block) {
    lowest = std::min(lowest, exponent_of(bits));
    highest = std::max(highest, exponent_of(bits));
  }
  // Neighbours are often equal, and a count waits for the same count before it: four take turns.
  std::array<std::array<std::uint16_t, kExponents>, kTurns> seen{};
  std::size_t i = 0;
  for (; i + kTurns <= block.size(); i += kTurns)
    for (std::size_t turn = 0; turn < kTurns; ++turn) ++seen[turn][exponent_of(block[i + turn])];
  for (; i < block.size(); ++i) ++seen[0][exponent_of(block[i])];
  const auto count = [&](int e) {
    const auto at = static_cast<std::size_t>(e);
    return seen[0][at] + seen[1][at] + seen[2][at] + seen[3][at];
  };
  int base = std::clamp(static_cast<int>(lowest) - (Format::kCodes - 1), 0, Format::kHighestBase);
  int inside = 0;
  for (int e = base; e < base + Format::kCodes; ++e) inside += count(e);
  int best = base, most = inside;
  while (base < std::min(static_cast<int>(highest), Format::kHighestBase)) {
    inside += count(base + Format::kCodes) - count(base);
    if (++base, inside > most) best = base, most = inside;
  }
  return best;
}

/// Byte i's bit `bit` as bit i, of eight bytes.
std::uint64_t bit_of_each(std::uint64_t bytes, std::size_t bit) {
  // The product puts the lowest bit of byte i at bit 56 + i, and nothing is carried into those.
  return (bytes >> bit & 0x0101010101010101u) * 0x0102040810204080u >> 56;
}

/// Writes up to kGroupColumns weights; appends the exponents outside of the window.
void pack_group(std::span<const std::uint16_t> weights, int base, std::byte* to,
                std::vector<std::byte>& exceptions) {
  // By place, as whole vectors: columns past the last have code 0 and rest 0.
  std::array<std::uint16_t, Format::kGroupColumns> placed;
  placed.fill(static_cast<std::uint16_t>(base << 7));
  for (std::size_t i = 0; i < weights.size(); i += kTogether)
    std::copy_n(&weights[i], std::min(kTogether, weights.size() - i),
                &placed[static_cast<std::size_t>(Format::place(static_cast<int>(i)))]);
  std::array<std::uint8_t, Format::kGroupColumns> codes;
  for (std::size_t p = 0; p < placed.size(); ++p) {
    const auto above = static_cast<std::uint8_t>(exponent_of(placed[p]) - base);  // huge if below
    codes[p] = std::min(above, static_cast<std::uint8_t>(Format::kCodes));
    to[Format::kCodeBytes + p] =
        static_cast<std::byte>((placed[p] >> 8 & 0x80) | (placed[p] & 0x7f));
  }
  std::array<std::uint64_t, 3> planes{};
  for (std::size_t p = 0; p < codes.size(); p += kBytesOfWord) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, &codes[p], sizeof eight);
    for (std::size_t bit = 0; bit < planes.size(); ++bit)
      planes[bit] |= bit_of_each(eight, bit) << p;
  }
  std::memcpy(to, planes.data(), sizeof planes);
  for (std::uint64_t left = planes[0] & planes[1] & planes[2]; left != 0; left &= left - 1)
    exceptions.push_back(static_cast<std::byte>(
        exponent_of(placed[static_cast<std::size_t>(std::countr_zero(left))])));
}

}  // namespace

bool pack_row(Format, std::span<const std::uint16_t> row, std::vector<std::byte>& out) {
  const std::int64_t columns = std::ssize(row);
  const std::size_t begin = out.size();
  require(begin % kPackedAlignment == 0, "a packed row begins at a multiple of its alignment");
  out.resize(begin + Format::fixed_bytes(columns));
  std::vector<std::byte> exceptions;
  exceptions.reserve(row.size() / 8);
  std::size_t header = begin, group = begin + static_cast<std::size_t>(Format::kHeaderBytes *
                                                                       Format::blocks(columns));
  for (std::size_t k = 0; k < row.size(); k += Format::kBlockColumns) {
    const auto block = row.subspan(k, std::min<std::size_t>(Format::kBlockColumns, row.size() - k));
    const int base = best_base(block);
    const auto first = static_cast<std::uint16_t>(exceptions.size());
    out[header] = static_cast<std::byte>(base);
    std::memcpy(&out[header + 2], &first, sizeof first);
    header += Format::kHeaderBytes;
    for (std::size_t g = 0; g < block.size(); g += Format::kGroupColumns) {
      pack_group(block.subspan(g, std::min<std::size_t>(Format::kGroupColumns, block.size() - g)),
                 base, &out[group], exceptions);
      group += Format::kGroupBytes;
    }
    if (exceptions.size() > std::numeric_limits<std::uint16_t>::max()) {
      out.resize(begin);
      return false;
    }
  }
  out.insert(out.end(), exceptions.begin(), exceptions.end());
  out.resize((out.size() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment);
  return true;
}

}  // namespace canopy
