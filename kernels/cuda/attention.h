#pragma once
// Attention of tree nodes over the committed prefix and their own ancestors, without a matrix of
// scores in memory: keys pass by in tiles, and each row keeps the maximum, the sum and the weighted
// values of what it has seen so far, rescaled when the maximum grows.
// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867);
// Dao et al., "FlashAttention" (arXiv:2205.14135), Algorithm 1.
#include "kernels/cuda/block.h"

namespace canopy::cuda {

/// Where a tree's node sits and what it sees. Rows of a call are nodes [first_node, first_node +
/// n).
struct TreeMask {
  const std::uint64_t* ancestors;  // [n, words]; null: a causal chain
  std::int64_t words, prefix, first_node;

  /// Slots that row `row` may see lie below this.
  CANOPY_KERNEL std::int64_t end(std::int64_t row) const { return prefix + first_node + row + 1; }
  CANOPY_KERNEL bool sees(std::int64_t row, std::int64_t slot) const {
    if (slot < prefix) return true;
    const std::int64_t node = slot - prefix;
    if (node > first_node + row) return false;
    return ancestors == nullptr ||
           (ancestors[row * words + node / 64] >> (node % 64) & std::uint64_t{1}) != 0;
  }
};

/// Ops::attend. A block works on kRows rows that share a kv head: row r is node r / group with head
/// r % group of that kv head's group, so that its keys are read once for the whole group.
/// kDims: output columns per thread, at least head_dim / kColumnThreads.
template <int kDims>
struct Attend {
  static constexpr int kThreads = 256, kRows = kDims > 8 ? 32 : 64, kKeys = 32;
  // Scores: a thread has kRows / 32 rows x 4 keys. Outputs: kRows / 16 rows x kDims columns.
  static constexpr int kKeyThreads = 8, kColumnThreads = 16;
  static constexpr int kScoreRows = kRows / (kThreads / kKeyThreads);
  static constexpr int kOutRows = kRows / (kThreads / kColumnThreads);
  static constexpr int kPad = 4;  // floats: rows of shared memory start in different banks

  const float* q;          // [n, heads, head_dim]
  const std::byte *k, *v;  // [kv_heads, slots, head_dim]
  DType dtype;
  std::int64_t n, group, kv_heads, head_dim, slots;
  TreeMask mask;
  float scale;
  float* out;  // [n, heads, head_dim]

  CANOPY_KERNEL std::int64_t tiles() const { return ceil_div<std::int64_t>(n * group, kRows); }
  Grid grid() const {
    const auto stride = static_cast<std::size_t>(head_dim + kPad);
    const std::size_t floats =
        (kRows + kKeys) * stride + kRows * (kKeys + 1) + std::size_t{3} * kRows;
    return {kv_heads * tiles(), kThreads, floats * sizeof(float)};
  }

  CANOPY_KERNEL std::int64_t at_row(std::int64_t row, std::int64_t kv_head) const {
    return (row / group * kv_heads * group + kv_head * group + row % group) * head_dim;
  }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t kv_head = block.index() / tiles(), first = block.index() % tiles() * kRows;
    const auto count = static_cast<int>(n * group - first < kRows ? n * group - first : kRows);
    const auto columns = static_cast<int>(head_dim);
    const int stride = columns + kPad;
    float* const queries = block.template shared<float>(kRows * stride);
    float* const tile = block.template shared<float>(kKeys * stride);  // keys, then values
    float* const scores = block.template shared<float>(kRows * (kKeys + 1));
    float* const most = block.template shared<float>(kRows);
    float* const sum = block.template shared<float>(kRows);
    float* const shrink = block.template shared<float>(kRows);
    struct Outputs {
      float of[kOutRows][kDims] = {};
    };
    auto outputs = block.template each<Outputs>();

    block.step([&](int t) {
      for (int i = t; i < kRows * columns; i += kThreads) {
        const int r = i / columns, d = i % columns;
        queries[r * stride + d] = r < count ? q[at_row(first + r, kv_head) + d] * scale : 0.0f;
      }
      for (int r = t; r < kRows; r += kThreads) most[r] = -INFINITY, sum[r] = 0.0f;
    });

    const std::int64_t end = mask.end((first + count - 1) / group);
    for (std::int64_t key = 0; key < end; key += kKeys) {
      const auto keys = static_cast<int>(end - key < kKeys ? end - key : kKeys);
      block.step([&](int t) { fetch(k, kv_head, key, keys, tile, t); });
      block.step([&](int t) {
        const int column = t % kKeyThreads, row = t / kKeyThreads;
        float dots[kScoreRows][4] = {};
        for (int d = 0; d < columns; ++d) CANOPY_UNROLL
        for (int i = 0; i < kScoreRows; ++i) CANOPY_UNROLL
        for (int j = 0; j < 4; ++j)
          dots[i][j] +=
              queries[(row + 32 * i) * stride + d] * tile[(column + kKeyThreads * j) * stride + d];
        CANOPY_UNROLL
        for (int i = 0; i < kScoreRows; ++i) CANOPY_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int r = row + 32 * i, c = column + kKeyThreads * j;
          const bool seen = r < count && c < keys && mask.sees((first + r) / group, key + c);
          scores[r * (kKeys + 1) + c] = seen ? dots[i][j] : -INFINITY;
        }
      });
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
        const int column = t % kColumnThreads, row = t / kColumnThreads;
        float(&mine)[kOutRows][kDims] = outputs[t].of;
        CANOPY_UNROLL
        for (int i = 0; i < kOutRows; ++i) CANOPY_UNROLL
        for (int j = 0; j < kDims; ++j) mine[i][j] *= shrink[row + 16 * i];
        for (int c = 0; c < keys; ++c) CANOPY_UNROLL
        for (int j = 0; j < kDims; ++j) {
          const int d = column + kColumnThreads * j;
          const float value = d < columns ? tile[c * stride + d] : 0.0f;
          CANOPY_UNROLL
          for (int i = 0; i < kOutRows; ++i)
            mine[i][j] += scores[(row + 16 * i) * (kKeys + 1) + c] * value;
        }
      });
    }

    block.step([&](int t) {
      const int column = t % kColumnThreads, row = t / kColumnThreads;
      CANOPY_UNROLL
      for (int i = 0; i < kOutRows; ++i) CANOPY_UNROLL
      for (int j = 0; j < kDims; ++j) {
        const int r = row + 16 * i, d = column + kColumnThreads * j;
        if (r < count && d < columns)
          out[at_row(first + r, kv_head) + d] = outputs[t].of[i][j] / sum[r];
      }
    });
  }

 private:
  /// Rows [key, key + keys) of a cache, as f32; zeros behind them, which no weight may turn into
  /// NaN.
  CANOPY_KERNEL void fetch(const std::byte* cache, std::int64_t kv_head, std::int64_t key, int keys,
                           float* tile, int t) const {
    const auto columns = static_cast<int>(head_dim);
    const std::byte* const rows = cache + (kv_head * slots + key) * bytes_of_row(dtype, head_dim);
    for (int i = t; i < kKeys * columns; i += kThreads) {
      const int r = i / columns, d = i % columns;
      tile[r * (columns + kPad) + d] = r < keys ? weight_at(dtype, rows, i) : 0.0f;
    }
  }
};

}  // namespace canopy::cuda
