#pragma once
// Attention of many nodes by matrix products, which a GPU's tensor cores compute (Ops::attend over
// keys and values in 16 bits). For a slice of the nodes, chunk of keys by chunk: scores = queries
// keys^T, weights by a largest score and a sum that each row carries from chunk to chunk, and
// values += weights values. Each product is one call for all kv heads. Layouts and bounds:
// kernels/gpu_scratch.h; how far it may be off: docs/math.md (C5).
// Sources: Milakov and Gimelshein (arXiv:1805.02867); Rabe and Staats, "Self-attention Does Not
// Need O(n^2) Memory" (arXiv:2112.05682).
#include "kernels/cuda/attention.h"
#include "kernels/cuda/matrix_product.h"
#include "kernels/gpu_scratch.h"

namespace canopy::cuda {

/// A slice of the nodes of a call, and the chunk of keys that it is at. Row r of a kv head is the
/// query of node r / group, as AttentionCall::vector_of has it; keys and values of a chunk are
/// gathered from the blocks that they lie in.
struct SliceOfAttention {
  AttentionCall call;                // of the slice's nodes
  std::int64_t begin = 0, keys = 0;  // of the chunk; whole blocks, zeros after the last key
  std::byte *k, *v;                  // [kv_heads, keys, head_dim] 16 bits
  std::byte* queries;                // [kv_heads, rows, head_dim] 16 bits
  float* scores;                     // [kv_heads, rows, keys]
  std::byte* weights;                // of that shape, 16 bits
  float* sums;                       // [kv_heads, rows, head_dim], of weighted values
  float *most, *sum;                 // [kv_heads, rows]: largest score, sum of weights

  /// The call's prefix is a number, as the host must know how many keys there are.
  SliceOfAttention(const AttentionCall& of_slice, const AttentionSlices& at, std::byte* scratch)
      : call(of_slice),
        k(scratch + at.keys),
        v(scratch + at.values),
        queries(scratch + at.queries),
        scores(reinterpret_cast<float*>(scratch + at.scores)),
        weights(scratch + at.weights),
        sums(reinterpret_cast<float*>(scratch + at.sums)),
        most(reinterpret_cast<float*>(scratch + at.state)),
        sum(most + all_rows()) {}

  CANOPY_KERNEL std::int64_t rows() const { return call.n * call.group; }
  CANOPY_KERNEL std::int64_t all_rows() const { return call.kv_heads * rows(); }
  CANOPY_KERNEL std::int64_t head_of(std::int64_t row) const {
    return row / rows() * call.group + row % rows() % call.group;
  }
  /// Place of element i of [kv_heads, rows, head_dim] in the call's q and out.
  CANOPY_KERNEL std::int64_t place_of(std::int64_t i) const {
    const std::int64_t row = i / call.head_dim;
    return call.vector_of(row % rows(), row / rows()) * call.head_dim + i % call.head_dim;
  }
  /// Keys that some row sees lie below this.
  CANOPY_KERNEL std::int64_t end() const { return call.tree.end(call.n - 1); }
  /// No row sees a key of a chunk before this one's.
  CANOPY_KERNEL std::int64_t first() const {
    return call.tree.least_first(0) / AttentionSlices::kKeys * AttentionSlices::kKeys;
  }
  CANOPY_KERNEL bool at_first() const { return begin == first(); }
  void go_to(std::int64_t key) {
    begin = key;
    const std::int64_t left = end() - begin;
    keys = left < AttentionSlices::kKeys ? ceil_div<std::int64_t>(left, kKvBlock) * kKvBlock
                                         : AttentionSlices::kKeys;
  }

  MatrixProduct product_of_scores(DType dtype) const {
    return {.x = queries,
            .w = k,
            .dtype = dtype,
            .n = rows(),
            .m = keys,
            .k = call.head_dim,
            .y = scores,
            .stride = keys,
            .count = call.kv_heads};
  }
  MatrixProduct product_of_values(DType dtype) const {
    return {.x = weights,
            .w = v,
            .dtype = dtype,
            .n = rows(),
            .m = call.head_dim,
            .k = keys,
            .y = sums,
            .stride = call.head_dim,
            .accumulate = !at_first(),
            .by_columns = true,
            .count = call.kv_heads};
  }
};

/// The queries, scaled and rounded. A thread for each element.
template <class Format>
struct RoundQueries {
  static constexpr int kThreads = 256;
  SliceOfAttention of;

  CANOPY_KERNEL std::int64_t count() const { return of.all_rows() * of.call.head_dim; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count()) return;
      store_float<Format>(of.queries, i, of.call.q[of.place_of(i)] * of.call.scale);
    });
  }
};

/// The chunk's keys and values, out of their blocks. A block of threads for each of these and each
/// kv head.
struct GatherKeys {
  static constexpr int kThreads = 256;
  SliceOfAttention of;

  Grid grid() const { return {2 * of.call.kv_heads * (of.keys / kKvBlock), kThreads}; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    struct alignas(16) Piece {
      std::uint32_t part[4];
    };
    const std::int64_t blocks = of.keys / kKvBlock, pieces = of.call.head_dim * 2 / 16;
    const std::int64_t head = block.index() / 2 / blocks, first = block.index() / 2 % blocks;
    const bool values = block.index() % 2 != 0;
    const std::int64_t key = of.begin + first * kKvBlock;
    const std::byte* const from = (values ? of.call.v : of.call.k) + of.call.table.at(head, key);
    std::byte* const to =
        (values ? of.v : of.k) + (head * of.keys + first * kKvBlock) * pieces * 16;
    const std::int64_t there = (of.end() - key) * pieces;  // the last block may be begun only
    block.step([&](int t) {
      for (std::int64_t i = t; i < kKvBlock * pieces; i += kThreads)
        store(to + 16 * i, i < there ? load<Piece>(from + 16 * i) : Piece{});
    });
  }
};

