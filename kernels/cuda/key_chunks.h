#pragma once
#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// This says where the keys of a text are cut. It depends on a key's place alone, neither on how
/// many rows read it nor on the device: so a row's sums do not depend on what else shares the call.
/// Eight chunks of 256 keys, then eight of 512, and so on: a short text keeps many blocks of
/// threads busy, a long one has few chunks to merge.
struct KeyChunks {
  static constexpr std::int64_t kFirst = 4 * kKvBlock, kOfALength = 8;

  CANOPY_KERNEL static std::int64_t begin(std::int64_t chunk) {
    const std::int64_t length = kFirst << (chunk / kOfALength);
    return length * (kOfALength + chunk % kOfALength) - kFirst * kOfALength;
  }
  /// Chunks that hold the first so many keys.
  CANOPY_KERNEL static std::int64_t count(std::int64_t keys) {
    std::int64_t chunk = 0;
    while (begin(chunk + kOfALength) < keys) chunk += kOfALength;
    return chunk + ceil_div(keys - begin(chunk), kFirst << (chunk / kOfALength));
  }
};

/// What chunks of keys contribute to each row: [n, heads, chunks] records of the largest score, the
/// sum of weights, two floats of padding, and the weighted values.
struct PartialSums {
  float* record;  // null: there is one chunk, whose block writes the result
  std::int64_t chunks;

  static constexpr std::int64_t kHead = 4;
  CANOPY_KERNEL static std::int64_t floats(std::int64_t head_dim) { return kHead + head_dim; }
  CANOPY_KERNEL float* at(std::int64_t vector, std::int64_t chunk, std::int64_t head_dim) const {
    return record + (vector * chunks + chunk) * floats(head_dim);
  }
};

}  // namespace canopy::cuda
