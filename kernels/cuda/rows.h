#pragma once
// Kernels that work on one row at a time: normalisation, activation, embedding, and the preparation
// of matrix products.
#include <array>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/ops.h"
#include "kernels/weight_view.h"
#include "src/base/formats/packed_format.h"

namespace canopy::cuda {

/// Ops::rms_norm with g of a plain format. One block per row.
template <class Format>
struct RmsNorm {
  static constexpr int kThreads = 1024;  // a level of a draft has few rows: each must be quick
  const float* x;
  const std::byte* g;
  float eps;
  std::int64_t columns;
  float* y;  // may be x

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const from = x + block.index() * columns;
    float* const to = y + block.index() * columns;
    auto squares = block.template each<float>();
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads()) squares[t] += from[k] * from[k];
    });
    const float mean = block.sum(squares) / static_cast<float>(columns);
    const float r = 1.0f / sqrtf(mean + eps);
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads())
        to[k] = weight_at<Format>(g, k) * (from[k] * r);
    });
  }
};

/// Ops::layer_norm. One block per row.
struct NormalizeRows {
  static constexpr int kThreads = 1024;
  const float *x, *g, *b;  // b: or null
  float eps;
  std::int64_t columns, period;  // of rows, after which those of g and b come again
  float* y;                      // may be x

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const from = x + block.index() * columns;
    float* const to = y + block.index() * columns;
    const std::int64_t own = block.index() % period * columns;
    auto sums = block.template each<float>(), squares = block.template each<float>();
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads()) sums[t] += from[k];
    });
    const float mean = block.sum(sums) / static_cast<float>(columns);
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads())
        squares[t] += (from[k] - mean) * (from[k] - mean);
    });
    const float r = 1.0f / sqrtf(block.sum(squares) / static_cast<float>(columns) + eps);
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads())
        to[k] = g[own + k] * ((from[k] - mean) * r) + (b == nullptr ? 0.0f : b[own + k]);
    });
  }
};

/// v / (1 + exp(-u)) through exp(-|u|), which cannot overflow.
CANOPY_KERNEL inline float times_sigmoid(float v, float u) {
  const float e = expf(-fabsf(u));
  return (u < 0 ? v * e : v) / (1.0f + e);
}

/// v (1 + tanh(u / 2)) / 2 is the same as v / (1 + exp(-u)).
CANOPY_KERNEL inline float gelu(float v) {
  return times_sigmoid(v, 1.5957691216f * v * (1.0f + 0.044715f * (v * v)));
}

/// Ops::activate over all elements; any grid covers them.
struct Activate {
  static constexpr int kThreads = 256;
  Activation activation;
  const float* x;
  float* y;  // may be x
  std::int64_t count;
  XieluFactors xielu;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count) return;
      const float v = x[i];
      if (activation == Activation::kRelu)
        y[i] = v < 0 ? 0.0f : v;  // NaN stays NaN
      else if (activation == Activation::kSilu)
        y[i] = times_sigmoid(v, v);
      else if (activation == Activation::kSigmoid)
        y[i] = times_sigmoid(1.0f, v);
      else if (activation == Activation::kReluSquared)
        y[i] = v < 0 ? 0.0f : v * v;
      else if (activation == Activation::kXielu)
        y[i] = (v > 0 ? xielu.positive * v * v
                      : xielu.negative * (expm1f(v < xielu.eps ? v : xielu.eps) - v)) +
               xielu.beta * v;
      else
        y[i] = gelu(v);
    });
  }
};

/// Ops::add over all elements; any grid covers them.
struct AddScaled {
  static constexpr int kThreads = 256;
  const float* x;
  float factor;
  float* y;
  std::int64_t count;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i < count) y[i] = fmaf(factor, x[i], y[i]);
    });
  }
};

/// Ops::scale over all elements; any grid covers them.
struct ScaleValues {
  static constexpr int kThreads = 256;
  float* x;
  DeviceScalar<float> factor;
  float cap;
  std::int64_t count;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count) return;
      const float v = factor.now() * x[i];
      x[i] = cap == 0.0f ? v : capped(v, cap);
    });
  }
};

/// Ops::take_apart over all elements of `fused`; any grid covers them.
struct TakeApart {
  static constexpr int kThreads = 256, kParts = std::tuple_size_v<RowParts>;
  struct Part {
    std::int64_t width;
    float* y;  // null: nowhere
    std::int64_t columns, first_column;
  };
  const float* fused;
  std::int64_t groups, width, count;
  Part parts[kParts];

  TakeApart(ConstTensorView from, const RowParts& to)
      : fused(reinterpret_cast<const float*>(from.data())),
        groups(from.dim(1)),
        width(from.dim(2)),
        count(from.dim(0) * groups * width) {
    Part* part = parts;
    for (const auto& [own, y, first_column] : to)
      *part++ = {own, reinterpret_cast<float*>(y.data()), y.empty() ? 0 : y.dim(1), first_column};
  }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count) return;
      const std::int64_t group = i / width % groups, row = i / width / groups;
      std::int64_t column = i % width;
      CANOPY_UNROLL
      for (int p = 0; p < kParts; ++p) {
        const Part& part = parts[p];
        if (column >= 0 && column < part.width && part.y != nullptr)
          part.y[row * part.columns + part.first_column + group * part.width + column] = fused[i];
        column -= part.width;
      }
    });
  }
};

