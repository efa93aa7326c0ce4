#pragma once
// Attention of tree nodes over the committed prefix and their own ancestors, without a matrix of
// scores in memory: keys pass by in tiles, and each row keeps the maximum, the sum and the weighted
// values of what it has seen so far, rescaled when the maximum grows. The keys are cut into chunks
// that blocks of threads work on at the same time; a second kernel merges what they found.
// Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv:1805.02867);
// Dao et al., "FlashAttention" (arXiv:2205.14135), Algorithm 1; Dao et al., "Flash-Decoding for
// long-context inference" (2023).
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/key_chunks.h"
#include "kernels/tree_mask.h"

namespace canopy::cuda {

/// Four floats at a multiple of 16 bytes, which a thread reads at once.
struct alignas(16) Quad {
  float of[4];
};
CANOPY_KERNEL inline Quad quad_at(const float* from) {
  return load<Quad>(reinterpret_cast<const std::byte*>(from));
}

/// kCount elements of a plain format that lie at a multiple of their size in bytes, as f32. A
/// thread reads 16 bytes at a time.
template <class Format, int kCount>
struct Widened {
  float of[kCount];

  CANOPY_KERNEL explicit Widened(const std::byte* from) {
    constexpr int kBytes = kCount * Format::kBlockBytes < 16 ? kCount * Format::kBlockBytes : 16;
    struct alignas(kBytes) Piece {
      std::byte of[kBytes];
    };
    CANOPY_UNROLL
    for (int first = 0; first < kCount; first += kBytes / Format::kBlockBytes) {
      const auto piece = load<Piece>(from + first * Format::kBlockBytes);
      CANOPY_UNROLL
      for (int i = 0; i < kBytes / Format::kBlockBytes; ++i)
        of[first + i] = Format::decode(piece.of + i * Format::kBlockBytes, 0);
    }
  }
};

/// Arguments of a call of attention.
struct AttentionCall {
  const float* q;          // [n, heads, head_dim]
  const std::byte *k, *v;  // as the table says
  std::int64_t n, group, kv_heads, head_dim;
  SlotTable table;
  TreeMask tree;
  float scale;
  float* out;                   // [n, heads, head_dim]
  const float *slopes, *sinks;  // [heads] or null
  float cap;                    // of scores, or 0

  CANOPY_KERNEL std::int64_t heads() const { return group * kv_heads; }
  /// The call's nodes [first, first + count).
  AttentionCall nodes(std::int64_t first, std::int64_t count) const {
    AttentionCall some = *this;
    some.n = count;
    some.q += first * heads() * head_dim;
    some.out += first * heads() * head_dim;
    some.tree.first_node += first;
    if (some.tree.ancestors != nullptr) some.tree.ancestors += first * some.tree.words;
    return some;
  }
  /// The vector of q and out that belongs to query row `row` of a kv head: it is of node row /
  /// group, and of head row % group of its group.
  CANOPY_KERNEL std::int64_t vector_of(std::int64_t row, std::int64_t kv_head) const {
    return row / group * heads() + kv_head * group + row % group;
  }
  CANOPY_KERNEL float sink_of(std::int64_t head) const {
    return sinks == nullptr ? -INFINITY : sinks[head];
  }
};

/// Ops::attend over one chunk of keys for each block. A block works on kRows rows that share a kv
/// head: row r is node r / group with head r % group of that kv head's group, so that its keys are
/// read once for the whole group. Format: of the caches, a plain one. kColumns: what a row has room
/// for; kExact: head_dim itself, so that rows are read 16 bytes at a time, a tile ahead of its use.
/// A row's bits depend on none of these but head_dim.
template <class Format, int kColumns, bool kExact, int kRowsOfABlock>
struct AttendChunk {
  static constexpr int kThreads = 128, kRows = kRowsOfABlock, kKeys = 64;
  static_assert(KeyChunks::kFirst % kKeys == 0 && kKvBlock == kKeys, "a tile lies in one block");
  // Scores: a thread has kOwnRows rows x 4 keys. Outputs: kOwnRows rows x kQuads quads.
  static constexpr int kAcross = 16, kDown = kThreads / kAcross;
  static constexpr int kOwnRows = kRows / kDown, kOwnKeys = kKeys / kAcross;
  static constexpr int kQuads = (kColumns + 4 * kAcross - 1) / (4 * kAcross);
  // Softmax: that many neighbouring threads share a row.
  static constexpr int kLanes = kThreads / kRows, kOwnQuads = kKeys / 4 / kLanes;
  static_assert(kOwnRows > 0 && kLanes <= 16 && kColumns % 8 == 0);
  // Rows lie so far apart in shared memory: more than they take, so as to start in different banks.
  static constexpr int kQueryFloats = kColumns + 4, kScoreFloats = kKeys + 4;
  static constexpr int kTileBytes = kColumns * Format::kBlockBytes + 16;
  // Threads copy a tile in these pieces.
  static constexpr int kPieces = kColumns * Format::kBlockBytes / 16;
  static constexpr int kOwnPieces = kPieces * kKeys / kThreads;

