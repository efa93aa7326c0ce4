// The inner product of the CPU backend, math.md (C1), compiled once per instruction set by each
// file that includes it after hwy/foreach_target.h.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/weights-inl.h"

#ifndef CANOPY_KERNELS_CPU_TILE_ONCE
#define CANOPY_KERNELS_CPU_TILE_ONCE
namespace canopy::cpu {

constexpr std::size_t kPassRows = 96;    // rows of x per pass
constexpr std::size_t kTileColumns = 4;  // weight rows per tile
constexpr std::size_t kPanelFloats = kTileColumns * kBlock;
constexpr std::size_t kBlocksAhead = 3;  // of weights, that are fetched while one is used

/// Bytes of x that a core's L2 keeps while weights go by: half of it. The system does not always
/// know its size.
inline std::size_t kept_in_l2() {
  constexpr std::size_t kLeast = 256 << 10, kMost = 512 << 10;
  static const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::clamp(l2 > 0 ? static_cast<std::size_t>(l2) / 2 : 0, kLeast, kMost);
}

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_TILE_ONCE

#if defined(CANOPY_KERNELS_CPU_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_TILE_INL
#else
#define CANOPY_KERNELS_CPU_TILE_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;
using std::uint8_t;

// Rows of x per tile: as many accumulators as the registers hold (16 on AVX2 and older).
constexpr size_t kTileRows = HWY_ARCH_X86 && HWY_TARGET >= HWY_AVX2 ? 3 : 6;

// ---- The tile: R rows of x times 4 weight rows over one block of columns.
// Lane l of an accumulator sums columns l, l + kLanes, ... in that order by fused multiply-add; the
// lanes are then added in a fixed tree. Neither depends on R.

/// The sums over the lanes of a, b, c, d: always lane l with l + 8, then + 4, + 2, + 1, as far as
/// the vector has that many lanes.
template <class V>  // so that only the branch of this vector width is compiled
HWY_INLINE hn::Vec128<float> sums_of_lanes(V a, V b, V c, V d) {
  const hn::Full128<float> four;
  if constexpr (kLanes == 16) {
    const Floats all;
    const auto ab = hn::Add(hn::ConcatLowerLower(all, b, a), hn::ConcatUpperUpper(all, b, a));
    const auto cd = hn::Add(hn::ConcatLowerLower(all, d, c), hn::ConcatUpperUpper(all, d, c));
    const auto acbd = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(cd), ab),
                              hn::OddEvenBlocks(cd, hn::SwapAdjacentBlocks(ab)));
    const auto pairs = hn::Add(acbd, hn::Shuffle1032(acbd));
    const auto sums = hn::Add(pairs, hn::Shuffle2301(pairs));
    alignas(64) static constexpr std::int32_t kPick[16] = {0, 8, 4, 12};
    return hn::LowerHalf(
        four, hn::LowerHalf(hn::TableLookupLanes(sums, hn::SetTableIndices(all, kPick))));
  } else {
    const auto four_of = [](V v) HWY_ATTR {
      if constexpr (kLanes == 4) {
        return v;
      } else {
        const hn::Half<Floats> half;
        return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
      }
    };
    const auto a4 = four_of(a), b4 = four_of(b), c4 = four_of(c), d4 = four_of(d);
    const auto ab = hn::Add(hn::InterleaveLower(four, a4, b4), hn::InterleaveUpper(four, a4, b4));
    const auto cd = hn::Add(hn::InterleaveLower(four, c4, d4), hn::InterleaveUpper(four, c4, d4));
    return hn::Add(hn::ConcatLowerLower(four, cd, ab), hn::ConcatUpperUpper(four, cd, ab));
  }
}

/// Weights unpacked and interleaved: [vector][4 rows][kLanes], aligned.
struct Panel {
  static constexpr size_t kTogether = 1;  // vectors of a weight row that are loaded at once
  const float* at;
  HWY_INLINE void load(size_t i, size_t r, Vec (&out)[kTogether]) const {
    out[0] = hn::Load(Floats(), at + (i * kTileColumns + r) * kLanes);
  }
};
/// bf16 rows as they lie in the read buffer, or unpacked for the moment.
struct Direct {
  static constexpr size_t kTogether = 1;
  const uint8_t* row[kTileColumns];
  HWY_INLINE void load(size_t i, size_t r, Vec (&out)[kTogether]) const {
    out[0] = load_plain<format::BF16>(row[r] + i * kLanes * 2);
  }
};
/// FP8 rows as they lie in the read buffer, and the factors of a block of columns.
struct DirectFp8 {
  static constexpr size_t kTogether = kFp8Vectors;
  const uint8_t* row[kTileColumns];
  float factor[kTileColumns][kBlock / kFactorColumns];
  HWY_INLINE void load(size_t i, size_t r, Vec (&out)[kTogether]) const {
    load_e4m3(row[r] + i * kLanes, factor[r][i * kLanes / kFactorColumns], out);
  }
};

enum class Sum : bool { kStart, kContinue };

