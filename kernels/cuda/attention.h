#pragma once
// Attention of tree nodes over the committed prefix and their own ancestors, without a matrix of
// scores in memory: keys pass by in tiles, and each row keeps the maximum, the sum and the weighted
// values of what it has seen so far, rescaled when the maximum grows.
// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867);
// Dao et al., "FlashAttention" (arXiv:2205.14135), Algorithm 1.
#include "kernels/cuda/block.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// Where a tree's node sits and what it sees. Rows of a call are nodes [first_node, first_node +
/// n).
struct TreeMask {
  const std::uint64_t* ancestors;  // [n, words]; null: a causal chain
  std::int64_t words;
  DeviceScalar<std::int64_t> prefix;
  std::int64_t first_node;

  /// Slots that row `row` may see lie below this.
  CANOPY_KERNEL std::int64_t end(std::int64_t row) const {
    return prefix.value + first_node + row + 1;
  }
  CANOPY_KERNEL bool sees(std::int64_t row, std::int64_t slot) const {
    if (slot < prefix.value) return true;
    const std::int64_t node = slot - prefix.value;
    if (node > first_node + row) return false;
    return ancestors == nullptr ||
           (ancestors[row * words + node / 64] >> (node % 64) & std::uint64_t{1}) != 0;
  }
};

/// Four floats at a multiple of 16 bytes, which a thread reads at once.
struct alignas(16) Quad {
  float of[4];
};
CANOPY_KERNEL inline Quad quad_at(const float* from) {
  return load<Quad>(reinterpret_cast<const std::byte*>(from));
}

/// Ops::attend. A block works on kRows rows that share a kv head: row r is node r / group with head
/// r % group of that kv head's group, so that its keys are read once for the whole group.
/// kQuads: of output columns per thread; they hold head_dim if kQuads * 64 does. Format: of the
/// caches, a plain one.
template <int kQuads, class Format>
struct Attend {
  static constexpr int kThreads = 256, kRows = kQuads > 2 ? 32 : 64, kKeys = 32;
  static_assert(kKvBlock % kKeys == 0, "a tile of keys lies in one block");
  // Scores: a thread has kScoreRows rows x 4 keys. Outputs: kOutRows rows x kQuads quads.
  static constexpr int kKeyThreads = 8, kQuadThreads = 16;
  static constexpr int kRowStep = kThreads / kKeyThreads, kOutStep = kThreads / kQuadThreads;
  static constexpr int kScoreRows = kRows / kRowStep, kOutRows = kRows / kOutStep;

  const float* q;          // [n, heads, head_dim]
  const std::byte *k, *v;  // [kv_heads, slots, head_dim]
  std::int64_t n, group, kv_heads, head_dim, slots;
  SlotTable table;
  TreeMask tree;
  float scale;
  float* out;  // [n, heads, head_dim]

  Grid grid() const {
    const auto row = static_cast<std::size_t>(stride());
    const std::size_t floats = (kRows + kKeys) * row + kRows * (kKeys + 1) + std::size_t{3} * kRows;
    return {kv_heads * tiles(), kThreads, floats * sizeof(float)};
  }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    TreeMask mask = tree;
    mask.prefix = tree.prefix.now();  // once
    const std::int64_t kv_head = block.index() / tiles(), first = block.index() % tiles() * kRows;
    const auto count = static_cast<int>(n * group - first < kRows ? n * group - first : kRows);
    const int row_floats = stride();
    float* const queries = block.template shared<float>(kRows * row_floats);
    float* const tile = block.template shared<float>(kKeys * row_floats);  // keys, then values
    float* const scores = block.template shared<float>(kRows * (kKeys + 1));
    float* const most = block.template shared<float>(kRows);
    float* const sum = block.template shared<float>(kRows);
    float* const shrink = block.template shared<float>(kRows);
    struct Outputs {
      Quad of[kOutRows][kQuads] = {};
    };
    auto outputs = block.template each<Outputs>();

    block.step([&](int t) {
      for (int i = t; i < kRows * row_floats; i += kThreads) {
        const int r = i / row_floats, d = i % row_floats;
        queries[i] = r < count && d < head_dim ? q[at_row(first + r, kv_head) + d] * scale : 0.0f;
      }
      for (int r = t; r < kRows; r += kThreads) most[r] = -INFINITY, sum[r] = 0.0f;
    });