  static constexpr std::size_t kSharedBytes =
      (kRows * (kQueryFloats + kScoreFloats) + 3 * kRows) * sizeof(float) +
      kRows * sizeof(std::int64_t) + std::size_t{kKeys} * kTileBytes;

  AttentionCall call;
  PartialSums partial;

  Grid grid() const { return {call.kv_heads * tiles() * partial.chunks, kThreads, kSharedBytes}; }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    // Blocks that share keys are neighbours.
    const Rows rows = rows_of(block.index() % (call.kv_heads * tiles()));
    const std::int64_t number = block.index() / (call.kv_heads * tiles());
    const std::int64_t chunk = partial.cut.first(rows.mask, 0) + number;
    const std::int64_t behind = partial.cut.begin(chunk + 1);
    const std::int64_t end = rows.end < behind ? rows.end : behind;
    std::int64_t begin = partial.cut.begin(chunk);
    if (begin < rows.begin) begin = rows.begin;
    if (begin >= end) return;

    Shared shared;
    shared.tile = block.template shared<std::byte>(kKeys * kTileBytes);
    shared.first = block.template shared<std::int64_t>(kRows);
    shared.queries = block.template shared<float>(kRows * kQueryFloats);
    shared.scores = block.template shared<float>(kRows * kScoreFloats);
    shared.shrink = block.template shared<float>(kRows);
    shared.most = block.template shared<float>(kRows);
    shared.sum = block.template shared<float>(kRows);
    auto pieces = block.template each<Pieces>();
    auto softmax = block.template each<Softmax>();
    auto largest = block.template each<float>(), sums = block.template each<float>();
    auto outputs = block.template each<Outputs>();

    block.step([&](int t) {
      if (call.sinks != nullptr) softmax[t] = of_sink(rows, t / kLanes, behind);
      if (call.tree.window != 0 && t < rows.count)
        shared.first[t] = rows.mask.first((rows.first + t) / call.group);
      fetch(pieces[t], call.k, rows, begin, end, t);
      for (int i = t; i < kRows * kQueryFloats; i += kThreads) {
        const int r = i / kQueryFloats, d = i % kQueryFloats;
        shared.queries[i] = r < rows.count && d < columns()
                                ? call.q[at(rows, r) * columns() + d] * call.scale
                                : 0.0f;
      }
    });
    for (std::int64_t key = begin; key < end; key += kKeys) {
      block.step([&](int t) { place(pieces[t], call.k, rows, key, end, shared.tile, t); });
      block.step([&](int t) {
        fetch(pieces[t], call.v, rows, key, end, t);
        score(rows, key, end, shared, t);
      });
      block.step([&](int t) { largest[t] = softmax[t].most_with(shared, t); });
      block.template lanes_most<kLanes>(largest);
      block.step([&](int t) {
        sums[t] = softmax[t].weigh(shared, largest[t], t);
        place(pieces[t], call.v, rows, key, end, shared.tile, t);
      });
      block.template lanes_sum<kLanes>(sums);
      block.step([&](int t) {
        softmax[t].sum = softmax[t].sum * softmax[t].shrink + sums[t];
        if (key + kKeys < end) fetch(pieces[t], call.k, rows, key + kKeys, end, t);
        add_values(end - key < kKeys ? static_cast<int>(end - key) : kKeys, shared, outputs[t], t);
      });
    }
    block.step([&](int t) {
      if (t % kLanes != 0) return;
      shared.most[t / kLanes] = softmax[t].most;
      shared.sum[t / kLanes] = softmax[t].sum;
    });
    block.step([&](int t) { write(rows, number, shared, outputs[t], t); });
  }