/// x: R rows interleaved, [vector][R][kLanes], aligned; out [R, 4] with row stride ld. vectors: a
/// multiple of W::kTogether.
template <int R, class W>
HWY_INLINE void tile(const float* x, const W& w, size_t vectors, float* out, size_t ld, Sum sum) {
  constexpr int kColumns = static_cast<int>(kTileColumns);
  const Floats d;
  Vec acc[R][kColumns];
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 8
    for (int r = 0; r < kColumns; ++r) acc[m][r] = hn::Zero(d);
  constexpr size_t kTogether = W::kTogether;
  for (size_t i = 0; i < vectors; i += kTogether, x += kTogether * R * kLanes) {
    Vec xs[R];  // loaded once for all weight rows, unless several vectors of each come together
    if constexpr (kTogether == 1)
#pragma GCC unroll 8
      for (int m = 0; m < R; ++m) xs[m] = hn::Load(d, x + static_cast<size_t>(m) * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kColumns; ++r) {
      Vec ws[kTogether];
      w.load(i, static_cast<size_t>(r), ws);
#pragma GCC unroll 4
      for (size_t v = 0; v < kTogether; ++v)
#pragma GCC unroll 8
        for (int m = 0; m < R; ++m) {
          if constexpr (kTogether > 1)
            xs[m] = hn::Load(d, x + (v * R + static_cast<size_t>(m)) * kLanes);
          acc[m][r] = hn::MulAdd(xs[m], ws[v], acc[m][r]);
        }
    }
  }
  const hn::Full128<float> four;
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m) {
    auto sums = sums_of_lanes(acc[m][0], acc[m][1], acc[m][2], acc[m][3]);
    float* to = out + static_cast<size_t>(m) * ld;
    if (sum == Sum::kContinue) sums = hn::Add(hn::LoadU(four, to), sums);
    hn::StoreU(sums, four, to);
  }
}

template <class W>
HWY_INLINE void tile_of(size_t rows, const float* x, const W& w, size_t vectors, float* out,
                        size_t ld, Sum sum) {
  switch (rows) {
    case 1:
      return tile<1>(x, w, vectors, out, ld, sum);
    case 2:
      return tile<2>(x, w, vectors, out, ld, sum);
    case 3:
      return tile<3>(x, w, vectors, out, ld, sum);
#if !(HWY_ARCH_X86 && HWY_TARGET >= HWY_AVX2)
    case 4:
      return tile<4>(x, w, vectors, out, ld, sum);
    case 5:
      return tile<5>(x, w, vectors, out, ld, sum);
    case 6:
      return tile<6>(x, w, vectors, out, ld, sum);
#endif
    default:
      return;
  }
}

HWY_INLINE size_t vectors_of(size_t count) { return (count + kLanes - 1) / kLanes; }

/// Block of columns [k0, k0 + up to kBlock) of x as the tiles read it: [tile of up to kTileRows
/// rows][vector][row][kLanes], the last vector padded with zeros. Blocks of a packed x lie at
/// k0 * m.
[[maybe_unused]] static void pack_block(const float* x, size_t m, size_t k, size_t k0,
                                        float* packed) {
  const size_t count = std::min(kBlock, k - k0), vectors = vectors_of(count);
  float* out = packed + k0 * m;
  for (size_t m0 = 0; m0 < m; m0 += kTileRows) {
    const size_t rows = std::min(kTileRows, m - m0);
    for (size_t r = 0; r < rows; ++r)
      unpack_plain<format::F32>(reinterpret_cast<const uint8_t*>(x + (m0 + r) * k), k0, count,
                                out + r * kLanes, rows * kLanes);
    out += rows * vectors * kLanes;
  }
}

/// Four weight rows from n on, in one block of columns, as a panel.
HWY_INLINE Panel unpack_panel(const WeightRows& w, size_t n, size_t k0, float* panel) {
  for (size_t r = 0; r < kTileColumns; ++r)
    w.unpack(w.row(std::min(n + r, w.count - 1)), k0, std::min(kBlock, w.k - k0),
             panel + r * kLanes, kTileColumns * kLanes);
  return {panel};
}

/// Bytes of a block of columns of four weight rows that will be needed soon. A part is fetched with
/// each tile of x: all at once would hold up the tiles' own loads.
struct Fetch {
  const uint8_t* from[kTileColumns];
  size_t part;  // bytes of each
  /// A prefetch past the end of the buffer does nothing.
  HWY_INLINE void operator()(size_t tile) const {
    for (const uint8_t* const row : from)
      for (size_t at = tile * part / 64 * 64; at < (tile + 1) * part; at += 64)
        hwy::Prefetch(row + at);
  }
};

