#pragma once
// Kernels that expand weights to the plain format that matrix units multiply.
#include <type_traits>

#include "kernels/cuda/pieces.h"

namespace canopy::cuda {

/// Rows [first, first + blocks) of quantised weights as F16. One block per row, a thread for each
/// piece of rows of whole pieces.
template <class Format>
struct Dequantize {
  MatrixRows<Format> rows;
  std::int64_t first;
  std::byte* out;

  Grid grid(std::int64_t count) const {
    return {count, threads_for(ceil_div<std::int64_t>(rows.columns, kPiece), 256)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const StoredRow from = rows[first + block.index()];
    std::byte* const to = out + block.index() * rows.columns * 2;
    const bool whole = rows.columns % kPiece == 0;
    block.step([&](int t) {
      if (whole)
        for (std::int64_t k = t * kPiece; k < rows.columns; k += block.threads() * kPiece)
          store_piece(from, k, to + k * 2);
      else
        for (std::int64_t k = t; k < rows.columns; k += block.threads())
          store_float<format::F16>(to, k, weight_at<Format>(from, k));
    });
  }

 private:
  CANOPY_KERNEL static void store_piece(const StoredRow& from, std::int64_t k, std::byte* to) {
    float weights[kPiece];
    weights_of_piece<Format>(from, k, weights);
    std::uint32_t pairs[kPiece / 2];
    CANOPY_UNROLL
    for (int i = 0; i < kPiece / 2; ++i)
      pairs[i] = format::F16::encode(weights[2 * i]) |
                 std::uint32_t{format::F16::encode(weights[2 * i + 1])} << 16;
    store_words(to, pairs[0], pairs[1], pairs[2], pairs[3]);
  }
};

/// Rows [first, first + blocks) of a packed matrix in its plain format; of FP8, which levels.h has,
/// in F16. One block per row, a thread
/// for each group.
template <class Format>
struct UnpackRows {
  static constexpr int kThreads = 256;
  MatrixRows<Format> rows;
  std::int64_t first;
  typename Format::Plain::Element* out;

  Grid grid(std::int64_t count) const {
    return {count,
            threads_for(ceil_div<std::int64_t>(rows.columns, Format::kGroupColumns), kThreads)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    auto* const to = out + block.index() * rows.columns;
    block.step([&](int t) {
      for_weights_of_thread<Format>(rows[first + block.index()], t, block.threads(),
                                    [&](std::int64_t k, auto weight) { to[k] = weight; });
    });
  }
};

/// Rows as their matrix units multiply them.
template <class Format>
using ExpandRows = std::conditional_t<kIsPacked<Format>, UnpackRows<Format>, Dequantize<Format>>;

/// Writes the weights with places 16 s to 16 s + 15 of a group of a row, as decode_sixteen() gives
/// them.
template <class Format>
CANOPY_KERNEL void store_sixteen(const std::uint32_t* pairs, std::int64_t group, int s,
                                 std::int64_t columns, std::uint16_t* to) {
  constexpr int kRun = 8;  // weights that lie side by side
  CANOPY_UNROLL
  for (int r = 0; r < Format::kPlaces; r += kRun) {
    const std::int64_t at =
        group * Format::kGroupColumns + Format::weight_at(Format::kPlaces * s + r);
    if (columns % kRun == 0) {
      if (at < columns)
        store_words(reinterpret_cast<std::byte*>(to + at), pairs[r / 2], pairs[r / 2 + 1],
                    pairs[r / 2 + 2], pairs[r / 2 + 3]);
    } else {
      CANOPY_UNROLL
      for (int i = 0; i < kRun; ++i)
        if (at + i < columns)
          to[at + i] = static_cast<std::uint16_t>(pairs[(r + i) / 2] >> i % 2 * 16);
    }
  }
}

/// The same of PackedBF16, so that threads that follow one another read and write bytes that do: a
/// thread for each sixteen places of a group, which are twice eight weights.
template <>
struct UnpackRows<format::PackedBF16> {
  using Format = format::PackedBF16;
  static constexpr int kThreads = 256;
  MatrixRows<Format> rows;
  std::int64_t first;
  std::uint16_t* out;

  Grid grid(std::int64_t count) const {
    const std::int64_t groups = Format::groups(rows.columns);
    return {count, threads_for(Format::kSixteens * groups, kThreads),
            static_cast<std::size_t>(groups) * sizeof(std::uint16_t)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const StoredRow row = rows[first + block.index()];
    const std::int64_t groups = Format::groups(rows.columns);
    auto* const exceptions = block.template shared<std::uint16_t>(static_cast<int>(groups));
    block.step([&](int t) {
      for (std::int64_t g = t; g < groups; g += block.threads())
        exceptions[g] = static_cast<std::uint16_t>(
            format::count_ones(Format::exceptions_in(Format::group(row, g))));
    });
    block.step([&](int t) {
      for (std::int64_t i = t; i < groups * Format::kSixteens; i += block.threads())
        unpack(row, i / Format::kSixteens, static_cast<int>(i % Format::kSixteens), exceptions,
               out + block.index() * rows.columns);
    });
  }

 private:
  CANOPY_KERNEL static void unpack(const StoredRow& row, std::int64_t group, int s,
                                   const std::uint16_t* exceptions, std::uint16_t* to) {
    const std::int64_t index = group / Format::kBlockGroups;
    int before = 0, all = 0;
    for (std::int64_t g = index * Format::kBlockGroups;
         g < (index + 1) * Format::kBlockGroups && g < Format::groups(row.columns); ++g) {
      before += g < group ? exceptions[g] : 0;
      all += exceptions[g];
    }
    const auto block = Format::block(row, index, all);
    const std::byte* const from = Format::group(row, group);
    std::uint32_t pairs[Format::kPlaces / 2];
    if (block.sound) {
      const std::uint64_t earlier = (std::uint64_t{1} << Format::kPlaces * s) - 1;
      before += format::count_ones(Format::exceptions_in(from) & earlier);
      Format::decode_sixteen(from, s, block.base, block.tail + before, pairs);
    } else {
      for (std::uint32_t& pair : pairs) pair = Format::kNotANumber * 0x10001u;
    }
    store_sixteen<Format>(pairs, group, s, row.columns, to);
  }
};

}  // namespace canopy::cuda
