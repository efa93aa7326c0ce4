#pragma once
// Kernels of recurrent layers before the delta rule: the convolution along each node's path, and
// the gates (math.md "Recurrent layers").
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/rows.h"
#include "kernels/delta.h"
#include "kernels/tree_mask.h"

namespace canopy::cuda {

/// Sizes of a layer, the rows that a text keeps of it, and the nodes of a call.
struct DeltaCall {
  std::int64_t key_heads, value_heads, key_dim, value_dim;
  bool by_turns;
  float *input, *key, *update, *decay;
  const std::int32_t *input_row, *row;
  TreeMask tree;

  CANOPY_KERNEL std::int64_t channels() const {
    return 2 * key_heads * key_dim + value_heads * value_dim;
  }
  CANOPY_KERNEL std::int64_t group() const { return value_heads / key_heads; }
  /// The i-th value head of a key head, and the key head of a value head.
  CANOPY_KERNEL std::int64_t value_head(std::int64_t key_head, std::int64_t i) const {
    return by_turns ? key_head + i * key_heads : key_head * group() + i;
  }
  CANOPY_KERNEL std::int64_t key_head(std::int64_t value_head) const {
    return by_turns ? value_head % key_heads : value_head / group();
  }
  CANOPY_KERNEL std::int64_t slot(std::int64_t node) const { return tree.end(node) - 1; }
  CANOPY_KERNEL std::int64_t position(std::int64_t node) const {
    return tree.prefix.value - 1 + tree.distance(node, tree.prefix.value - 1);
  }
  CANOPY_KERNEL const float* key_of(std::int64_t kept_row, std::int64_t head) const {
    return key + (kept_row * key_heads + head) * key_dim;
  }
  CANOPY_KERNEL float* update_of(std::int64_t kept_row, std::int64_t head) const {
    return update + (kept_row * value_heads + head) * value_dim;
  }
  CANOPY_KERNEL float decay_of(std::int64_t kept_row, std::int64_t head) const {
    return decay[kept_row * value_heads + head];
  }
};

/// Keeps the inputs of the convolution, before they are overwritten; any grid covers them.
struct KeepInputs {
  static constexpr int kThreads = 256;
  DeltaCall call;
  const float* mixed;
  std::int64_t count;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t channels = call.channels();
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count) return;
      const std::int64_t kept = call.input_row[call.slot(i / channels)];
      call.input[kept * channels + i % channels] = mixed[i];
    });
  }
};

/// Ops::delta_enter, after the inputs were kept. One block for a node and a head of its queries,
/// keys or values.
struct EnterNodes {
  static constexpr int kThreads = 256;
  DeltaCall call;
  float *mixed, *beta;
  const float *a, *taps, *rate, *dt;
  bool rate_is_log;

  Grid grid(std::int64_t nodes) const {
    return {nodes * heads(), threads_for(std::max(call.key_dim, call.value_dim), kThreads)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t node = block.index() / heads(), part = block.index() % heads();
    const std::int64_t value_head = part - 2 * call.key_heads, slot = call.slot(node);
    const std::int64_t columns = value_head < 0 ? call.key_dim : call.value_dim;
    const std::int64_t first = value_head < 0
                                   ? part * call.key_dim
                                   : 2 * call.key_heads * call.key_dim + value_head * columns;
    const std::int64_t kept = call.row[slot];
    float* const own = mixed + node * call.channels() + first;
    auto squares = block.template each<float>();
    block.step([&](int t) {
      const float* rows[kDeltaTaps];  // null before the text
      std::int64_t at = slot;
      CANOPY_UNROLL
      for (int tap = kDeltaTaps - 1; tap >= 0; --tap) {
        rows[tap] = at < 0 ? nullptr : call.input + call.input_row[at] * call.channels() + first;
        if (at >= 0) at = call.tree.before(node, at);
      }
      for (std::int64_t c = t; c < columns; c += block.threads()) {
        float sum = 0;
        CANOPY_UNROLL
        for (int tap = 0; tap < kDeltaTaps; ++tap)
          if (rows[tap] != nullptr)
            sum = fmaf(taps[(first + c) * kDeltaTaps + tap], rows[tap][c], sum);
        const float y = times_sigmoid(sum, sum);
        own[c] = y;
        squares[t] += y * y;
      }
      if (t == 0 && value_head >= 0) gate(node, value_head, kept);
    });
    if (value_head >= 0) return;
    const float r = 1.0f / sqrtf(block.sum(squares) + 1e-6f);
    const bool is_query = part < call.key_heads;
    const float factor = is_query ? 1.0f / sqrtf(static_cast<float>(call.key_dim)) : 1.0f;
    float* const key = call.key + (kept * call.key_heads + part % call.key_heads) * call.key_dim;
    block.step([&](int t) {
      for (std::int64_t c = t; c < columns; c += block.threads()) {
        own[c] = own[c] * r * factor;
        if (!is_query) key[c] = own[c];
      }
    });
  }

 private:
  CANOPY_KERNEL std::int64_t heads() const { return 2 * call.key_heads + call.value_heads; }
  CANOPY_KERNEL void gate(std::int64_t node, std::int64_t head, std::int64_t kept) const {
    const std::int64_t at = node * call.value_heads + head;
    const float x = a[at] + dt[head];
    const float softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    call.decay[kept * call.value_heads + head] =
        expf((rate_is_log ? -expf(rate[head]) : rate[head]) * softplus);
    beta[at] = times_sigmoid(1.0f, beta[at]);
  }
};

}  // namespace canopy::cuda
