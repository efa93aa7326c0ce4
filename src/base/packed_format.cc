#include "src/base/packed_format.h"

#include <algorithm>
#include <array>

namespace canopy {

namespace {

/// Calls take(first, weights of a group) for all groups of the row.
template <class Take>
void for_each_group(DType dtype, const StoredRow& row, const Take& take) {
  visit_format(PackedFormats(), dtype, [&]<class Format>(Format) {
    std::array<typename Format::Plain::Element, Format::kGroupColumns> group{};
    for (std::int64_t first = 0; first < row.columns; first += Format::kGroupColumns) {
      Format::decode_group(row, first / Format::kGroupColumns, group.data());
      const auto count = std::min<std::int64_t>(Format::kGroupColumns, row.columns - first);
      take(static_cast<std::size_t>(first), std::span(group).first(static_cast<std::size_t>(count)),
           typename Format::Plain());
    }
  });
}

void check_columns(const StoredRow& row, std::size_t columns) {
  require(static_cast<std::size_t>(row.columns) == columns,
          "a packed row is unpacked to as many weights as it has");
}

}  // namespace

void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint16_t> out) {
  check_columns(row, out.size());
  for_each_group(dtype, row, [&](std::size_t first, auto group, auto) {
    std::ranges::copy(group, out.begin() + static_cast<std::ptrdiff_t>(first));
  });
}

void row_as_f32(DType dtype, const StoredRow& row, std::span<float> out) {
  check_columns(row, out.size());
  if (!is_packed(dtype)) return dequantize_row(dtype, row.data, out);
  for_each_group(dtype, row, [&]<class Plain>(std::size_t first, auto group, Plain) {
    for (std::size_t i = 0; i < group.size(); ++i)
      out[first + i] = Plain::decode(reinterpret_cast<const std::byte*>(&group[i]), 0);
  });
}

}  // namespace canopy
