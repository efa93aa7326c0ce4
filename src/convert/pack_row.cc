#include "src/convert/pack_row.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "src/base/error.h"

namespace canopy {

namespace {

using Format = format::PackedBF16;

constexpr int kExponents = 256;

int exponent_of(std::uint16_t bits) { return bits >> 7 & 0xff; }

/// The lowest exponent of the window that holds most of them.
int best_base(std::span<const std::uint16_t> block) {
  std::array<std::uint16_t, kExponents> seen{};
  for (const std::uint16_t bits : block) ++seen[static_cast<std::size_t>(exponent_of(bits))];
  int inside = 0;
  for (int e = 0; e < Format::kCodes; ++e) inside += seen[static_cast<std::size_t>(e)];
  int best = 0, most = inside;
  for (int base = 1; base <= Format::kHighestBase; ++base) {
    inside += seen[static_cast<std::size_t>(base + Format::kCodes - 1)] -
              seen[static_cast<std::size_t>(base - 1)];
    if (inside > most) best = base, most = inside;
  }
  return best;
}

/// Writes up to kGroupColumns weights; appends the exponents outside of the window.
void pack_group(std::span<const std::uint16_t> weights, int base, std::byte* to,
                std::vector<std::byte>& exceptions) {
  std::array<std::uint64_t, 3> planes{};
  for (std::size_t p = 0; p < Format::kGroupColumns; ++p) {
    const auto i = static_cast<std::size_t>(Format::weight_at(static_cast<int>(p)));
    if (i >= weights.size()) continue;
    const int exponent = exponent_of(weights[i]);
    auto code = static_cast<std::uint64_t>(exponent - base);  // huge below the base
    if (code >= Format::kCodes) {
      code = Format::kCodes;
      exceptions.push_back(static_cast<std::byte>(exponent));
    }
    for (std::size_t bit = 0; bit < planes.size(); ++bit) planes[bit] |= (code >> bit & 1) << p;
    to[Format::kCodeBytes + p] =
        static_cast<std::byte>((weights[i] >> 8 & 0x80) | (weights[i] & 0x7f));
  }
  std::memcpy(to, planes.data(), sizeof planes);
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