 private:
  /// Rows of a block, and the tiles that some of them may see.
  struct Rows {
    std::int64_t kv_head, first, begin, end;
    int count;
    TreeMask mask;
  };
  struct Shared {
    std::byte* tile;      // keys, then values
    std::int64_t* first;  // of each row's window
    float *queries, *scores, *shrink, *most, *sum;
  };
  struct Outputs {
    Quad of[kOwnRows][kQuads] = {};
  };
  /// A thread's share of a tile on its way to shared memory.
  struct alignas(16) Piece {
    std::uint32_t of[4];
  };
  struct Pieces {
    Piece of[kExact ? kOwnPieces : 1] = {};
  };
  /// A row's largest score and sum of weights, the same in all threads that share it.
  struct Softmax {
    float most = -INFINITY, sum = 0.0f, shrink = 0.0f;

    static CANOPY_KERNEL float* own_quad(const Shared& shared, int j, int t) {
      return shared.scores + t / kLanes * kScoreFloats + 4 * (t % kLanes + kLanes * j);
    }
    CANOPY_KERNEL float most_with(const Shared& shared, int t) const {
      float largest = most;
      CANOPY_UNROLL
      for (int j = 0; j < kOwnQuads; ++j) {
        const Quad quad = quad_at(own_quad(shared, j, t));
        CANOPY_UNROLL
        for (int e = 0; e < 4; ++e) largest = fmaxf(largest, quad.of[e]);
      }
      return largest;
    }
    /// Scores become weights. Their sum is one over pairs of pairs whatever kLanes is: with what
    /// the other threads return, halves of the row are added first.
    CANOPY_KERNEL float weigh(const Shared& shared, float largest, int t) {
      float of_quad[kOwnQuads];
      CANOPY_UNROLL
      for (int j = 0; j < kOwnQuads; ++j) {
        Quad quad = quad_at(own_quad(shared, j, t));
        CANOPY_UNROLL
        for (int e = 0; e < 4; ++e)
          quad.of[e] = quad.of[e] == -INFINITY ? 0.0f : expf(quad.of[e] - largest);
        store(reinterpret_cast<std::byte*>(own_quad(shared, j, t)), quad);
        of_quad[j] = (quad.of[0] + quad.of[1]) + (quad.of[2] + quad.of[3]);
      }
      CANOPY_UNROLL
      for (int apart = kOwnQuads / 2; apart > 0; apart /= 2) CANOPY_UNROLL
      for (int j = 0; j < apart; ++j) of_quad[j] += of_quad[j + apart];
      // A row that has seen nothing yet keeps nothing: exp(-inf - -inf) would be NaN.
      shrink = most == -INFINITY ? 0.0f : expf(most - largest);
      most = largest;
      if (t % kLanes == 0) shared.shrink[t / kLanes] = shrink;
      return of_quad[0];
    }
  };

  CANOPY_KERNEL std::int64_t tiles() const {
    return ceil_div<std::int64_t>(call.n * call.group, kRows);
  }
  CANOPY_KERNEL int columns() const { return kExact ? kColumns : static_cast<int>(call.head_dim); }
  CANOPY_KERNEL std::int64_t at(const Rows& rows, int r) const {
    return call.vector_of(rows.first + r, rows.kv_head);
  }
  CANOPY_KERNEL Rows rows_of(std::int64_t index) const {
    Rows rows{index / tiles(), index % tiles() * kRows, 0, 0, kRows, call.tree};
    rows.mask.prefix = call.tree.prefix.now();  // once
    const std::int64_t left = call.n * call.group - rows.first;
    if (left < kRows) rows.count = static_cast<int>(left);
    rows.end = rows.mask.end((rows.first + rows.count - 1) / call.group);
    rows.begin = rows.mask.least_first(rows.first / call.group) / kKeys * kKeys;
    return rows;
  }
  /// Returns a row's beginning in slots up to `behind`: its sink, where its own key is one of them.
  CANOPY_KERNEL Softmax of_sink(const Rows& rows, int r, std::int64_t behind) const {
    if (r >= rows.count || rows.mask.end((rows.first + r) / call.group) > behind) return {};
    const float sink = call.sink_of(rows.kv_head * call.group + (rows.first + r) % call.group);
    return {sink, sink == -INFINITY ? 0.0f : 1.0f};
  }

