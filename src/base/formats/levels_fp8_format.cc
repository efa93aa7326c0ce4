#include "src/base/formats/levels_fp8_format.h"

#include <cstring>

#include "src/base/error.h"

namespace canopy {

template <class Format, class Scaled>
void format::ScaledRowOffsets<Format, Scaled>::check_companion(std::span<const std::byte> companion,
                                                               std::int64_t rows,
                                                               std::int64_t columns) {
  const auto take = [&](std::vector<std::byte>& to, std::int64_t at, std::int64_t bytes) {
    const auto from =
        companion.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
    to.insert(to.end(), from.begin(), from.end());
  };
  std::vector<std::byte> offsets, scales;
  for (std::int64_t row = 0; row <= rows; ++row)
    take(offsets, place_of_offset(columns, row), kOffsetBytes);
  check_row_offsets(offsets, rows, columns, Format::fixed_bytes(columns),
                    Format::most_bytes(columns));
  for (std::int64_t row = 0; row < rows; row += kSliceUnit)
    take(scales, place_of_scales(columns, row), unit_bytes(columns) - kSliceUnit * kOffsetBytes);
  Scaled::check_companion(scales, rows, columns);
}

template struct format::ScaledRowOffsets<format::LevelsE4M3Blocks, format::E4M3Blocks>;
template struct format::ScaledRowOffsets<format::LevelsE4M3Rows, format::E4M3Rows>;

namespace {

using Formats = format::List<format::LevelsE4M3Blocks, format::LevelsE4M3Rows>;

}  // namespace

std::vector<std::byte> with_scales(DType dtype, std::span<const RowOffset> offsets,
                                   std::span<const float> scales, std::int64_t columns) {
  return visit_format(Formats(), dtype, [&]<class Format>(Format) {
    const std::int64_t rows = std::ssize(offsets) - 1, unit = Format::kSliceUnit;
    const std::int64_t across = Format::Plain::scales_across(columns);
    require(rows >= 0 && std::ssize(scales) == (rows + unit - 1) / unit * across,
            "packed rows of FP8 have the scales of their plain form");
    std::vector<std::byte> companion(Format::companion_bytes(rows, columns));
    const auto put = [&](std::int64_t at, const void* from, std::size_t bytes) {
      std::memcpy(&companion[static_cast<std::size_t>(at)], from, bytes);
    };
    for (std::int64_t row = 0; row < (rows + unit - 1) / unit * unit; ++row)
      put(Format::place_of_offset(columns, row),
          &offsets[static_cast<std::size_t>(std::min(row, rows))], sizeof(RowOffset));
    put(std::ssize(companion) - Format::kOffsetBytes, &offsets.back(), sizeof(RowOffset));
    for (std::int64_t row = 0; row < rows; row += unit)
      put(Format::place_of_scales(columns, row),
          &scales[static_cast<std::size_t>(row / unit * across)],
          static_cast<std::size_t>(across) * sizeof(float));
    return companion;
  });
}

}  // namespace canopy
