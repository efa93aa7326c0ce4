#include "kernels/cpu/bf16_tiles.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

// GCC 12 warns of the values that its own intrinsics leave undefined.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

// Only what follows is compiled for the unit; inline functions of others' headers are not.
#define CANOPY_AMX                                                                          \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16"), \
                 always_inline)) inline
#define CANOPY_AMX_ENTRY \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))

namespace canopy::cpu {

namespace {

using std::size_t;
using std::uint8_t;

constexpr size_t kPanelRows = 2 * kTileSide;  // weight rows that are unpacked together
// A row of a panel takes these. They are no power of two, so that a tile's rows lie in cache next
// to each other.
constexpr size_t kPanelRowBytes = 2 * kTiledBlock + 64;
constexpr size_t kPanelBytes = kPanelRows * kPanelRowBytes;
constexpr size_t kFewTiles = 4;  // parts of x, up to which the weights set the pace
constexpr size_t kColumnBytes = kTileSide * sizeof(float);

bool system_lets_use_tiles() {
  constexpr long kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, of the Linux ABI
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
}

bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1u << 24, kTileBF16 = 1u << 22, kVectorBF16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTile) == 0 || (d & kTileBF16) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kVectorBF16) != 0;
}

/// Shapes of all eight tiles, as LDTILECFG reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  TileShapes() {
    std::fill_n(row_bytes, 8, std::uint16_t{kTileBytes / kTileSide});
    std::fill_n(rows, 8, uint8_t{kTileSide});
  }
};

/// The unit's tiles have their shapes for as long as this lives.
class TilesInUse {
 public:
  CANOPY_AMX TilesInUse() { _tile_loadconfig(&shapes_); }
  CANOPY_AMX ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  TileShapes shapes_;
};

CANOPY_AMX __m512i shuffle_blocks(__m512i a, __m512i b, bool odd) {
  return odd ? _mm512_shuffle_i32x4(a, b, 0xdd) : _mm512_shuffle_i32x4(a, b, 0x88);
}

/// Sixteen rows of sixteen words: row i becomes column i.
CANOPY_AMX void transpose(__m512i (&r)[kTileSide]) {
  __m512i t[kTileSide];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
    // r[4 i + c]: of rows 4 i to 4 i + 3, column c + 4 b in block b.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low_even = shuffle_blocks(r[c], r[4 + c], false);
    const __m512i low_odd = shuffle_blocks(r[c], r[4 + c], true);
    const __m512i high_even = shuffle_blocks(r[8 + c], r[12 + c], false);
    const __m512i high_odd = shuffle_blocks(r[8 + c], r[12 + c], true);
    t[c] = shuffle_blocks(low_even, high_even, false);
    t[c + 8] = shuffle_blocks(low_even, high_even, true);
    t[c + 4] = shuffle_blocks(low_odd, high_odd, false);
    t[c + 12] = shuffle_blocks(low_odd, high_odd, true);
  }
  std::copy_n(t, kTileSide, r);
}

/// kTileStep floats as the nearest BF16 numbers; `low` and `high` become what is left of them.
CANOPY_AMX __m512i cut(__m512& low, __m512& high) {
  const auto nearest = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  const __m512i halves[2] = {_mm512_cvtepu16_epi32(_mm512_castsi512_si256(nearest)),
                             _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(nearest, 1))};
  low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(halves[0], 16)));
  high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(halves[1], 16)));
  return nearest;
}

/// The `count` first of 16 floats, and zeros.
CANOPY_AMX __m512 load_first(const float* from, size_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << std::min<size_t>(count, 16)) - 1),
                               from);
}

/// One step of one tile: parts q to q + 15 of the rows of x.
CANOPY_AMX void tile_step(const float* x, size_t m, size_t k, size_t first_part, size_t k0,
                          std::byte* tile) {
  __m512i parts[kTileSide];
  const size_t count = std::min(kTileStep, k - k0);
  __m512 low = _mm512_setzero_ps(), high = low;
  for (size_t q = first_part - first_part % 3; q < first_part + kTileSide; ++q) {
    const size_t row = q / 3;
    if (q % 3 == 0) {
      const float* const from = x + row * k + k0;
      low = row < m ? load_first(from, count) : _mm512_setzero_ps();
      high = row < m && count > 16 ? load_first(from + 16, count - 16) : _mm512_setzero_ps();
    }
    const __m512i part = cut(low, high);
    if (q >= first_part) parts[q - first_part] = part;
  }
  transpose(parts);
  for (size_t i = 0; i < kTileSide; ++i) _mm512_store_si512(tile + i * kColumnBytes, parts[i]);
}

/// A panel is one block of up to kPanelRows weight rows; this says where they lie.
struct Panel {
  const uint8_t* at;
  size_t row_bytes;
};

