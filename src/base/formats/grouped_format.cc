#include "src/base/formats/grouped_format.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "src/base/error.h"

namespace canopy {

void format::check_groups(std::span<const std::byte> companion, std::int64_t columns) {
  using F = I4Grouped;  // all are alike in this
  const std::int64_t groups = F::groups(companion.data());
  if (columns % 32 != 0)
    throw Error("its rows have " + std::to_string(columns) + " columns, which 32 does not divide");
  if (groups < 1 || groups > columns)
    throw Error("it has " + std::to_string(groups) + " groups for " + std::to_string(columns) +
                " columns");
  for (std::int64_t k = 0; k < columns; ++k)
    if (const int group = F::group(companion.data(), k); group >= groups)
      throw Error("column " + std::to_string(k) + " is of group " + std::to_string(group) + " of " +
                  std::to_string(groups));
}

Companion companion_of_groups(const GroupedFormat& format, std::span<const std::int32_t> of,
                              std::int64_t rows) {
  using F = format::I4Grouped;
  const auto columns = std::ssize(of);
  std::vector<std::byte> bytes(F::companion_bytes(rows, columns));
  const auto groups = static_cast<std::uint32_t>(*std::ranges::max_element(of) + 1);
  memcpy(bytes.data(), &groups, sizeof groups);
  for (std::size_t k = 0; k < of.size(); ++k) {
    if (of[k] < 0 || of[k] > std::numeric_limits<std::uint16_t>::max())
      throw Error("column " + std::to_string(k) + " is of group " + std::to_string(of[k]));
    const auto group = static_cast<std::uint16_t>(of[k]);
    memcpy(&bytes[F::kColumnsAt + k * sizeof group], &group, sizeof group);
  }
  const auto row = format.companion->place_of_row(bytes.data(), columns, 0).bytes;
  return {*format.companion, std::move(bytes), rows, columns,
          static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(rows)};
}

}  // namespace canopy
