#include "src/base/formats/packed_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
template <class Format>
const std::byte* decode_in_words(const std::byte* group,
                                 const typename Format::template Codes<std::uint64_t>& codes,
                                 int base, const std::byte* exceptions, std::uint16_t* out) {
  constexpr int kEight = 8;  // weights of a group whose places follow one another
  std::array<std::uint8_t, Format::kGroupColumns> exponents;
  for (int p = 0; p < Format::kGroupColumns; p += kEight) {
    std::uint64_t eight = 0;
    for (int bit = 0; bit < 3; ++bit) eight |= byte_of_each(codes.plane[bit] >> p & 0xff) << bit;
    std::memcpy(&exponents[static_cast<std::size_t>(p)], &eight, sizeof eight);
  }
  for (std::uint8_t& exponent : exponents)
    exponent = static_cast<std::uint8_t>(Format::exponent(base, exponent));
  for (std::uint64_t left = codes.exceptions; left != 0; left &= left - 1)
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

/// The same of FP8.
template <class Format>
const std::byte* decode_in_words(const std::byte* group,
                                 const typename Format::template Codes<std::uint64_t>& codes,
                                 int base, const std::byte* exceptions, std::uint8_t* out) {
  for (int i = 0; i < Format::kGroupColumns; ++i) {
    const auto code =
        static_cast<std::uint32_t>((codes.plane[0] >> i & 1) | (codes.plane[1] >> i & 1) << 1 |
                                   (codes.plane[2] >> i & 1) << 2);
    out[i] = static_cast<std::uint8_t>(Format::exponent(base, code) << 3);
  }
  int exception = 0;
  for (std::uint64_t left = codes.exceptions; left != 0; left &= left - 1, ++exception)
    out[std::countr_zero(left)] = static_cast<std::uint8_t>(
        (static_cast<int>(exceptions[exception / 2]) >> exception % 2 * 4 & 15) << 3);
  for (int i = 0; i < Format::kGroupColumns; ++i)
    out[i] = static_cast<std::uint8_t>(out[i] | Format::rest(group, i));
  return exceptions + Format::exception_bytes(exception);
}

/// The codes of a block's groups, as ExponentLevels::read_codes() gives them.
template <class Format>
const std::byte* read_codes(
    const typename Format::Block& block,
    typename Format::template Codes<std::uint64_t> (&codes)[Format::kBlockGroups]) {
  if constexpr (std::is_same_v<Format, format::PackedBF16>) {
    for (int g = 0; g < block.groups; ++g) {
      const std::byte* const from = block.group + g * Format::kGroupBytes;
      codes[g] = {{format::load_u64(from), format::load_u64(from + 8), format::load_u64(from + 16)},
                  Format::exceptions_in(from)};
    }
    return block.sound ? block.tail : nullptr;
  } else {
    return Format::read_codes(block, codes);
  }
}

/// Calls take(first, weights of a group) for all groups of the row.
template <class Format, class Take>
void for_each_group(Format, const StoredRow& row, const Take& take) {
  std::array<typename Format::Plain::Element, Format::kGroupColumns> group;
  for (std::int64_t index = 0; index < Format::blocks(row.columns); ++index) {
    const auto block = Format::block(row, index);
    typename Format::template Codes<std::uint64_t> codes[Format::kBlockGroups];
    const std::byte* exceptions = read_codes<Format>(block, codes);
    const bool sound = exceptions != nullptr;
    if (!sound) group.fill(Format::kNotANumber);
    for (int g = 0; g < block.groups; ++g) {
      if (sound)
        exceptions = decode_in_words<Format>(block.group + g * Format::kGroupBytes, codes[g],
                                             block.base, exceptions, group.data());
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

void format::check_row_offsets(std::span<const std::byte> companion, std::int64_t rows,
                               std::int64_t columns, std::size_t least, std::size_t most) {
  const auto byte_at = [&](std::int64_t row) {
    return std::uint64_t{
               load<RowOffset>(companion.data() + row * std::int64_t{sizeof(RowOffset)})} *
           kPackedAlignment;
  };
  if (byte_at(0) != 0) throw Error("its first row does not begin at its first byte");
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint64_t begin = byte_at(row), end = byte_at(row + 1);
    if (end < begin || end - begin < least || end - begin > most)
      throw Error("row " + std::to_string(row) + " reaches from byte " + std::to_string(begin) +
                  " to " + std::to_string(end) + "; " + std::to_string(columns) + " weights take " +
                  std::to_string(least) + " to " + std::to_string(most) + " bytes");
  }
}

Companion companion_of_rows(const PackedFormat& format, std::span<const std::size_t> row_bytes,
                            std::int64_t columns, std::span<const float> scales) {
  std::vector<RowOffset> offsets{0};
  std::uint64_t end = 0;
  for (const std::size_t bytes : row_bytes) {
    end += bytes;
    require(bytes % kPackedAlignment == 0 &&
                end / kPackedAlignment <= std::numeric_limits<RowOffset>::max(),
            "packed rows end where an offset can say");
    offsets.push_back(static_cast<RowOffset>(end / kPackedAlignment));
  }
  const auto of_offsets = std::as_bytes(std::span(offsets));
  std::vector<std::byte> bytes(of_offsets.begin(), of_offsets.end());
  if (find_fp8_format(format.plain) != nullptr)
    bytes = with_scales(format.dtype, offsets, scales, columns);
  return {*format.companion, std::move(bytes), std::ssize(row_bytes), columns, end};
}

namespace {

template <class Formats, class Element>
void unpack_row_of(Formats formats, DType dtype, const StoredRow& row, std::span<Element> out) {
  check_columns(row, out.size());
  visit_format(formats, dtype, [&]<class Format>(Format format) {
    for_each_group(format, row, [&](std::size_t first, auto group) {
      std::ranges::copy(group, out.begin() + static_cast<std::ptrdiff_t>(first));
    });
  });
}

}  // namespace

void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint16_t> out) {
  unpack_row_of(PackedBf16Formats(), dtype, row, out);
}
void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint8_t> out) {
  unpack_row_of(PackedFp8Formats(), dtype, row, out);
}

void row_as_f32(DType dtype, const StoredRow& row, std::span<float> out) {
  check_columns(row, out.size());
  visit_format(MatrixFormats(), dtype, [&]<class Format>(Format format) {
    if constexpr (kIsPacked<Format>)
      for_each_group(format, row, [&](std::size_t first, auto group) {
        for (std::size_t i = 0; i < group.size(); ++i)
          if constexpr (kPacksFp8<Format>)
            out[first + i] = format::f32_from_e4m3(group[i]) *
                             Format::scale(row, static_cast<std::int64_t>(first + i));
          else
            out[first + i] =
                Format::Plain::decode(reinterpret_cast<const std::byte*>(&group[i]), 0);
      });
    else if constexpr (kHasCompanion<Format>)
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = Format::decode(row, static_cast<std::int64_t>(k));
    else
      dequantize_row(dtype, row.data, out);
  });
}

}  // namespace canopy