/// Gates an up as the gating says. NaN stays NaN.
CANOPY_KERNEL inline float gated(float g, float u, const Gating& gating) {
  if (gating.kind == GatingKind::kGelu) return gelu(g) * u;
  if (gating.kind != GatingKind::kClamped) return times_sigmoid(g, g) * u;
  g = g > gating.limit ? gating.limit : g;
  u = u > gating.limit ? gating.limit : u < -gating.limit ? -gating.limit : u;
  return times_sigmoid(g, gating.alpha * g) * (u + 1.0f);
}

/// Ops::swiglu over all elements; any grid covers them.
struct Swiglu {
  static constexpr int kThreads = 256;
  const float *gate, *up;
  float* y;  // may be gate or up
  std::int64_t count;
  Gating gating;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i < count) y[i] = gated(gate[i], up[i], gating);
    });
  }
};

/// The rows of a matrix of weights.
template <class Format>
struct MatrixRows {
  const std::byte *payload, *companion;  // companion: null where the format has none
  std::int64_t columns;

  CANOPY_KERNEL StoredRow operator[](std::int64_t row) const {
    return stored_row<Format>(payload, companion, columns, row);
  }
};

/// Format that the matrix units multiply: a plain one. Packed weights are unpacked to theirs,
/// weights in blocks or with scales in a companion, packed or not, are expanded to F16.
template <class Format>
auto multiplied_as() {
  if constexpr (kIsPacked<Format> && !kPacksFp8<Format>)
    return typename Format::Plain();
  else if constexpr (kInBlocks<Format> || kHasCompanion<Format>)
    return format::F16();
  else
    return Format();
}
template <class Format>
using MultipliedAs = decltype(multiplied_as<Format>());

/// Ops::embed. One block per id.
template <class Format>
struct Embed {
  MatrixRows<Format> table;
  std::int64_t vocab;
  const std::int32_t* id;
  float* y;
  bool accumulate;
  Fault* fault;

  Grid grid(std::int64_t count) const { return {count, threads_for(table.columns, 256)}; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int32_t row = id[block.index()];
    float* const to = y + block.index() * table.columns;
    block.step([&](int t) {
      if (row < 0 || row >= vocab) {
        if (t == 0) report(fault, Fault::kTokenId, row, vocab);
        return;
      }
      const StoredRow from = table[row];
      for (std::int64_t k = t; k < table.columns; k += block.threads())
        to[k] = accumulate ? to[k] + weight_at<Format>(from, k) : weight_at<Format>(from, k);
    });
  }
};

/// Activations as the matrix units take them.
template <class Format>
struct RoundInput {
  static constexpr int kThreads = 256;
  const float* x;
  std::int64_t count;
  std::byte* out;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i < count) store_within<Format>(out, i, x[i]);
    });
  }
};

/// Calls take(k, weight) for the weights of a packed row that are thread t's of `threads`.
template <class Format, class Take>
CANOPY_KERNEL void for_weights_of_thread(const StoredRow& row, int t, int threads,
                                         const Take& take) {
  const std::int64_t groups = ceil_div<std::int64_t>(row.columns, Format::kGroupColumns);
  typename Format::Plain::Element weights[Format::kGroupColumns];
  for (std::int64_t group = t; group < groups; group += threads) {
    Format::decode_group(row, group, weights);
    const std::int64_t first = group * Format::kGroupColumns;
    for (int i = 0; i < Format::kGroupColumns && first + i < row.columns; ++i)
      take(first + i, weights[i]);
  }
}

/// Ops::embed from a packed table. One block per id.
template <class Format>
struct EmbedPacked {
  static constexpr int kThreads = 256;
  MatrixRows<Format> table;
  std::int64_t vocab;
  const std::int32_t* id;
  float* y;
  bool accumulate;
  Fault* fault;

  Grid grid(std::int64_t count) const {
    return {count,
            threads_for(ceil_div<std::int64_t>(table.columns, Format::kGroupColumns), kThreads)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int32_t row = id[block.index()];
    float* const to = y + block.index() * table.columns;
    block.step([&](int t) {
      if (row < 0 || row >= vocab) {
        if (t == 0) report(fault, Fault::kTokenId, row, vocab);
        return;
      }
      for_weights_of_thread<Format>(
          table[row], t, block.threads(), [&](std::int64_t k, auto weight) {
            const float value =
                Format::Plain::decode(reinterpret_cast<const std::byte*>(&weight), 0);
            to[k] = accumulate ? to[k] + value : value;
          });
    });
  }
};

template <class Format>
using EmbedRows = std::conditional_t<kIsPacked<Format>, EmbedPacked<Format>, Embed<Format>>;

/// Adds a bias to columns [first_column, + outputs) of y. One block per row.
struct AddBias {
  const float* bias;
  std::int64_t outputs;
  float* y;
  std::int64_t stride, first_column;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    float* const row = y + block.index() * stride + first_column;
    block.step([&](int t) {
      for (std::int64_t k = t; k < outputs; k += block.threads()) row[k] += bias[k];
    });
  }
};

}  // namespace canopy::cuda
