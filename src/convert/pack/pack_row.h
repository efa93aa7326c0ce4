#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/formats/packed_format.h"

namespace canopy {

/// Appends a row of BF16 bits, or of codes of FP8, to `out`, packed
/// (src/base/formats/packed_format.h). The base of each block is the one with which it takes the
/// fewest bits, of equal ones the lowest: the same row is packed to the same bytes everywhere.
/// Shapes: row [columns]. False, and nothing is appended, where the row has more in its tails than
/// its headers can count.
bool pack_row(format::PackedBF16, std::span<const std::uint16_t> row, std::vector<std::byte>& out);
bool pack_row(format::LevelsBF16, std::span<const std::uint16_t> row, std::vector<std::byte>& out);
bool pack_row(format::LevelsE4M3Blocks, std::span<const std::uint8_t> row,
              std::vector<std::byte>& out);
bool pack_row(format::LevelsE4M3Rows, std::span<const std::uint8_t> row,
              std::vector<std::byte>& out);

}  // namespace canopy