/// Scores become weights, relative to the largest score that the row has met so far; what the row
/// has summed before is rescaled to it. A warp for each row.
template <class Format>
struct WeighScores {
  static constexpr int kThreads = 128, kLanes = 32, kRows = kThreads / kLanes;
  static constexpr int kQuads = static_cast<int>(AttentionSlices::kKeys) / (4 * kLanes);
  SliceOfAttention of;

  Grid grid() const { return {ceil_div<std::int64_t>(of.all_rows(), kRows), kThreads}; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    auto scores = block.template each<Scores>();
    auto largest = block.template each<float>(), sums = block.template each<float>();
    auto shrink = block.template each<float>();
    const auto row_of = [&](int t) { return block.index() * kRows + t / kLanes; };
    block.step([&](int t) {
      largest[t] = -INFINITY;
      if (row_of(t) < of.all_rows()) largest[t] = read(row_of(t), t % kLanes, scores[t]);
    });
    block.template lanes_most<kLanes>(largest);
    block.step([&](int t) {
      if (row_of(t) >= of.all_rows()) return;
      const float before =
          of.at_first() ? of.call.sink_of(of.head_of(row_of(t))) : of.most[row_of(t)];
      largest[t] = fmaxf(largest[t], before);
      // A row that has seen nothing yet has nothing to rescale: exp(-inf - -inf) would be NaN.
      shrink[t] = before == -INFINITY ? 0.0f : expf(before - largest[t]);
      sums[t] = weigh(row_of(t), t % kLanes, largest[t], scores[t]);
    });
    block.template lanes_sum<kLanes>(sums);
    block.step([&](int t) {
      const std::int64_t row = row_of(t);
      if (row >= of.all_rows()) return;
      if (!of.at_first() && shrink[t] != 1.0f)
        for (std::int64_t d = t % kLanes; d < of.call.head_dim; d += kLanes)
          of.sums[row * of.call.head_dim + d] *= shrink[t];
      if (t % kLanes != 0) return;
      of.most[row] = largest[t];
      // Before the first chunk there is the sink, of weight 1.
      of.sum[row] = (of.at_first() ? 1.0f : of.sum[row]) * shrink[t] + sums[t];
    });
  }

 private:
  struct Scores {
    Quad of[kQuads] = {};
  };
  CANOPY_KERNEL static std::int64_t column(int quad, int lane) {
    return 4 * (lane + kLanes * quad);
  }

  /// The lane's scores, -inf where the row does not see the key. Returns the largest.
  CANOPY_KERNEL float read(std::int64_t row, int lane, Scores& scores) const {
    const std::int64_t node = row % of.rows() / of.call.group;
    const float slope = of.call.slopes == nullptr ? 0.0f : of.call.slopes[of.head_of(row)];
    const std::int64_t from = of.call.tree.first(node);
    const bool all_seen = of.begin >= from && of.begin + of.keys <= of.call.tree.prefix.value;
    float largest = -INFINITY;
    CANOPY_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const std::int64_t first = column(j, lane);
      if (first >= of.keys) continue;
      Quad& quad = scores.of[j];
      quad = quad_at(of.scores + row * of.keys + first);
      CANOPY_UNROLL
      for (int e = 0; e < 4; ++e) {
        const std::int64_t slot = of.begin + first + e;
        if (!all_seen && (slot < from || !of.call.tree.sees(node, slot)))
          quad.of[e] = -INFINITY;
        else if (of.call.cap != 0.0f)
          quad.of[e] = capped(quad.of[e], of.call.cap);
        if (slope != 0.0f && quad.of[e] != -INFINITY)
          quad.of[e] -=
              rounded_product(slope, static_cast<float>(of.call.tree.distance(node, slot)));
        largest = fmaxf(largest, quad.of[e]);
      }
    }
    return largest;
  }
  /// Writes the lane's weights, rounded. Returns the sum of what was written.
  CANOPY_KERNEL float weigh(std::int64_t row, int lane, float largest, const Scores& scores) const {
    struct alignas(8) Four {
      std::uint16_t of[4];
    };
    float sum = 0.0f;
    CANOPY_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const std::int64_t first = column(j, lane);
      if (first >= of.keys) continue;
      Four four;
      CANOPY_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float score = scores.of[j].of[e];
        const std::uint16_t weight =
            Format::encode(score == -INFINITY ? 0.0f : expf(score - largest));
        four.of[e] = weight;
        sum += Format::decode(reinterpret_cast<const std::byte*>(&weight), 0);
      }
      store(of.weights + (row * of.keys + first) * 2, four);
    }
    return sum;
  }
};

/// The result, from sums of weighted values and of weights. A thread for each element.
struct DivideSums {
  static constexpr int kThreads = 256;
  SliceOfAttention of;

  CANOPY_KERNEL std::int64_t count() const { return of.all_rows() * of.call.head_dim; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i < count()) of.call.out[of.place_of(i)] = of.sums[i] / of.sum[i / of.call.head_dim];
    });
  }
};

}  // namespace canopy::cuda