/// Copies or unpacks `rows` weight rows from n on, columns from k0 on, to where tiles are loaded
/// from quickly. Rows past the last repeat it; columns past the last are zeros.
CANOPY_AMX Panel load_panel(const TiledWeights& w, size_t n, size_t k0, size_t rows, uint8_t* to) {
  const size_t count = std::min(kTiledBlock, w.k - k0), whole = count / kTileStep * kTileStep;
  for (size_t r = 0; r < rows; ++r) {
    const size_t row = std::min(n + r, w.count - 1);
    uint8_t* const out = to + r * kPanelRowBytes;
    if (w.plain == nullptr) {
      w.unpack(w.rows, row, k0, reinterpret_cast<std::uint16_t*>(out));
    } else {
      const uint8_t* const from = w.plain + row * w.row_bytes + 2 * k0;
      for (size_t i = 0; i < 2 * whole; i += 64)
        _mm512_store_si512(out + i, _mm512_loadu_si512(from + i));
      std::memcpy(out + 2 * whole, from + 2 * whole, 2 * (count - whole));
    }
    if (count > whole) std::memset(out + 2 * count, 0, 2 * (kTileStep - (count - whole)));
  }
  asm volatile("" ::: "memory");  // the compiler does not know what a tile's load reads
  return {to, kPanelRowBytes};
}

/// True if tiles can be loaded from where the weights lie. That saves a copy, but mostly the loads
/// cross cache lines, so it is worth it where each tile is loaded once or twice.
CANOPY_AMX bool is_loaded_in_place(const TiledWeights& w, size_t n, size_t rows, size_t across) {
  return w.plain != nullptr && w.k % kTileStep == 0 && n + rows <= w.count && across <= kFewTiles;
}

/// The weights of the next panel, which are fetched meanwhile, some lines per step: their rows are
/// pieces too short for the hardware's prefetcher.
struct Ahead {
  const uint8_t* row[kPanelRows];
  size_t bytes;  // of each

  CANOPY_AMX Ahead(const TiledWeights& w, size_t n, size_t k0) : bytes(w.block_bytes) {
    for (size_t r = 0; r < kPanelRows; ++r) row[r] = w.place(w.rows, n + r, k0);
  }
};
/// Part i of n of them.
struct Share {
  const Ahead& ahead;
  size_t first, last;  // rows

  CANOPY_AMX Share(const Ahead& of, size_t i, size_t n)
      : ahead(of), first(kPanelRows * i / n), last(kPanelRows * (i + 1) / n) {}
  CANOPY_AMX void fetch(size_t step) const {
    if (step * 64 > ahead.bytes) return;
    for (size_t r = first; r < last; ++r)
      _mm_prefetch(reinterpret_cast<const char*>(ahead.row[r] + step * 64), _MM_HINT_T1);
  }
};

