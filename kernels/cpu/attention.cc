// Attention over the committed prefix and a node's ancestors. Softmax uses the exact maximum, and
// weights meet values one slot after another: a masked slot adds an exact zero wherever it lies, so
// a tree node's output has the bits of decoding its path alone (math.md "Arithmetic on the CPU").
// Blocks of slots that lie before the windows of all its queries are not read.
#include "kernels/cpu/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/tree_mask.h"

#ifndef CANOPY_KERNELS_CPU_ATTENTION_ONCE
#define CANOPY_KERNELS_CPU_ATTENTION_ONCE
namespace canopy::cpu {

constexpr std::size_t kQueryRows = 48;  // query rows (of all heads that share a key) per block
constexpr std::size_t kValueRows = 32;  // rows of V unpacked at a time
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

inline std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

/// Everything a block of queries needs to know.
struct QueryBlock {
  const TreeAttention* call;
  std::size_t kv_head, group;  // group: query heads per kv head
  std::size_t first, count;    // query rows of this kv head: node * group + head within the group
  float* scratch;
};

/// The slots that some query of a block sees, and those between them.
struct Span {
  std::size_t first, end;  // first: a multiple of kKvBlock
  std::size_t size() const { return end - first; }
};

/// A thread's scratch, in floats from its start.
struct Layout {
  std::size_t x, packed, sums, values, panels, scores, end;
  std::size_t score_ld, value_ld;
  Layout(std::size_t rows, std::size_t head_dim, std::size_t context) {
    const std::size_t padded = round_up(head_dim, kMaxLanes);
    value_ld = padded + kMaxLanes;  // and a vector of ones, whose sum is the sum of the weights
    score_ld = round_up(context, kMaxLanes);
    x = 0;
    packed = x + kQueryRows * padded;
    sums = packed + kQueryRows * padded;
    values = sums + kQueryRows * value_ld;
    panels = values + kValueRows * value_ld;
    scores = panels + kPanelFloats;
    end = scores + rows * score_ld;
  }
};

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_ATTENTION_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// out[R][N vectors] += p[R][t] * v[t][N vectors], t in order.
template <int R, int N>
HWY_INLINE void weigh_tile(const float* p, size_t ldp, const float* v, size_t ldv, size_t count,
                           float* out, size_t ld) {
  const Floats d;
  Vec acc[R][N];
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c)
      acc[m][c] = hn::Load(d, out + static_cast<size_t>(m) * ld + static_cast<size_t>(c) * kLanes);
  for (size_t t = 0; t < count; ++t) {
    Vec ps[R];
#pragma GCC unroll 8
    for (int m = 0; m < R; ++m) ps[m] = hn::Set(d, p[static_cast<size_t>(m) * ldp + t]);
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c) {
      const Vec vs = hn::Load(d, v + t * ldv + static_cast<size_t>(c) * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < R; ++m) acc[m][c] = hn::MulAdd(ps[m], vs, acc[m][c]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c)
      hn::Store(acc[m][c], d, out + static_cast<size_t>(m) * ld + static_cast<size_t>(c) * kLanes);
}

template <int R>
HWY_INLINE void weigh_rows(const float* p, size_t ldp, const float* v, size_t width, size_t ldv,
                           size_t count, float* out, size_t ld) {
  size_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes)
    weigh_tile<R, 4>(p, ldp, v + c, ldv, count, out + c, ld);
  for (; c < width; c += kLanes) weigh_tile<R, 1>(p, ldp, v + c, ldv, count, out + c, ld);
}

/// Bounds the scores of a row, `ld` in whole vectors.
HWY_INLINE void bound(float* scores, size_t ld, float cap) {
  const Floats d;
  const Vec caps = hn::Set(d, cap);
  for (size_t t = 0; t < ld; t += kLanes)
    hn::Store(capped(hn::Load(d, scores + t), caps), d, scores + t);
}

/// Takes slope x distance from each score. Each has two roundings, one by one and in a vector.
HWY_INLINE void lean(float* scores, const Span& span, float slope, const TreeMask& mask,
                     std::int64_t node) {
  const Floats d;
  const auto slot_of = [&](size_t t) { return static_cast<std::int64_t>(span.first + t); };
  const auto prefix = static_cast<size_t>(mask.prefix.value);
  const size_t of_prefix = prefix > span.first ? prefix - span.first : 0;
  const Vec slopes = hn::Set(d, slope);
  size_t t = 0;
  if (t < of_prefix) {
    const auto apart = static_cast<size_t>(mask.distance(node, slot_of(0)));
    for (; t + kLanes <= of_prefix; t += kLanes) {
      const Vec distance = hn::Sub(hn::Set(d, static_cast<float>(apart - t)), hn::Iota(d, 0));
      hn::Store(hn::Sub(hn::Load(d, scores + t), hn::Mul(slopes, distance)), d, scores + t);
    }
    for (; t < of_prefix; ++t) scores[t] -= slope * static_cast<float>(apart - t);
  }
  for (; t < span.size(); ++t)
    if (mask.sees(node, slot_of(t)))
      scores[t] -= slope * static_cast<float>(mask.distance(node, slot_of(t)));
}

