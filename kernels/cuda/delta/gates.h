#pragma once
// Kernels of recurrent layers besides the delta rule: states that move on (math.md (D3)), norms and
// gates.
#include <cstdint>

#include "kernels/cuda/delta/enter.h"

namespace canopy::cuda {

/// Ops::delta_fold. One block for a head of values and kRows rows of its state.
struct MoveState {
  static constexpr int kThreads = 256, kRows = 8;
  DeltaCall call;  // of no nodes
  std::int64_t anchor;
  const float* from;  // null: zeros
  float* to;

  Grid grid() const {
    return {call.value_heads * tiles(), threads_for(call.value_dim, kThreads),
            (kRows + 2) * kAnchorStep * sizeof(float)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t head = block.index() / tiles(), first = block.index() % tiles() * kRows;
    const std::int64_t key_head = call.key_head(head);
    auto* const rows = block.template shared<std::int32_t>(kAnchorStep);
    float* const w = block.template shared<float>(kAnchorStep);
    float* const weights = block.template shared<float>(kRows * kAnchorStep);
    auto of_state = block.template each<float>();
    block.step([&](int t) {
      for (int j = t; j < kAnchorStep; j += block.threads()) {
        rows[j] = call.row[anchor + j];
        w[j] = call.decay_of(rows[j], head);
      }
    });
    block.step([&](int t) {
      of_state[t] = 1.0f;
      for (int j = kAnchorStep - 1; j >= 0; --j) of_state[t] *= w[j];
      for (int i = t; i < kRows * kAnchorStep; i += block.threads()) {
        const std::int64_t row = first + i / kAnchorStep;
        if (row >= call.key_dim) continue;
        float product = 1.0f;
        for (int j = kAnchorStep - 1; j > i % kAnchorStep; --j) product *= w[j];
        weights[i] = product * call.key_of(rows[i % kAnchorStep], key_head)[row];
      }
    });
    block.step([&](int t) {
      for (std::int64_t c = t; c < call.value_dim; c += block.threads()) {
        float sum[kRows];
        CANOPY_UNROLL
        for (int i = 0; i < kRows; ++i)
          sum[i] = from == nullptr || first + i >= call.key_dim
                       ? 0.0f
                       : of_state[t] * from[at(head, first + i, c)];
        for (int j = 0; j < kAnchorStep; ++j) {
          const float u = call.update_of(rows[j], head)[c];
          CANOPY_UNROLL
          for (int i = 0; i < kRows; ++i)
            if (first + i < call.key_dim) sum[i] = fmaf(weights[i * kAnchorStep + j], u, sum[i]);
        }
        CANOPY_UNROLL
        for (int i = 0; i < kRows; ++i)
          if (first + i < call.key_dim) to[at(head, first + i, c)] = sum[i];
      }
    });
  }

 private:
  CANOPY_KERNEL std::int64_t tiles() const { return ceil_div<std::int64_t>(call.key_dim, kRows); }
  CANOPY_KERNEL std::int64_t at(std::int64_t head, std::int64_t row, std::int64_t column) const {
    return (head * call.key_dim + row) * call.value_dim + column;
  }
};

/// Ops::gated_norm. One block per row.
struct GateNormed {
  static constexpr int kThreads = 256;
  float* x;
  const float *g, *z;
  float eps;
  std::int64_t columns;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    float* const row = x + block.index() * columns;
    const float* const gates = z + block.index() * columns;
    auto squares = block.template each<float>();
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads()) squares[t] += row[k] * row[k];
    });
    const float r = 1.0f / sqrtf(block.sum(squares) / static_cast<float>(columns) + eps);
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads())
        row[k] = g[k] * (row[k] * r) * times_sigmoid(gates[k], gates[k]);
    });
  }
};

/// Ops::gate_heads over all elements of a head's queries; any grid covers them.
struct GateHeads {
  static constexpr int kThreads = 256;
  const float* fused;
  std::int64_t head_dim, count;
  float* x;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i < count) x[i] = times_sigmoid(x[i], fused[i + (i / head_dim + 1) * head_dim]);
    });
  }
};

}  // namespace canopy::cuda