  CANOPY_KERNEL const std::byte* stored(const std::byte* cache, const Rows& rows,
                                        std::int64_t key) const {
    return cache + call.table.at(rows.kv_head, key);
  }
  /// Slots [key, key + kKeys) of the text, which lie in one block, on their way; zeros from `end`
  /// on, which no weight may turn into NaN.
  CANOPY_KERNEL void fetch(Pieces& pieces, const std::byte* cache, const Rows& rows,
                           std::int64_t key, std::int64_t end, int t) const {
    if constexpr (kExact) {
      const std::byte* const from = stored(cache, rows, key);
      CANOPY_UNROLL
      for (int j = 0; j < kOwnPieces; ++j) {
        const int i = t + kThreads * j;  // rows follow each other in memory
        pieces.of[j] = key + i / kPieces < end ? load<Piece>(from + 16 * i) : Piece{};
      }
    }
  }
  CANOPY_KERNEL void place(const Pieces& pieces, const std::byte* cache, const Rows& rows,
                           std::int64_t key, std::int64_t end, std::byte* tile, int t) const {
    if constexpr (kExact) {
      CANOPY_UNROLL
      for (int j = 0; j < kOwnPieces; ++j) {
        const int i = t + kThreads * j;
        store(tile + i / kPieces * kTileBytes + i % kPieces * 16, pieces.of[j]);
      }
    } else {
      const std::byte* const from = stored(cache, rows, key);
      for (int i = t; i < kKeys * kColumns; i += kThreads) {
        const int r = i / kColumns, d = i % kColumns;
        const float value = key + r < end && d < columns()
                                ? weight_at<Format>(from, std::int64_t{r} * columns() + d)
                                : 0.0f;
        store_float<Format>(tile + r * kTileBytes, d, value);
      }
    }
  }

