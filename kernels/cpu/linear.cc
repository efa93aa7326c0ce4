// y = x W^T on the CPU. The sums are tile-inl.h's; here is who computes which of them.
#include "kernels/cpu/linear.h"

#include "kernels/cpu/bf16_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
#include "kernels/cpu/tile-inl.h"

#ifndef CANOPY_KERNELS_CPU_LINEAR_ONCE
#define CANOPY_KERNELS_CPU_LINEAR_ONCE
namespace canopy::cpu {

constexpr std::size_t kMaxStrip = 256;  // weight rows: kPassRows x kMaxStrip sums fit in L2
constexpr std::size_t kStripFloats = kPanelFloats + kPassRows * kMaxStrip;
static_assert(kBlock == kTiledBlock);

/// Some weight rows of one projection, and where their sums go.
struct Strip {
  WeightView w;
  std::size_t first, count;  // its rows
  const std::uint8_t* bias;  // f32 at any address, or null
  float* y;                  // first row, first column of the strip
  std::size_t ld;
  Accumulate accumulate;
};

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_LINEAR_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

WeightRows rows_of(const Strip& strip) { return weight_rows_of(strip.w, strip.first, strip.count); }

/// y = (y +) (factor sums + bias), for row i of x and `count` weight rows from j on. Changes the
/// sums.
void finish(float* sums, const Strip& strip, std::size_t i, std::size_t j, std::size_t count) {
  float* const to = strip.y + i * strip.ld + j;
  if (const float factor = strip.w.factor(); factor != 1)
    for (std::size_t c = 0; c < count; ++c) sums[c] *= factor;
  if (strip.bias != nullptr)
    for (std::size_t c = 0; c < count; ++c) {
      float bias;
      std::memcpy(&bias, strip.bias + (j + c) * sizeof bias, sizeof bias);
      sums[c] += bias;
    }
  if (strip.accumulate == Accumulate::kYes)
    for (std::size_t c = 0; c < count; ++c) to[c] += sums[c];
  else
    std::memcpy(to, sums, count * sizeof *to);
}

/// A strip for m packed rows. scratch: kStripFloats.
void run_strip(const float* packed, std::size_t m, const Strip& strip, float* scratch) {
  float* const panels = scratch;
  float* const sums = scratch + kPanelFloats;  // [kPassRows, strip.count rounded up to 4]
  const WeightRows w = rows_of(strip);
  const std::size_t ld = (w.count + kTileColumns - 1) / kTileColumns * kTileColumns;
  for (std::size_t m0 = 0; m0 < m; m0 += kPassRows) {
    const std::size_t m1 = std::min(m, m0 + kPassRows);
    products(packed, m, m0, m1, w, sums, ld, panels);
    for (std::size_t i = m0; i < m1; ++i) finish(sums + (i - m0) * ld, strip, i, 0, w.count);
  }
}

/// BF16 rows, packed or not, as the matrix unit is fed with them.
TiledWeights tiled(const WeightRows& w) {
  const auto unpack = [](const void* rows, std::size_t n, std::size_t k0, std::uint16_t* out) {
    const auto& of = *static_cast<const WeightRows*>(rows);
    of.unpack_bf16(of.row(n), k0, out);
  };
  const auto place = [](const void* rows, std::size_t n, std::size_t k0) {
    return static_cast<const WeightRows*>(rows)->block(n, k0 / kBlock);
  };
  const std::uint8_t* const plain = w.bf16 ? w.data : nullptr;
  return {w.count, w.k, plain, w.row_bytes, unpack, place, w.block_bytes, &w};
}

/// A strip for m rows that were cut into tiles. scratch: TiledSums::scratch_bytes.
void run_tiled_strip(const std::byte* tiles, std::size_t m, const Strip& strip,
                     std::byte* scratch) {
  const WeightRows w = rows_of(strip);
  TiledSums sums(m, scratch);
  sums.multiply(tiles, tiled(w));
  for (std::size_t j = 0; j < w.count; j += kTileSide) {
    float* const sixteen = sums.of(j);
    for (std::size_t i = 0; i < m; ++i)
      finish(sixteen + i * kTileSide, strip, i, j, std::min(kTileSide, w.count - j));
  }
}

/// True if this set is that of the processors with a matrix unit, and this is one of them.
bool uses_tiles() { return HWY_TARGET == HWY_AVX3_DL && has_bf16_tiles(); }
const char* target_name() { return uses_tiles() ? "AVX3_DL, AMX" : hwy::TargetName(HWY_TARGET); }
void pack(const float* x, std::size_t m, std::size_t k, std::size_t k0, float* packed) {
  pack_block(x, m, k, k0, packed);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(run_strip);
HWY_EXPORT(run_tiled_strip);
HWY_EXPORT(uses_tiles);
HWY_EXPORT(target_name);
HWY_EXPORT(pack);

namespace {

// Rows of x packed at a time: bounds the scratch; a weight is read again from memory only every
// kChunkRows rows, some hundred operations per byte.
constexpr std::size_t kChunkRows = 2 * kPassRows;
std::size_t packed_floats(std::size_t rows, std::size_t columns) {
  return std::min(rows, kChunkRows) * ((columns + kMaxLanes - 1) / kMaxLanes * kMaxLanes);
}

bool with_tiles() { return HWY_DYNAMIC_DISPATCH(uses_tiles)(); }
bool with_tiles(const WeightView& w) {
  const PackedFormat* const packed = find_packed_format(w.format());
  return with_tiles() && (packed ? packed->plain : w.format()) == DType::kBF16;
}

/// A call of linear keeps x here, in both forms, and then what each worker needs.
struct Scratch {
  std::size_t vectors, tiles, worker;  // bytes
  Scratch(std::size_t rows, std::size_t columns)
      : vectors((packed_floats(rows, columns) * sizeof(float) + 63) / 64 * 64),
        tiles(with_tiles() ? tiled_bytes(std::min(rows, kChunkRows), columns) : 0),
        worker(kStripFloats * sizeof(float)) {
    if (with_tiles())
      worker = std::max(worker, TiledSums::scratch_bytes(std::min(rows, kChunkRows), kMaxStrip));
  }
  std::size_t all(std::size_t threads) const { return vectors + tiles + threads * worker; }
};

/// Weight rows per strip: enough strips to even out a slow worker, each long enough that a block of
/// x read into L2 serves many of them.
std::size_t strip_rows(std::size_t m, std::span<const Projection> projections,
                       std::size_t threads) {
  std::size_t all = 0;
  for (const Projection& p : projections) all += to_size(p.w.rows());
  const std::size_t least = m > 8 ? 64 : 16;
  const std::size_t even = (all / (threads * 4) + 15) / 16 * 16;
  return std::clamp(even, least, kMaxStrip);
}

/// Weight rows [j, j + length) of a projection, as far as there are such, for rows of x from
/// `first` on.
Strip strip_of(const Projection& p, std::size_t j, std::size_t length, std::size_t first) {
  Strip strip;
  strip.w = p.w;
  strip.first = j;
  strip.count = std::min(length, to_size(p.w.rows()) - j);
  strip.bias = p.bias.empty()
                   ? nullptr
                   : reinterpret_cast<const std::uint8_t*>(p.bias.data()) + j * sizeof(float);
  strip.ld = to_size(p.y.dim(1));
  strip.y = reinterpret_cast<float*>(p.y.data()) + first * strip.ld + to_size(p.first_column) + j;
  strip.accumulate = p.accumulate;
  return strip;
}

}  // namespace

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

std::size_t linear_scratch_bytes(std::int64_t rows, std::int64_t columns, std::size_t threads) {
  return Scratch(to_size(rows), to_size(columns)).all(threads);
}

void linear(Pool& pool, std::byte* scratch, ConstTensorView x,
            std::span<const Projection> projections) {
  const auto run_one = HWY_DYNAMIC_DISPATCH(run_strip);
  const auto run_tiled = HWY_DYNAMIC_DISPATCH(run_tiled_strip);
  const auto pack_one = HWY_DYNAMIC_DISPATCH(pack);
  const std::size_t n = to_size(x.dim(0)), k = to_size(x.dim(1));
  const Scratch parts(n, k);
  float* const packed = reinterpret_cast<float*>(scratch);
  std::byte* const tiles = scratch + parts.vectors;
  std::byte* const of_workers = tiles + parts.tiles;
  const std::size_t length = strip_rows(n, projections, pool.size());
  const auto strips_of = [&](const Projection& p) {
    return (to_size(p.w.rows()) + length - 1) / length;
  };
  std::size_t strips = 0;
  bool any_tiled = false, all_tiled = true;
  for (const Projection& p : projections) {
    strips += strips_of(p);
    const bool tiled = with_tiles(p.w);
    any_tiled = any_tiled || tiled;
    all_tiled = all_tiled && tiled;
  }

  for (std::size_t first = 0; first < n; first += kChunkRows) {
    const std::size_t m = std::min(kChunkRows, n - first);
    const float* rows = reinterpret_cast<const float*>(x.data()) + first * k;
    const std::size_t blocks = (k + kBlock - 1) / kBlock;
    const auto pack_block = [&](std::size_t b, std::size_t) {
      if (any_tiled) tile_block(rows, m, k, b * kBlock, tiles);
      if (!all_tiled) pack_one(rows, m, k, b * kBlock, packed);
    };
    if (m * k <= 16 * 1024) {  // packed faster than a worker wakes up
      for (std::size_t b = 0; b < blocks; ++b) pack_block(b, 0);
    } else {
      pool.for_each(blocks, pack_block);
    }
    pool.for_each(strips, [&](std::size_t index, std::size_t worker) {
      const Projection* p = projections.data();
      for (; index >= strips_of(*p); ++p) index -= strips_of(*p);
      const Strip strip = strip_of(*p, index * length, length, first);
      std::byte* const own = of_workers + worker * parts.worker;
      if (with_tiles(p->w))
        run_tiled(tiles, m, strip, own);
      else
        run_one(packed, m, strip, reinterpret_cast<float*>(own));
    });
  }
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
