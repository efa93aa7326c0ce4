#include "src/base/formats/packed_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace canopy {

namespace {

/// Bit i of `bits`, which has eight, as the lowest bit of byte i.
std::uint64_t byte_of_each(std::uint64_t bits) {
  // Byte i keeps bit i alone, and the sum carries it to the highest bit, but never out of the byte.
  const std::uint64_t own = bits * 0x0101010101010101u & 0x8040201008040201u;
  return (own + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/// Writes what decode_group() does, from a sound block, eight places at a time. Returns where the
/// exceptions of the next group begin.
const std::byte* decode_in_words(const std::byte* group, int base, const std::byte* exceptions,
                                 std::uint16_t* out) {
  using Format = format::PackedBF16;
  constexpr int kEight = 8;  // weights of a group whose places follow one another
  const std::uint64_t planes[] = {format::load_u64(group), format::load_u64(group + 8),
                                  format::load_u64(group + 16)};
  std::array<std::uint8_t, Format::kGroupColumns> exponents;
  for (int p = 0; p < Format::kGroupColumns; p += kEight) {
    std::uint64_t codes = 0;
    for (int bit = 0; bit < 3; ++bit) codes |= byte_of_each(planes[bit] >> p & 0xff) << bit;
    std::memcpy(&exponents[static_cast<std::size_t>(p)], &codes, sizeof codes);
  }
  for (std::uint8_t& exponent : exponents) exponent = static_cast<std::uint8_t>(exponent + base);
  for (std::uint64_t left = Format::exceptions_in(group); left != 0; left &= left - 1)
    exponents[static_cast<std::size_t>(std::countr_zero(left))] =
        static_cast<std::uint8_t>(*exceptions++);
  std::array<std::uint16_t, Format::kGroupColumns> placed;  // a loop that becomes whole vectors
  for (std::size_t p = 0; p < placed.size(); ++p) {
    const int rest = static_cast<int>(group[static_cast<std::size_t>(Format::kCodeBytes) + p]);
    placed[p] = static_cast<std::uint16_t>((rest & 0x80) << 8 | exponents[p] << 7 | (rest & 0x7f));
  }
  for (int p = 0; p < Format::kGroupColumns; p += kEight)
    std::memcpy(out + Format::weight_at(p), &placed[static_cast<std::size_t>(p)],
                kEight * sizeof placed[0]);
  return exceptions;
}

/// Calls take(first, weights of a group) for all groups of the row.
template <class Take>
void for_each_group(format::PackedBF16, const StoredRow& row, const Take& take) {
  using Format = format::PackedBF16;
  std::array<std::uint16_t, Format::kGroupColumns> group;
  for (std::int64_t index = 0; index < Format::blocks(row.columns); ++index) {
    const Format::Block block = Format::block(row, index);
    const std::byte* exceptions = block.exceptions;
    if (!block.sound) group.fill(Format::kNotANumber);
    for (int g = 0; g < block.groups; ++g) {
      if (block.sound)
        exceptions = decode_in_words(block.group + g * Format::kGroupBytes, block.base, exceptions,
                                     group.data());
      const std::int64_t first = index * Format::kBlockColumns + g * Format::kGroupColumns;
      const auto count = std::min<std::int64_t>(Format::kGroupColumns, row.columns - first);
      take(static_cast<std::size_t>(first),
           std::span(group).first(static_cast<std::size_t>(count)));
    }
  }
}

void check_columns(const StoredRow& row, std::size_t columns) {
  require(static_cast<std::size_t>(row.columns) == columns,
          "a packed row is unpacked to as many weights as it has");
}

}  // namespace

void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint16_t> out) {
  check_columns(row, out.size());
  visit_format(PackedFormats(), dtype, [&]<class Format>(Format format) {
    for_each_group(format, row, [&](std::size_t first, auto group) {
      std::ranges::copy(group, out.begin() + static_cast<std::ptrdiff_t>(first));
    });
  });
}

void row_as_f32(DType dtype, const StoredRow& row, std::span<float> out) {
  check_columns(row, out.size());
  if (!is_packed(dtype)) return dequantize_row(dtype, row.data, out);
  visit_format(PackedFormats(), dtype, [&]<class Format>(Format format) {
    for_each_group(format, row, [&](std::size_t first, auto group) {
      for (std::size_t i = 0; i < group.size(); ++i)
        out[first + i] = Format::Plain::decode(reinterpret_cast<const std::byte*>(&group[i]), 0);
    });
  });
}

}  // namespace canopy
