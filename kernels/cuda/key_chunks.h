#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/tree_mask.h"

namespace canopy::cuda {

/// Chunks of a text's keys. A cut depends on a key's place and the window alone, neither on the
/// rows that read it nor on the device: so a row's sums do not depend on what else shares the call.
/// Eight chunks of 256 keys, then eight of 512, and so on: a short text keeps many blocks of
/// threads busy, a long one has few chunks to merge. Within a window all have the length of that
/// chunk which would hold its last key: wherever it is, it lies in 17 at most.
struct KeyChunks {
  static constexpr std::int64_t kFirst = 4 * kKvBlock, kOfALength = 8;
  int bits = 0;  // each has 2^bits keys; 0: they grow

  static KeyChunks of_window(std::int64_t window) {
    if (window == 0) return {};
    const std::int64_t doubled = (KeyChunks().count(window) - 1) / kOfALength;
    return {static_cast<int>(std::bit_width(static_cast<std::uint64_t>(kFirst << doubled)) - 1)};
  }

  CANOPY_KERNEL std::int64_t begin(std::int64_t chunk) const {
    if (bits > 0) return chunk << bits;
    const std::int64_t length = kFirst << (chunk / kOfALength);
    return length * (kOfALength + chunk % kOfALength) - kFirst * kOfALength;
  }
  /// Returns the number of chunks that hold the first `keys` keys.
  CANOPY_KERNEL std::int64_t count(std::int64_t keys) const {
    if (bits > 0) return (keys + (std::int64_t{1} << bits) - 1) >> bits;
    std::int64_t chunk = 0;
    while (begin(chunk + kOfALength) < keys) chunk += kOfALength;
    return chunk + ceil_div(keys - begin(chunk), kFirst << (chunk / kOfALength));
  }
  /// Returns the chunk before which no row from `row` on sees a key.
  CANOPY_KERNEL std::int64_t first(const TreeMask& mask, std::int64_t row) const {
    return mask.window == 0 ? 0 : count(mask.least_first(row) + 1) - 1;
  }
  /// Counts the chunks in which a call's n rows see keys, and those between them.
  std::int64_t needed(const TreeMask& mask, std::int64_t n) const {
    return count(mask.end(n - 1)) - first(mask, 0);
  }
  /// Returns the most that are needed, whatever the prefix of a text in `slots` slots.
  std::int64_t most(const TreeMask& mask, std::int64_t n, std::int64_t slots) const {
    if (bits == 0) return count(slots);
    const std::int64_t keys =
        mask.window + n - 1 + (mask.ancestors == nullptr ? 0 : mask.first_node);
    return std::min(count(slots), count(keys - 1) + 1);
  }
};

/// Contributions of chunks of keys to each row: [n, heads, chunks] records of the largest score,
/// the sum of weights, two floats of padding, and the weighted values. The first is of the chunk
/// where the call's first window may begin.
struct PartialSums {
  float* record;  // null: there is one chunk, whose block writes the result
  std::int64_t chunks;
  KeyChunks cut;

  static constexpr std::int64_t kHead = 4;
  CANOPY_KERNEL static std::int64_t floats(std::int64_t head_dim) { return kHead + head_dim; }
  CANOPY_KERNEL float* at(std::int64_t vector, std::int64_t chunk, std::int64_t head_dim) const {
    return record + (vector * chunks + chunk) * floats(head_dim);
  }
};

}  // namespace canopy::cuda
