#pragma once
#include <cstddef>
#include <cstdint>

namespace canopy::cpu {

/// Products with BF16 weights on the CPU's matrix unit (Intel AMX). It multiplies BF16 numbers
/// only, and adds in f32; so a number of x is cut into three of them whose sum it is, and each
/// product is exact: docs/math.md, (C4). Whether this CPU has such a unit, and the system lets the
/// process use it. The system is asked once.
bool has_bf16_tiles();

constexpr std::size_t kTileStep = 32;     // columns of x and w that one instruction multiplies
constexpr std::size_t kTiledBlock = 512;  // columns that are unpacked together
/// Weight rows, and parts of rows of x, of a tile of sums.
constexpr std::size_t kTileSide = 16;
constexpr std::size_t kTileBytes = 1024;

/// Tiles side by side that hold the three parts of `rows` rows of x.
constexpr std::size_t tiles_across(std::size_t rows) {
  return (3 * rows + kTileSide - 1) / kTileSide;
}
/// Bytes that `rows` rows of `columns` columns of x take as tiles.
constexpr std::size_t tiled_bytes(std::size_t rows, std::size_t columns) {
  return tiles_across(rows) * ((columns + kTileStep - 1) / kTileStep) * kTileBytes;
}

/// Cuts columns [k0, k0 + kTiledBlock) of x [m, k] into its place in `tiles`: [block of
/// columns][tile][step], each of them [pair of columns, part, column of the pair]. k0: a multiple
/// of kTiledBlock; tiles: tiled_bytes(m, k), 64-byte aligned.
void tile_block(const float* x, std::size_t m, std::size_t k, std::size_t k0, std::byte* tiles);

/// Weight rows as the unit is fed with them.
struct TiledWeights {
  std::size_t count = 0, k = 0;
  /// BF16 as they lie, at any address, row_bytes apart; null: they are unpacked.
  const std::uint8_t* plain = nullptr;
  std::size_t row_bytes = 0;
  /// Writes columns [k0, k0 + kTiledBlock) of row n, as far as there are such, as BF16, and
  /// anything up to column k0 + kTiledBlock.
  void (*unpack)(const void* rows, std::size_t n, std::size_t k0, std::uint16_t* out) = nullptr;
  /// Returns about where they lie, for prefetches: n may lie past the last row, k0 past the last
  /// column.
  const std::uint8_t* (*place)(const void* rows, std::size_t n, std::size_t k0) = nullptr;
  std::size_t block_bytes = 0;  // that they take there
  const void* rows = nullptr;
};

/// The products of all weight rows with m rows of x, in scratch memory: scratch_bytes(), 64-byte
/// aligned.
class TiledSums {
 public:
  TiledSums(std::size_t m, std::byte* scratch);
  static std::size_t scratch_bytes(std::size_t m, std::size_t weight_rows);

  void multiply(const std::byte* tiles, const TiledWeights& w);
  /// Returns the sums of kTileSide weight rows from n on, n a multiple of that: [m, kTileSide].
  /// What belongs to rows past the last has no meaning. Valid until the next call.
  float* of(std::size_t n);

 private:
  struct Place {
    std::size_t n, k;  // the first weight row and column of a panel
  };
  /// Adds the products of a panel's weights with their block of x, and fetches the next panel.
  void add(const std::byte* tiles, const TiledWeights& w, const Place& at, const Place& next);

  std::size_t m_;
  std::uint8_t* panel_;
  std::byte *parts_, *sums_;  // sums: [tile of weight rows][tile across]
};

}  // namespace canopy::cpu