/// Scores of one query row become weights exp(score - max); slots it does not see weigh zero.
/// Returns the weight of the row's sink.
HWY_INLINE float weigh_slots(float* scores, const Span& span, size_t ld, float sink,
                             const TreeMask& mask, std::int64_t node) {
  const Floats d;
  const auto behind = static_cast<std::int64_t>(span.end);
  const auto begin = static_cast<std::int64_t>(span.first);
  std::fill_n(scores, mask.first(node) - begin, kUnseen);
  std::int64_t slot = mask.ancestors == nullptr ? mask.end(node) : mask.prefix.value;
  for (slot = std::max(slot, begin); slot < behind; ++slot)
    if (!mask.sees(node, slot)) scores[slot - begin] = kUnseen;
  for (size_t t = span.size(); t < ld; ++t) scores[t] = kUnseen;
  Vec largest = hn::Set(d, sink);
  for (size_t t = 0; t < ld; t += kLanes) largest = hn::Max(largest, hn::Load(d, scores + t));
  largest = hn::MaxOfLanes(d, largest);
  for (size_t t = 0; t < ld; t += kLanes)
    hn::Store(hn::Exp(d, hn::Sub(hn::Load(d, scores + t), largest)), d, scores + t);
  return hn::GetLane(hn::Exp(d, hn::Sub(hn::Set(d, sink), largest)));
}

