// y = x W^T on the CPU. The sums are tile-inl.h's; here is who computes which of them.
#include "kernels/cpu/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
#include "kernels/cpu/tile-inl.h"

#ifndef CANOPY_KERNELS_CPU_LINEAR_ONCE
#define CANOPY_KERNELS_CPU_LINEAR_ONCE
namespace canopy::cpu {

constexpr std::size_t kMaxStrip = 256;  // weight rows: kPassRows x kMaxStrip sums fit in L2
constexpr std::size_t kStripFloats = kPanelFloats + kPassRows * kMaxStrip;

/// Some weight rows of one projection, and where their sums go.
struct Strip {
  const std::uint8_t* w;
  const RowOffset* offsets;  // of packed rows
  DType dtype;
  std::size_t count, k;      // weight rows, and their columns
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

/// y = (y +) (sums + bias) for m packed rows. scratch: kStripFloats.
void run_strip(const float* packed, std::size_t m, const Strip& strip, float* scratch) {
  float* const panels = scratch;
  float* const sums = scratch + kPanelFloats;  // [kPassRows, strip.count rounded up to 4]
  const WeightRows w =
      strip.offsets == nullptr
          ? weight_rows_of(strip.dtype, strip.w, strip.count, strip.k)
          : packed_rows_of(strip.dtype, strip.w, strip.offsets, strip.count, strip.k);
  const std::size_t ld = (w.count + kTileColumns - 1) / kTileColumns * kTileColumns;
  for (std::size_t m0 = 0; m0 < m; m0 += kPassRows) {
    const std::size_t m1 = std::min(m, m0 + kPassRows);
    products(packed, m, m0, m1, w, sums, ld, panels);
    for (std::size_t i = m0; i < m1; ++i) {
      float* from = sums + (i - m0) * ld;
      float* to = strip.y + i * strip.ld;
      if (strip.bias != nullptr)
        for (std::size_t j = 0; j < w.count; ++j) {
          float bias;
          std::memcpy(&bias, strip.bias + j * sizeof bias, sizeof bias);
          from[j] += bias;
        }
      if (strip.accumulate == Accumulate::kYes)
        for (std::size_t j = 0; j < w.count; ++j) to[j] += from[j];
      else
        std::memcpy(to, from, w.count * sizeof(float));
    }
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }
void pack(const float* x, std::size_t m, std::size_t k, std::size_t k0, float* packed) {
  pack_block(x, m, k, k0, packed);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(run_strip);
HWY_EXPORT(target_name);
HWY_EXPORT(pack);

namespace {

// Rows of x packed at a time: bounds the scratch; a weight is read again from memory only every
// kChunkRows rows, some hundred operations per byte.
constexpr std::size_t kChunkRows = 2 * kPassRows;
std::size_t packed_floats(std::size_t rows, std::size_t columns) {
  return std::min(rows, kChunkRows) * ((columns + kMaxLanes - 1) / kMaxLanes * kMaxLanes);
}

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

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

}  // namespace

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

std::size_t linear_scratch_bytes(std::int64_t rows, std::int64_t columns, std::size_t threads) {
  return (packed_floats(to_size(rows), to_size(columns)) + threads * kStripFloats) * sizeof(float);
}

void linear(Pool& pool, std::byte* scratch, ConstTensorView x,
            std::span<const Projection> projections) {
  const auto run_one = HWY_DYNAMIC_DISPATCH(run_strip);
  const auto pack_one = HWY_DYNAMIC_DISPATCH(pack);
  const std::size_t n = to_size(x.dim(0)), k = to_size(x.dim(1));
  float* const packed = reinterpret_cast<float*>(scratch);
  float* const strips_scratch = packed + packed_floats(n, k);
  const std::size_t length = strip_rows(n, projections, pool.size());
  const auto strips_of = [&](const Projection& p) {
    return (to_size(p.w.rows()) + length - 1) / length;
  };
  std::size_t strips = 0;
  for (const Projection& p : projections) strips += strips_of(p);

  for (std::size_t first = 0; first < n; first += kChunkRows) {
    const std::size_t m = std::min(kChunkRows, n - first);
    const float* rows = reinterpret_cast<const float*>(x.data()) + first * k;
    const std::size_t blocks = (k + kBlock - 1) / kBlock;
    if (m * k <= 16 * 1024) {  // packed faster than a worker wakes up
      for (std::size_t b = 0; b < blocks; ++b) pack_one(rows, m, k, b * kBlock, packed);
    } else {
      pool.for_each(blocks,
                    [&](std::size_t b, std::size_t) { pack_one(rows, m, k, b * kBlock, packed); });
    }
    pool.for_each(strips, [&](std::size_t index, std::size_t worker) {
      const Projection* p = projections.data();
      for (; index >= strips_of(*p); ++p) index -= strips_of(*p);
      const std::size_t j = index * length;
      Strip strip;
      strip.w = reinterpret_cast<const std::uint8_t*>(p->w.row(static_cast<std::int64_t>(j)).data);
      strip.offsets = p->w.row_offsets() == nullptr ? nullptr : p->w.row_offsets() + j;
      strip.dtype = p->w.format();
      strip.count = std::min(length, to_size(p->w.rows()) - j);
      strip.k = k;
      strip.bias = p->bias.empty()
                       ? nullptr
                       : reinterpret_cast<const std::uint8_t*>(p->bias.data()) + j * sizeof(float);
      strip.ld = to_size(p->y.dim(1));
      strip.y =
          reinterpret_cast<float*>(p->y.data()) + first * strip.ld + to_size(p->first_column) + j;
      strip.accumulate = p->accumulate;
      run_one(packed, m, strip, strips_scratch + worker * kStripFloats);
    });
  }
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