/// Computes products() by weights(n, k0), which gives four weight rows in one block of columns.
/// They are read in turn, each used at once for all rows of x, which go by in ranges of columns
/// that stay in L2.
template <class Weights>
HWY_INLINE void products_by(const float* packed, size_t m, size_t m0, size_t m1,
                            const WeightRows& w, float* out, size_t ld, const Weights& weights) {
  const size_t blocks = (w.k + kBlock - 1) / kBlock, tiles = (m1 - m0 + kTileRows - 1) / kTileRows;
  const size_t kept = std::max<size_t>(1, kept_in_l2() / ((m1 - m0) * kBlock * sizeof(float)));
  const size_t ranges = (blocks + kept - 1) / kept, range = (blocks + ranges - 1) / ranges;
  // A packed row's exceptions lie at its end, so that a block needs more of its row than itself.
  const bool whole_rows = w.unpack_bf16 != nullptr || w.unpack_fp8 != nullptr;
  const size_t ahead = whole_rows ? range : kBlocksAhead;
  Fetch fetch;
  fetch.part = (w.block_bytes + tiles - 1) / tiles;
  for (size_t first = 0; first < blocks; first += range)
    for (size_t n = 0; n < w.count; n += kTileColumns)
      for (size_t b = first; b < std::min(blocks, first + range); ++b) {
        const size_t to = b - first + ahead;
        for (size_t r = 0; r < kTileColumns; ++r)
          fetch.from[r] = w.block(n + to / range * kTileColumns + r, first + to % range);
        const size_t k0 = b * kBlock, vectors = vectors_of(std::min(kBlock, w.k - k0));
        const auto four_rows = weights(n, k0);
        const float* x = packed + k0 * m + m0 * vectors * kLanes;
        for (size_t i = m0; i < m1; i += kTileRows) {
          fetch((i - m0) / kTileRows);
          const size_t rows = std::min(kTileRows, m - i);
          tile_of(rows, x, four_rows, vectors, out + (i - m0) * ld + n, ld,
                  b == 0 ? Sum::kStart : Sum::kContinue);
          x += rows * vectors * kLanes;
        }
      }
}

/// out[i][j] = sum over k of x[i][k] w[j][k], for rows [m0, m1) of the m packed rows of x (m0 a
/// multiple of kTileRows, m1 - m0 <= kPassRows) and all w.count weight rows. Writes out [m1 - m0,
/// w.count rounded up to a multiple of 4] with row stride ld; what lies past w.count has no
/// meaning. panels: kPanelFloats, aligned. Every way through here gives the same bits.
[[maybe_unused]] static void products(const float* packed, size_t m, size_t m0, size_t m1,
                                      const WeightRows& w, float* out, size_t ld, float* panels) {
  constexpr size_t kDirectRows =
      8;  // up to here widening bf16 in registers costs less than a panel
  // Up to here one tile, for which a panel would only be read once. Wider ones lack registers.
  constexpr size_t kDirectFp8Rows = std::min<size_t>(kTileRows, 4);
  if (w.bf16 && m1 - m0 <= kDirectRows && w.k % kLanes == 0)
    return products_by(packed, m, m0, m1, w, out, ld, [&](size_t n, size_t k0) HWY_ATTR {
      Direct rows;
      for (size_t r = 0; r < kTileColumns; ++r)
        rows.row[r] = w.data + std::min(n + r, w.count - 1) * w.row_bytes + k0 * 2;
      return rows;
    });
  if (w.unpack_bf16 != nullptr && m1 - m0 <= kDirectRows)
    return products_by(packed, m, m0, m1, w, out, ld, [&](size_t n, size_t k0) HWY_ATTR {
      Direct rows;
      for (size_t r = 0; r < kTileColumns; ++r) {
        auto* const plain = reinterpret_cast<std::uint16_t*>(panels) + r * kBlock;
        w.unpack_bf16(w.row(std::min(n + r, w.count - 1)), k0, plain);
        rows.row[r] = reinterpret_cast<const uint8_t*>(plain);
      }
      return rows;
    });
  if (w.fp8_factors != nullptr && m1 - m0 <= kDirectFp8Rows && w.k % (kFp8Vectors * kLanes) == 0)
    return products_by(packed, m, m0, m1, w, out, ld, [&](size_t n, size_t k0) HWY_ATTR {
      DirectFp8 rows;
      for (size_t r = 0; r < kTileColumns; ++r) {
        const StoredRow row = w.row(std::min(n + r, w.count - 1));
        rows.row[r] = reinterpret_cast<const uint8_t*>(row.data) + k0;
        w.fp8_factors(row, k0, std::min(kBlock, w.k - k0), rows.factor[r]);
      }
      return rows;
    });
  if (w.unpack_fp8 != nullptr && m1 - m0 <= kDirectFp8Rows && w.k % (kFp8Vectors * kLanes) == 0)
    return products_by(packed, m, m0, m1, w, out, ld, [&](size_t n, size_t k0) HWY_ATTR {
      DirectFp8 rows;
      for (size_t r = 0; r < kTileColumns; ++r) {
        auto* const codes = reinterpret_cast<uint8_t*>(panels) + r * kBlock;
        w.unpack_fp8(w.row(std::min(n + r, w.count - 1)), k0, std::min(kBlock, w.k - k0), codes,
                     rows.factor[r]);
        rows.row[r] = codes;
      }
      return rows;
    });
  return products_by(packed, m, m0, m1, w, out, ld,
                     [&](size_t n, size_t k0) HWY_ATTR { return unpack_panel(w, n, k0, panels); });
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_TILE_INL