  CANOPY_KERNEL void score(const Rows& rows, std::int64_t key, std::int64_t end,
                           const Shared& shared, int t) const {
    const int across = t % kAcross, down = t / kAcross;
    float dots[kOwnRows][kOwnKeys] = {};
    for (int d = 0; d < columns(); d += 8) {
      Quad query[kOwnRows][2];
      CANOPY_UNROLL
      for (int i = 0; i < kOwnRows; ++i) CANOPY_UNROLL
      for (int half = 0; half < 2; ++half)
        query[i][half] = quad_at(shared.queries + (down + kDown * i) * kQueryFloats + d + 4 * half);
      CANOPY_UNROLL
      for (int j = 0; j < kOwnKeys; ++j) {
        const Widened<Format, 8> of_key(shared.tile + (across + kAcross * j) * kTileBytes +
                                        d * Format::kBlockBytes);
        CANOPY_UNROLL
        for (int i = 0; i < kOwnRows; ++i) CANOPY_UNROLL
        for (int e = 0; e < 8; ++e) dots[i][j] += query[i][e / 4].of[e % 4] * of_key.of[e];
      }
    }
    const bool all_seen = key + kKeys <= rows.mask.prefix.value;
    CANOPY_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      const int r = down + kDown * i;
      const std::int64_t node = all_seen ? 0 : (rows.first + r) / call.group;
      CANOPY_UNROLL
      for (int j = 0; j < kOwnKeys; ++j) {
        const int c = across + kAcross * j;
        const bool seen =
            all_seen || (r < rows.count && key + c < end && rows.mask.sees(node, key + c));
        shared.scores[r * kScoreFloats + c] = seen ? dots[i][j] : -INFINITY;
      }
    }
    if (call.slopes != nullptr || call.tree.window != 0 || call.cap != 0.0f)
      adjust(rows, key, shared, t);
  }
  /// Hides what lies before a row's window from it, bounds the thread's other scores, and takes
  /// slope x distance off them: by themselves, as registers are short above.
  CANOPY_KERNEL void adjust(const Rows& rows, std::int64_t key, const Shared& shared, int t) const {
    for (int i = 0; i < kOwnRows * kOwnKeys; ++i) {
      const int r = t / kAcross + kDown * (i / kOwnKeys),
                c = t % kAcross + kAcross * (i % kOwnKeys);
      float& score = shared.scores[r * kScoreFloats + c];
      if (r >= rows.count || score == -INFINITY) continue;
      if (call.tree.window != 0 && key + c < shared.first[r]) {
        score = -INFINITY;
        continue;
      }
      if (call.cap != 0.0f) score = capped(score, call.cap);
      if (call.slopes == nullptr) continue;
      const std::int64_t head = rows.kv_head * call.group + (rows.first + r) % call.group;
      const std::int64_t apart = rows.mask.distance((rows.first + r) / call.group, key + c);
      score -= rounded_product(call.slopes[head], static_cast<float>(apart));
    }
  }

  CANOPY_KERNEL void add_values(int keys, const Shared& shared, Outputs& mine, int t) const {
    const int across = t % kAcross, down = t / kAcross;
    CANOPY_UNROLL
    for (int i = 0; i < kOwnRows; ++i) CANOPY_UNROLL
    for (int j = 0; j < kQuads; ++j) CANOPY_UNROLL
    for (int e = 0; e < 4; ++e) mine.of[i][j].of[e] *= shared.shrink[down + kDown * i];
    for (int c = 0; c < keys; c += 4) {  // weights after them are zero
      Quad weights[kOwnRows];
      CANOPY_UNROLL
      for (int i = 0; i < kOwnRows; ++i)
        weights[i] = quad_at(shared.scores + (down + kDown * i) * kScoreFloats + c);
      CANOPY_UNROLL
      for (int next = 0; next < 4; ++next) CANOPY_UNROLL
      for (int j = 0; j < kQuads; ++j) {
        const int d = 4 * (across + kAcross * j);
        if (d >= columns()) continue;
        const Widened<Format, 4> value(shared.tile + (c + next) * kTileBytes +
                                       d * Format::kBlockBytes);
        CANOPY_UNROLL
        for (int i = 0; i < kOwnRows; ++i) CANOPY_UNROLL
        for (int e = 0; e < 4; ++e) mine.of[i][j].of[e] += weights[i].of[next] * value.of[e];
      }
    }
  }

  CANOPY_KERNEL void write(const Rows& rows, std::int64_t number, const Shared& shared,
                           const Outputs& mine, int t) const {
    const int across = t % kAcross, down = t / kAcross;
    CANOPY_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      const int r = down + kDown * i;
      if (r >= rows.count) continue;
      const std::int64_t vector = at(rows, r);
      const bool whole = partial.record == nullptr;
      float* const record = whole ? nullptr : partial.at(vector, number, columns());
      float* const to = whole ? call.out + vector * columns() : record + PartialSums::kHead;
      const float by = whole ? shared.sum[r] : 1.0f;
      CANOPY_UNROLL
      for (int j = 0; j < kQuads; ++j) CANOPY_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int d = 4 * (across + kAcross * j) + e;
        if (d < columns()) to[d] = mine.of[i][j].of[e] / by;
      }
      if (!whole && across == 0) record[0] = shared.most[r], record[1] = shared.sum[r];
    }
  }
};

/// Rows of Ops::attend from what chunks of keys contributed, in the order of the chunks; of one
/// chunk, the bits that its block alone would have written. A block for each row and head.
struct MergeChunks {
  AttentionCall call;
  PartialSums partial;

  Grid grid() const { return {call.n * call.heads(), threads_for(call.head_dim, 128)}; }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    TreeMask mask = call.tree;
    mask.prefix = call.tree.prefix.now();
    const std::int64_t vector = block.index();
    const std::int64_t node = vector / call.heads(), before = partial.cut.first(mask, 0);
    const std::int64_t first = partial.cut.first(mask, node) - before;
    const std::int64_t chunks = partial.cut.count(mask.end(node)) - before;
    const auto record = [&](std::int64_t c) { return partial.at(vector, c, call.head_dim); };
    block.step([&](int t) {
      float most = -INFINITY, sum = 0.0f;
      for (std::int64_t c = first; c < chunks; ++c) most = fmaxf(most, record(c)[0]);
      for (std::int64_t c = first; c < chunks; ++c) sum += record(c)[1] * expf(record(c)[0] - most);
      for (std::int64_t d = t; d < call.head_dim; d += block.threads()) {
        float value = 0.0f;
        for (std::int64_t c = first; c < chunks; ++c)
          value += record(c)[PartialSums::kHead + d] * expf(record(c)[0] - most);
        call.out[vector * call.head_dim + d] = value / sum;
      }
    });
  }
};

}  // namespace canopy::cuda