void attend_block(const QueryBlock& block) {
  const TreeAttention& call = *block.call;
  const size_t hd = static_cast<size_t>(call.q.dim(2)), heads = static_cast<size_t>(call.q.dim(1));
  const size_t n = block.count;
  const TreeMask mask = tree_mask(call);
  const auto node_of = [&](size_t i) {
    return static_cast<std::int64_t>((block.first + i) / block.group);
  };
  std::int64_t first = mask.first(node_of(0));
  for (std::int64_t node = node_of(0); node <= node_of(n - 1); ++node)
    first = std::min(first, mask.first(node));
  // The block's last node sees no later one: nodes are numbered parents first.
  const Span span{static_cast<size_t>(first / kKvBlock * kKvBlock),
                  static_cast<size_t>(mask.end(node_of(n - 1)))};
  const Layout at(n, hd, span.size());
  const size_t width = round_up(hd, kLanes);  // of sums and values; a vector for the weights' sum
  float* const x = block.scratch + at.x;
  float* const packed = block.scratch + at.packed;
  float* const sums = block.scratch + at.sums;
  float* const values = block.scratch + at.values;
  float* const scores = block.scratch + at.scores;
  const auto head_of_row = [&](size_t i) {
    const size_t row = block.first + i;
    return (row / block.group * heads + block.kv_head * block.group + row % block.group) * hd;
  };

  const auto* q = reinterpret_cast<const float*>(call.q.data());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < hd; ++j) x[i * hd + j] = q[head_of_row(i) + j] * call.scale;
  for (size_t k0 = 0; k0 < hd; k0 += kBlock) pack_block(x, n, hd, k0, packed);
  const DType dtype = call.kv.k.dtype();
  const size_t bytes = row_bytes(dtype, call.q.dim(2));
  const SlotTable table = slot_table(call.kv);
  const auto stored = [&](const TensorView& cache, size_t slot) {
    return cache.data() +
           table.at(static_cast<std::int64_t>(block.kv_head), static_cast<std::int64_t>(slot));
  };
  for (size_t t = span.first; t < span.end; t += kKvBlock) {
    const auto* const keys = reinterpret_cast<const uint8_t*>(stored(call.kv.k, t));
    const size_t count = std::min<size_t>(kKvBlock, span.end - t);
    products(packed, n, 0, n, weight_rows_of(dtype, keys, count, hd), scores + t - span.first,
             at.score_ld, block.scratch + at.panels);
  }
  const auto* slopes = reinterpret_cast<const float*>(call.slopes.data());
  const auto* sinks = reinterpret_cast<const float*>(call.sinks.data());
  std::fill(sums, sums + n * at.value_ld, 0.0f);
  for (size_t i = 0; i < n; ++i) {
    float* const row = scores + i * at.score_ld;
    const size_t head = block.kv_head * block.group + (block.first + i) % block.group;
    if (call.cap != 0) bound(row, at.score_ld, call.cap);
    if (slopes != nullptr) lean(row, span, slopes[head], mask, node_of(i));
    const float sink = sinks == nullptr ? kUnseen : sinks[head];
    // The first term of the weights' sum.
    sums[i * at.value_ld + width] = weigh_slots(row, span, at.score_ld, sink, mask, node_of(i));
  }

  for (size_t t = 0; t < kValueRows; ++t)
    std::fill(values + t * at.value_ld + width, values + (t + 1) * at.value_ld, 1.0f);
  const auto value_row = [&](std::size_t slot) -> StoredRow {
    return {stored(call.kv.v, slot), bytes, static_cast<std::int64_t>(hd)};
  };
  const Unpack unpack = unpack_of(dtype);
  for (size_t t = 0; t < span.size(); t += kValueRows) {
    const size_t count = std::min(kValueRows, span.size() - t);
    for (size_t j = 0; j < count; ++j)
      unpack(value_row(span.first + t + j), 0, hd, values + j * at.value_ld, kLanes);
    size_t i = 0;
    for (; i + 3 <= n; i += 3)
      weigh_rows<3>(scores + i * at.score_ld + t, at.score_ld, values, width + kLanes, at.value_ld,
                    count, sums + i * at.value_ld, at.value_ld);
    for (; i < n; ++i)
      weigh_rows<1>(scores + i * at.score_ld + t, at.score_ld, values, width + kLanes, at.value_ld,
                    count, sums + i * at.value_ld, at.value_ld);
  }
  auto* out = reinterpret_cast<float*>(call.out.data());
  for (size_t i = 0; i < n; ++i) {
    const float weight = sums[i * at.value_ld + width];
    for (size_t j = 0; j < hd; ++j) out[head_of_row(i) + j] = sums[i * at.value_ld + j] / weight;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(attend_block);

namespace {

constexpr std::size_t kScoreFloats = std::size_t{2} << 20;  // per thread, for more than one row

std::size_t thread_floats(std::size_t query_rows, std::size_t head_dim, std::size_t context) {
  const std::size_t all = std::min(kQueryRows, query_rows) * round_up(context, kMaxLanes);
  const std::size_t bound = std::max(kScoreFloats, round_up(context, kMaxLanes));
  return round_up(Layout(0, head_dim, context).end + std::min(all, bound), 64);
}

/// The size that no block's span exceeds.
std::size_t longest_span(const TreeAttention& call) {
  const TreeMask mask = tree_mask(call);
  const std::int64_t first = mask.least_first(0) / kKvBlock * kKvBlock;
  return to_size(mask.end(call.q.dim(0) - 1) - first);
}

}  // namespace

std::size_t attention_scratch_bytes(const Workload& largest, std::size_t threads) {
  if (largest.kv_heads == 0) return 0;
  return threads * sizeof(float) *
         thread_floats(to_size(largest.rows * (largest.heads / largest.kv_heads)),
                       to_size(largest.head_dim), to_size(largest.context));
}

void attend(Pool& pool, std::byte* scratch, const TreeAttention& call) {
  const auto run = HWY_DYNAMIC_DISPATCH(attend_block);
  const std::size_t n = to_size(call.q.dim(0)), kv_heads = to_size(call.kv.k.dim(0));
  const std::size_t group = to_size(call.q.dim(1)) / kv_heads, rows = n * group;
  const std::size_t span = longest_span(call);
  const std::size_t floats = thread_floats(rows, to_size(call.q.dim(2)), span);
  // Rows per block change no bits: as many as share keys well, fit in the scratch, and leave work
  // for every thread.
  const std::size_t even = (rows * kv_heads + pool.size() - 1) / pool.size();
  const std::size_t fit = kScoreFloats / round_up(span, kMaxLanes);
  const std::size_t length = std::max<std::size_t>(1, std::min({kQueryRows, even, fit, rows}));
  const std::size_t blocks = (rows + length - 1) / length;
  pool.for_each(blocks * kv_heads, [&](std::size_t index, std::size_t worker) {
    const std::size_t first = index % blocks * length;
    run({&call, index / blocks, group, first, std::min(length, rows - first),
         reinterpret_cast<float*>(scratch) + worker * floats});
  });
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
