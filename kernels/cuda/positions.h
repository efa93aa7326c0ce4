#pragma once
// Kernels of what depends on where a token stands: rotary embedding, and rows of the KV cache.
#include "kernels/cuda/block.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// Ops::rope. One block per token. Each product of the rotation is rounded before they are added,
/// as in the reference implementation and on the CPU.
struct RotatePairs {
  static constexpr int kThreads = 1024;
  float* qk;
  std::int64_t heads, head_dim;
  const std::int32_t* position;
  const float* frequency;
  std::int64_t half;  // number of them: pairs of each head that are rotated
  float magnitude;
  bool adjacent;
  float beta;
  std::int32_t period;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    float* const row = qk + block.index() * heads * head_dim;
    const std::int32_t whole = position[block.index()];
    const auto at = static_cast<float>(whole);
    const float temperature = 1.0f + beta * logf(1.0f + static_cast<float>(whole / period));
    block.step([&](int t) {
      for (std::int64_t i = t; i < heads * half; i += block.threads()) {
        const std::int64_t p = i % half;
        float* const a = row + i / half * head_dim + (adjacent ? 2 * p : p);
        float* const b = a + (adjacent ? 1 : half);
        const float angle = at * frequency[p];
        const float cosine = cosf(angle) * magnitude, sine = sinf(angle) * magnitude;
        const float rotated = rounded_product(*a, cosine) - rounded_product(*b, sine);
        *b = (rounded_product(*b, cosine) + rounded_product(*a, sine)) * temperature;
        *a = rotated * temperature;
      }
    });
  }
};

/// Ops::store_kv, for the keys or the values, into a cache of a plain format. One block per row and
/// head.
template <class Format>
struct StoreRows {
  const float* from;  // [rows, heads, head_dim]
  std::int64_t heads, head_dim;
  DeviceScalar<std::int64_t> prefix;
  std::int64_t first_node;
  std::byte* cache;  // as the table says
  SlotTable table;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t row = block.index() / heads, head = block.index() % heads;
    const float* const values = from + block.index() * head_dim;
    std::byte* const to = cache + table.at(head, prefix.now() + first_node + row);
    block.step([&](int t) {
      for (std::int64_t k = t; k < head_dim; k += block.threads())
        store_within<Format>(to, k, values[k]);
    });
  }
};

/// Ops::keep_kv in two halves, so that all is read before anything is written: rows named by `path`
/// out of the cache into `kept`, then back to where they belong. Two bytes at a time: the least
/// that a row is made of. One block per row and head.
struct MoveRows {
  enum class Way : bool { kOut, kBack };
  Way way;
  const std::int32_t* path;  // [rows]
  std::int64_t rows, first_slot;
  SlotTable table;
  std::int64_t table_slots;
  std::byte* cache;     // as the table says
  std::uint16_t* kept;  // [heads, rows, halves of a row]
  Fault* fault;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t row = block.index() % rows, head = block.index() / rows;
    const std::int64_t slot = way == Way::kOut ? path[row] : row, halves = table.row / 2;
    block.step([&](int t) {
      if (slot < 0 || slot >= table_slots - first_slot) {
        if (t == 0) report(fault, Fault::kCacheRow, slot, table_slots - first_slot);
        return;
      }
      auto* const in_cache =
          reinterpret_cast<std::uint16_t*>(cache + table.at(head, first_slot + slot));
      std::uint16_t* const aside = kept + (head * rows + row) * halves;
      for (std::int64_t k = t; k < halves; k += block.threads())
        if (way == Way::kOut)
          aside[k] = in_cache[k];
        else
          in_cache[k] = aside[k];
    });
  }
};

}  // namespace canopy::cuda