    const std::int64_t end = mask.end((first + count - 1) / group);
    for (std::int64_t key = 0; key < end; key += kKeys) {
      const auto keys = static_cast<int>(end - key < kKeys ? end - key : kKeys);
      block.step([&](int t) { fetch(k, kv_head, key, keys, tile, t); });
      block.step([&](int t) { score(mask, first, count, key, keys, queries, tile, scores, t); });
      block.step([&](int t) {
        for (int r = t; r < kRows; r += kThreads) {
          float* const of_row = scores + r * (kKeys + 1);
          float largest = most[r];
          for (int c = 0; c < kKeys; ++c) largest = fmaxf(largest, of_row[c]);
          // A row that has seen nothing yet keeps nothing: exp(-inf - -inf) would be NaN.
          shrink[r] = most[r] == -INFINITY ? 0.0f : expf(most[r] - largest);
          float more = 0;
          for (int c = 0; c < kKeys; ++c) {
            of_row[c] = of_row[c] == -INFINITY ? 0.0f : expf(of_row[c] - largest);
            more += of_row[c];
          }
          sum[r] = sum[r] * shrink[r] + more;
          most[r] = largest;
        }
        fetch(v, kv_head, key, keys, tile, t);
      });
      block.step([&](int t) {
        const int column = t % kQuadThreads, row = t / kQuadThreads;
        Quad(&mine)[kOutRows][kQuads] = outputs[t].of;
        CANOPY_UNROLL
        for (int i = 0; i < kOutRows; ++i) CANOPY_UNROLL
        for (int j = 0; j < kQuads; ++j) CANOPY_UNROLL
        for (int e = 0; e < 4; ++e) mine[i][j].of[e] *= shrink[row + kOutStep * i];
        for (int c = 0; c < keys; ++c) CANOPY_UNROLL
        for (int j = 0; j < kQuads; ++j) {
          const int d = 4 * (column + kQuadThreads * j);
          if (d >= head_dim) continue;
          const Quad value = quad_at(tile + c * row_floats + d);
          CANOPY_UNROLL
          for (int i = 0; i < kOutRows; ++i) CANOPY_UNROLL
          for (int e = 0; e < 4; ++e)
            mine[i][j].of[e] += scores[(row + kOutStep * i) * (kKeys + 1) + c] * value.of[e];
        }
      });
    }

    block.step([&](int t) {
      const int column = t % kQuadThreads, row = t / kQuadThreads;
      CANOPY_UNROLL
      for (int i = 0; i < kOutRows; ++i) CANOPY_UNROLL
      for (int j = 0; j < kQuads; ++j) CANOPY_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = row + kOutStep * i, d = 4 * (column + kQuadThreads * j) + e;
        if (r < count && d < head_dim)
          out[at_row(first + r, kv_head) + d] = outputs[t].of[i][j].of[e] / sum[r];
      }
    });
  }

 private:
  CANOPY_KERNEL std::int64_t tiles() const { return ceil_div<std::int64_t>(n * group, kRows); }
  /// Floats of a row in shared memory: whole quads, zeros behind head_dim, and one quad more, so
  /// that rows start in different banks.
  CANOPY_KERNEL int stride() const { return ceil_div(static_cast<int>(head_dim), 4) * 4 + 4; }
  CANOPY_KERNEL std::int64_t at_row(std::int64_t row, std::int64_t kv_head) const {
    return (row / group * kv_heads * group + kv_head * group + row % group) * head_dim;
  }

  /// Slots [key, key + keys) of the text, which lie in one block, as f32; zeros behind them, which
  /// no weight may turn into NaN.
  CANOPY_KERNEL void fetch(const std::byte* cache, std::int64_t kv_head, std::int64_t key, int keys,
                           float* tile, int t) const {
    const int row_floats = stride();
    const std::byte* const rows =
        cache + (kv_head * slots + table[key]) * bytes_of_row<Format>(head_dim);
    for (int i = t; i < kKeys * row_floats; i += kThreads) {
      const int r = i / row_floats, d = i % row_floats;
      tile[i] = r < keys && d < head_dim ? weight_at<Format>(rows, r * head_dim + d) : 0.0f;
    }
  }

  CANOPY_KERNEL void score(const TreeMask& mask, std::int64_t first, int count, std::int64_t key,
                           int keys, const float* queries, const float* tile, float* scores,
                           int t) const {
    const int column = t % kKeyThreads, row = t / kKeyThreads, row_floats = stride();
    float dots[kScoreRows][4] = {};
    for (int d = 0; d < row_floats - 4; d += 4) {
      Quad query[kScoreRows];
      CANOPY_UNROLL
      for (int i = 0; i < kScoreRows; ++i)
        query[i] = quad_at(queries + (row + kRowStep * i) * row_floats + d);
      CANOPY_UNROLL
      for (int j = 0; j < 4; ++j) {
        const Quad of_key = quad_at(tile + (column + kKeyThreads * j) * row_floats + d);
        CANOPY_UNROLL
        for (int i = 0; i < kScoreRows; ++i) CANOPY_UNROLL
        for (int e = 0; e < 4; ++e) dots[i][j] += query[i].of[e] * of_key.of[e];
      }
    }
    CANOPY_UNROLL
    for (int i = 0; i < kScoreRows; ++i) CANOPY_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int r = row + kRowStep * i, c = column + kKeyThreads * j;
      const bool seen = r < count && c < keys && mask.sees((first + r) / group, key + c);
      scores[r * (kKeys + 1) + c] = seen ? dots[i][j] : -INFINITY;
    }
  }
};

}  // namespace canopy::cuda