/// A by B tiles of sums over one block: A tiles of weight rows, B of parts of x.
template <int A, int B>
CANOPY_AMX void add_block(const Panel& panel, const std::byte* x, size_t steps, bool start,
                          std::byte* sums, size_t sums_stride, const Share& share) {
  const uint8_t* w = panel.at;
  const size_t row = panel.row_bytes;
  std::byte* const next = sums + sums_stride;
  if (start) {
    _tile_zero(0);
    if constexpr (B > 1) _tile_zero(1);
    if constexpr (A > 1) _tile_zero(2);
    if constexpr (A > 1 && B > 1) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if constexpr (B > 1) _tile_loadd(1, sums + kTileBytes, 64);
    if constexpr (A > 1) _tile_loadd(2, next, 64);
    if constexpr (A > 1 && B > 1) _tile_loadd(3, next + kTileBytes, 64);
  }
  for (size_t s = 0; s < steps; ++s, w += 2 * kTileStep, x += kTileBytes) {
    _tile_loadd(4, w, row);
    _tile_loadd(6, x, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (B > 1) {
      _tile_loadd(7, x + steps * kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (A > 1) {
      _tile_loadd(5, w + kTileSide * row, row);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (B > 1) _tile_dpbf16ps(3, 5, 7);
    }
    share.fetch(s);
  }
  _tile_stored(0, sums, 64);
  if constexpr (B > 1) _tile_stored(1, sums + kTileBytes, 64);
  if constexpr (A > 1) _tile_stored(2, next, 64);
  if constexpr (A > 1 && B > 1) _tile_stored(3, next + kTileBytes, 64);
}

/// parts = the sums of sixteen weight rows for all m rows of x, [m, 16], from their tiles. There is
/// room for such a row for each part of x.
CANOPY_AMX void join_parts(const std::byte* sums, size_t m, float* parts) {
  for (size_t t = 0; t < tiles_across(m); ++t) {
    __m512i rows[kTileSide];
    for (size_t i = 0; i < kTileSide; ++i)
      rows[i] = _mm512_load_si512(sums + t * kTileBytes + i * kColumnBytes);
    transpose(rows);
    for (size_t i = 0; i < kTileSide; ++i)
      _mm512_store_si512(parts + (t * kTileSide + i) * kTileSide, rows[i]);
  }
  for (size_t i = 0; i < m; ++i) {
    const float* const of = parts + 3 * i * kTileSide;
    const __m512 small =
        _mm512_add_ps(_mm512_load_ps(of + kTileSide), _mm512_load_ps(of + 2 * kTileSide));
    _mm512_store_ps(parts + i * kTileSide, _mm512_add_ps(_mm512_load_ps(of), small));
  }
}

/// All tiles of sums of up to two tiles of weight rows, in one block.
template <int A>
CANOPY_AMX void add_panels(const Panel& panel, const std::byte* x, size_t across, size_t steps,
                           bool start, std::byte* sums, const Ahead& ahead) {
  const size_t pairs = (across + 1) / 2;
  for (size_t t = 0; t < across; t += 2) {
    const Share share(ahead, t / 2, pairs);
    std::byte* const of_pair = sums + t * kTileBytes;
    const std::byte* const parts = x + t * steps * kTileBytes;
    if (t + 1 < across)
      add_block<A, 2>(panel, parts, steps, start, of_pair, across * kTileBytes, share);
    else
      add_block<A, 1>(panel, parts, steps, start, of_pair, across * kTileBytes, share);
  }
}

}  // namespace

bool has_bf16_tiles() {
  static const bool has = cpu_has_tiles() && system_lets_use_tiles();
  return has;
}

CANOPY_AMX_ENTRY void tile_block(const float* x, size_t m, size_t k, size_t k0, std::byte* tiles) {
  const size_t across = tiles_across(m);
  const size_t steps = (std::min(kTiledBlock, k - k0) + kTileStep - 1) / kTileStep;
  std::byte* to = tiles + k0 / kTileStep * across * kTileBytes;
  for (size_t t = 0; t < across; ++t)
    for (size_t s = 0; s < steps; ++s, to += kTileBytes)
      tile_step(x, m, k, t * kTileSide, k0 + s * kTileStep, to);
}

TiledSums::TiledSums(size_t m, std::byte* scratch)
    : m_(m),
      panel_(reinterpret_cast<uint8_t*>(scratch)),
      parts_(scratch + kPanelBytes),
      sums_(parts_ + tiles_across(m) * kTileBytes) {}

size_t TiledSums::scratch_bytes(size_t m, size_t weight_rows) {
  const size_t row_tiles = (weight_rows + kTileSide - 1) / kTileSide;
  return kPanelBytes + (row_tiles + 1) * tiles_across(m) * kTileBytes;
}

CANOPY_AMX_ENTRY void TiledSums::add(const std::byte* tiles, const TiledWeights& w, const Place& at,
                                     const Place& next) {
  const size_t across = tiles_across(m_),
               rows = w.count - at.n > kTileSide ? kPanelRows : kTileSide;
  const size_t steps = (std::min(kTiledBlock, w.k - at.k) + kTileStep - 1) / kTileStep;
  const Panel panel = is_loaded_in_place(w, at.n, rows, across)
                          ? Panel{w.plain + at.n * w.row_bytes + 2 * at.k, w.row_bytes}
                          : load_panel(w, at.n, at.k, rows, panel_);
  const Ahead ahead(w, next.n, next.k);
  const std::byte* const x = tiles + at.k / kTileStep * across * kTileBytes;
  std::byte* const to = sums_ + at.n / kTileSide * across * kTileBytes;
  if (rows > kTileSide)
    add_panels<2>(panel, x, across, steps, at.k == 0, to, ahead);
  else
    add_panels<1>(panel, x, across, steps, at.k == 0, to, ahead);
}

CANOPY_AMX_ENTRY void TiledSums::multiply(const std::byte* tiles, const TiledWeights& w) {
  const TilesInUse in_use;
  if (tiles_across(m_) <= kFewTiles) {  // x stays in cache whole: weight rows are read in turn
    for (size_t n = 0; n < w.count; n += kPanelRows)
      for (size_t k0 = 0; k0 < w.k; k0 += kTiledBlock) {
        const bool last = k0 + kTiledBlock >= w.k;
        add(tiles, w, {n, k0}, last ? Place{n + kPanelRows, 0} : Place{n, k0 + kTiledBlock});
      }
  } else {  // a block of x stays in cache while all weight rows go by
    for (size_t k0 = 0; k0 < w.k; k0 += kTiledBlock)
      for (size_t n = 0; n < w.count; n += kPanelRows) {
        const bool last = n + kPanelRows >= w.count;
        add(tiles, w, {n, k0}, last ? Place{0, k0 + kTiledBlock} : Place{n + kPanelRows, k0});
      }
  }
  asm volatile("" ::: "memory");  // the compiler does not know what a tile's store writes
}

CANOPY_AMX_ENTRY float* TiledSums::of(size_t n) {
  const size_t across = tiles_across(m_);
  float* const parts = reinterpret_cast<float*>(parts_);
  join_parts(sums_ + n / kTileSide * across * kTileBytes, m_, parts);
  return parts;
}

}  // namespace canopy::cpu

#else

namespace canopy::cpu {

bool has_bf16_tiles() { return false; }
void tile_block(const float*, std::size_t, std::size_t, std::size_t, std::byte*) {}
TiledSums::TiledSums(std::size_t, std::byte*) {}
std::size_t TiledSums::scratch_bytes(std::size_t, std::size_t) { return 0; }
void TiledSums::multiply(const std::byte*, const TiledWeights&) {}
float* TiledSums::of(std::size_t) { return nullptr; }

}  // namespace canopy::cpu

#endif
