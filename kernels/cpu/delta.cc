// Recurrent layers: gated delta nets over trees (math.md "Recurrent layers"). Each sum of a node
// runs over its own path, in the path's order, so that its bits are those of decoding that path.
#include "kernels/cpu/delta.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/tree_mask.h"
#include "src/base/error.h"

#ifndef CANOPY_KERNELS_CPU_DELTA_ONCE
#define CANOPY_KERNELS_CPU_DELTA_ONCE
namespace canopy::cpu {

template <class T>
T* at(const TensorView& view) {
  return reinterpret_cast<T*>(view.data());
}
template <class T>
const T* at(const ConstTensorView& view) {
  return reinterpret_cast<const T*>(view.data());
}

/// A node and what it reads: the kept rows of its path since its anchor, without its own.
struct Way {
  const std::int32_t* rows;
  std::size_t length;
  std::size_t own;
  const float* state;  // null: zeros
};

/// Sizes of a layer, and the places of its kept rows.
struct DeltaShape {
  std::size_t key_heads, value_heads, key_dim, value_dim, channels, group;
  float *key, *update, *decay;
  bool by_turns;

  DeltaShape(const DeltaRows& kept, KeyHeads heads)
      : key_heads(to_size(kept.key.dim(1))),
        value_heads(to_size(kept.update.dim(1))),
        key_dim(to_size(kept.key.dim(2))),
        value_dim(to_size(kept.update.dim(2))),
        channels(to_size(kept.input.dim(1))),
        group(value_heads / key_heads),
        key(at<float>(kept.key)),
        update(at<float>(kept.update)),
        decay(at<float>(kept.decay)),
        by_turns(heads == KeyHeads::kByTurns) {}
  /// The `i`-th value head of a key head.
  std::size_t value_head(std::size_t key_head, std::size_t i) const {
    return by_turns ? key_head + i * key_heads : key_head * group + i;
  }
  const float* key_of(std::size_t row, std::size_t key_head) const {
    return key + (row * key_heads + key_head) * key_dim;
  }
  float* update_of(std::size_t row, std::size_t value_head) const {
    return update + (row * value_heads + value_head) * value_dim;
  }
  float decay_of(std::size_t row, std::size_t value_head) const {
    return decay[row * value_heads + value_head];
  }
};

/// A thread's scratch: what a node's path weighs for a key head and for one of its value heads.
struct WayWeights {
  float of_keys[kLongestWay], of_queries[kLongestWay], updates[kLongestWay], outputs[kLongestWay];
};

/// Inputs of the convolution on a node's path, the first of them the oldest; null before the text.
using TapRows = std::array<const float*, kDeltaTaps>;

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_DELTA_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE Vec part_of(const float* row, size_t k, size_t n) {
  return load_padded(reinterpret_cast<const uint8_t*>(row), k, n);
}

/// y = silu(sum_t taps_t rows_t), t in order.
void convolve_row(const TapRows& rows, const float* taps, size_t n, float* y) {
  const Floats d;
  HWY_ALIGN float weights[kDeltaTaps][kLanes] = {};
  for (size_t k = 0; k < n; k += kLanes) {
    for (size_t lane = 0; lane < std::min(kLanes, n - k); ++lane)
      for (size_t t = 0; t < kDeltaTaps; ++t) weights[t][lane] = taps[(k + lane) * kDeltaTaps + t];
    Vec sum = hn::Zero(d);
    for (size_t t = 0; t < kDeltaTaps; ++t)
      if (rows[t] != nullptr)
        sum = hn::MulAdd(hn::Load(d, weights[t]), part_of(rows[t], k, n), sum);
    store_part(times_sigmoid(sum, sum), y, k, n);
  }
}

/// y = x factor / sqrt(sum_k x_k^2 + 1e-6). y may be x.
void unit_row(const float* x, float factor, size_t n, float* y) {
  const float length = std::sqrt(sum_of_squares(reinterpret_cast<const uint8_t*>(x), n) + 1e-6f);
  const Vec r = hn::Set(Floats(), 1.0f / length), scale = hn::Set(Floats(), factor);
  for (size_t k = 0; k < n; k += kLanes)
    store_part(hn::Mul(hn::Mul(part_of(x, k, n), r), scale), y, k, n);
}

HWY_INLINE float dot(const float* x, const float* y, size_t n) {
  return sum_over(reinterpret_cast<const uint8_t*>(x), n, [&](Vec acc, Vec v, size_t left) {
    return hn::MulAdd(v, part_of(y, n - left, n), acc);
  });
}

/// Columns [c, c + N vectors) of a node's update and output.
template <size_t N>
HWY_INLINE void rule_columns(const DeltaShape& shape, const Way& way, size_t head, const float* k,
                             const float* q, const WayWeights& weights, float of_state,
                             float own_weight, float beta, const float* v, size_t c, float* out) {
  const Floats d;
  const size_t n = shape.value_dim;
  Vec read[N], asked[N];  // of the state, by key and by query
  for (size_t i = 0; i < N; ++i) read[i] = asked[i] = hn::Zero(d);
  if (way.state != nullptr) {
    const float* row = way.state + head * shape.key_dim * n;
    for (size_t at_key = 0; at_key < shape.key_dim; ++at_key, row += n) {
      const Vec ks = hn::Set(d, k[at_key]), qs = hn::Set(d, q[at_key]);
      for (size_t i = 0; i < N; ++i) {
        const Vec s = part_of(row, c + i * kLanes, n);
        read[i] = hn::MulAdd(ks, s, read[i]);
        asked[i] = hn::MulAdd(qs, s, asked[i]);
      }
    }
  }
  const Vec all = hn::Set(d, of_state);
  Vec update[N], output[N];
  for (size_t i = 0; i < N; ++i) {
    update[i] = hn::NegMulAdd(all, read[i], part_of(v, c + i * kLanes, n));
    output[i] = hn::Mul(all, asked[i]);
  }
  for (size_t j = 0; j < way.length; ++j) {
    const float* const earlier = shape.update_of(static_cast<size_t>(way.rows[j]), head);
    const Vec us = hn::Set(d, weights.updates[j]), os = hn::Set(d, weights.outputs[j]);
    for (size_t i = 0; i < N; ++i) {
      const Vec u = part_of(earlier, c + i * kLanes, n);
      update[i] = hn::NegMulAdd(us, u, update[i]);
      output[i] = hn::MulAdd(os, u, output[i]);
    }
  }
  const Vec betas = hn::Set(d, beta), own = hn::Set(d, own_weight);
  for (size_t i = 0; i < N; ++i) {
    const Vec u = hn::Mul(betas, update[i]);
    store_part(u, shape.update_of(way.own, head), c + i * kLanes, n);
    store_part(hn::MulAdd(own, u, output[i]), out, c + i * kLanes, n);
  }
}

/// The delta rule of one key head's value heads, node by node, parents first.
void rule_head(const DeltaRule& call, const DeltaShape& shape, const Way* ways, size_t key_head,
               WayWeights& weights) {
  const size_t n = to_size(call.out.dim(0)), dim = shape.key_dim;
  for (size_t node = 0; node < n; ++node) {
    const Way& way = ways[node];
    const float* const mixed = at<float>(call.mixed) + node * shape.channels;
    const float* const q = mixed + key_head * dim;
    const float* const k = shape.key_of(way.own, key_head);
    for (size_t j = 0; j < way.length; ++j) {
      const float* const earlier = shape.key_of(static_cast<size_t>(way.rows[j]), key_head);
      weights.of_keys[j] = dot(earlier, k, dim);
      weights.of_queries[j] = dot(earlier, q, dim);
    }
    const float own = dot(k, q, dim);
    for (size_t i = 0; i < shape.group; ++i) {
      const size_t head = shape.value_head(key_head, i);
      float w = shape.decay_of(way.own, head);
      for (size_t j = way.length; j-- > 0;) {
        weights.updates[j] = w * weights.of_keys[j];
        weights.outputs[j] = w * weights.of_queries[j];
        w *= shape.decay_of(static_cast<size_t>(way.rows[j]), head);
      }
      const float beta = at<float>(call.beta)[node * shape.value_heads + head];
      const float* const v = mixed + 2 * shape.key_heads * dim + head * shape.value_dim;
      float* const out = at<float>(call.out) + (node * shape.value_heads + head) * shape.value_dim;
      size_t c = 0;
      for (; c + 4 * kLanes <= shape.value_dim; c += 4 * kLanes)
        rule_columns<4>(shape, way, head, k, q, weights, w, own, beta, v, c, out);
      for (; c < shape.value_dim; c += kLanes)
        rule_columns<1>(shape, way, head, k, q, weights, w, own, beta, v, c, out);
    }
  }
}

/// Columns [c, c + N vectors) of one row of a state that is moved on over `way`.
template <size_t N>
HWY_INLINE void fold_columns(const DeltaShape& shape, const Way& way, size_t head, size_t key_head,
                             size_t row, const float* w, float of_state, size_t c, float* to) {
  const Floats d;
  const size_t n = shape.value_dim, at_state = (head * shape.key_dim + row) * n;
  Vec sum[N];
  for (size_t i = 0; i < N; ++i)
    sum[i] = way.state == nullptr
                 ? hn::Zero(d)
                 : hn::Mul(hn::Set(d, of_state), part_of(way.state + at_state, c + i * kLanes, n));
  for (size_t j = 0; j < way.length; ++j) {
    const auto kept = static_cast<size_t>(way.rows[j]);
    const Vec weight = hn::Set(d, w[j] * shape.key_of(kept, key_head)[row]);
    const float* const update = shape.update_of(kept, head);
    for (size_t i = 0; i < N; ++i)
      sum[i] = hn::MulAdd(weight, part_of(update, c + i * kLanes, n), sum[i]);
  }
  for (size_t i = 0; i < N; ++i) store_part(sum[i], to + at_state, c + i * kLanes, n);
}

/// Moves the state of one value head on.
void fold_head(const DeltaShape& shape, const Way& way, size_t head, size_t key_head, float* to) {
  float weights[kAnchorStep];
  float w = 1.0f;
  for (size_t j = way.length; j-- > 0;) {
    weights[j] = w;
    w *= shape.decay_of(static_cast<size_t>(way.rows[j]), head);
  }
  for (size_t row = 0; row < shape.key_dim; ++row) {
    size_t c = 0;
    for (; c + 4 * kLanes <= shape.value_dim; c += 4 * kLanes)
      fold_columns<4>(shape, way, head, key_head, row, weights, w, c, to);
    for (; c < shape.value_dim; c += kLanes)
      fold_columns<1>(shape, way, head, key_head, row, weights, w, c, to);
  }
}

void gated_norm_row(float* x, const float* g, const float* z, float eps, size_t n) {
  const float mean = sum_of_squares(reinterpret_cast<const uint8_t*>(x), n) / static_cast<float>(n);
  const Vec rs = hn::Set(Floats(), 1.0f / std::sqrt(mean + eps));
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec gate = part_of(z, k, n);
    const Vec normed = hn::Mul(part_of(g, k, n), hn::Mul(part_of(x, k, n), rs));
    store_part(hn::Mul(normed, times_sigmoid(gate, gate)), x, k, n);
  }
}

void gate_row(const float* gate, size_t n, float* x) {
  for (size_t k = 0; k < n; k += kLanes)
    store_part(times_sigmoid(part_of(x, k, n), part_of(gate, k, n)), x, k, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(convolve_row);
HWY_EXPORT(unit_row);
HWY_EXPORT(rule_head);
HWY_EXPORT(fold_head);
HWY_EXPORT(gated_norm_row);
HWY_EXPORT(gate_row);

namespace {

TreeMask mask_of(const DeltaNodes& nodes) {
  const bool chain = nodes.ancestors.empty();
  return {chain ? nullptr : at<std::uint64_t>(nodes.ancestors), chain ? 0 : nodes.ancestors.dim(1),
          nodes.prefix, nodes.first_node};
}

std::int64_t position_of(const TreeMask& mask, std::int64_t node) {
  return mask.prefix.value - 1 + mask.distance(node, mask.prefix.value - 1);
}

/// Calls visit(slot) with the slots of a node's path before its own, the last first, until it
/// returns false.
template <class Visit>
void walk_back(const TreeMask& mask, std::int64_t node, const Visit& visit) {
  for (std::int64_t slot = mask.before(node, mask.end(node) - 1); slot >= 0;
       slot = mask.before(node, slot))
    if (!visit(slot)) return;
}

float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// Places of the parts of delta_rule()'s scratch, and its size.
struct RuleScratch {
  std::size_t rows, weights, bytes;  // the ways themselves come first
  RuleScratch(std::size_t nodes, std::size_t threads) {
    rows = nodes * sizeof(Way);
    weights = rows + nodes * kLongestWay * sizeof(std::int32_t);
    bytes = weights + threads * sizeof(WayWeights);
  }
};

}  // namespace

void delta_enter(Pool& pool, const DeltaEntry& call) {
  const auto convolve = HWY_DYNAMIC_DISPATCH(convolve_row);
  const auto unit = HWY_DYNAMIC_DISPATCH(unit_row);
  const DeltaRows& kept = call.nodes.kept;
  const DeltaShape shape(kept, KeyHeads::kInGroups);
  const TreeMask mask = mask_of(call.nodes);
  const std::size_t n = to_size(call.mixed.dim(0));
  const auto* const input_row = at<std::int32_t>(kept.input_row);
  const auto* const row = at<std::int32_t>(kept.row);
  float *const mixed = at<float>(call.mixed), *const input = at<float>(kept.input);
  const auto input_of = [&](std::int64_t slot) {
    return input + to_size(input_row[slot]) * shape.channels;
  };
  const auto own_slot = [&](std::size_t i) { return mask.end(static_cast<std::int64_t>(i)) - 1; };
  pool.for_each(n, [&](std::size_t i, std::size_t) {
    std::copy_n(mixed + i * shape.channels, shape.channels, input_of(own_slot(i)));
  });
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  pool.for_each(n, [&](std::size_t i, std::size_t) {
    TapRows rows{};
    std::size_t tap = kDeltaTaps;
    rows[--tap] = input_of(own_slot(i));
    walk_back(mask, static_cast<std::int64_t>(i), [&](std::int64_t slot) {
      rows[--tap] = input_of(slot);
      return tap > 0;
    });
    float* const own = mixed + i * shape.channels;
    convolve(rows, at<float>(call.taps), shape.channels, own);
    const std::size_t kept_row = to_size(row[own_slot(i)]);
    for (std::size_t head = 0; head < shape.key_heads; ++head) {
      float* const q = own + head * shape.key_dim;
      float* const k = q + shape.key_heads * shape.key_dim;
      unit(q, query_scale, shape.key_dim, q);
      unit(k, 1.0f, shape.key_dim, k);
      std::copy_n(k, shape.key_dim,
                  shape.key + (kept_row * shape.key_heads + head) * shape.key_dim);
    }
    for (std::size_t head = 0; head < shape.value_heads; ++head) {
      const std::size_t at_head = i * shape.value_heads + head;
      const float rate = at<float>(call.rate)[head];
      const float dt = softplus(at<float>(call.a)[at_head] + at<float>(call.dt)[head]);
      shape.decay[kept_row * shape.value_heads + head] =
          std::exp((call.rate_is_log ? -std::exp(rate) : rate) * dt);
      at<float>(call.beta)[at_head] = sigmoid(at<float>(call.beta)[at_head]);
    }
  });
}

std::size_t delta_scratch_bytes(std::int64_t rows, std::size_t threads) {
  return RuleScratch(to_size(rows), threads).bytes;
}

void delta_rule(Pool& pool, std::byte* scratch, const DeltaRule& call) {
  const auto run = HWY_DYNAMIC_DISPATCH(rule_head);
  const DeltaShape shape(call.nodes.kept, call.key_heads);
  const TreeMask mask = mask_of(call.nodes);
  const std::size_t n = to_size(call.out.dim(0));
  const RuleScratch parts(n, pool.size());
  auto* const ways = reinterpret_cast<Way*>(scratch);
  auto* const rows = reinterpret_cast<std::int32_t*>(scratch + parts.rows);
  auto* const weights = reinterpret_cast<WayWeights*>(scratch + parts.weights);
  const auto* const row = at<std::int32_t>(call.nodes.kept.row);
  for (std::size_t i = 0; i < n; ++i) {
    const auto node = static_cast<std::int64_t>(i);
    const std::int64_t anchor = anchor_of(position_of(mask, node));
    const auto state =
        std::find_if(call.states.begin(), call.states.end(),
                     [&](const DeltaState& known) { return known.anchor == anchor; });
    const bool deep = mask.ancestors != nullptr && anchor > mask.prefix.value;
    require(state != call.states.end() && !deep, "delta_rule: a node's state is not given");
    std::int32_t* const own = rows + i * kLongestWay;
    std::size_t length = 0;
    walk_back(mask, node, [&](std::int64_t slot) {
      if (slot < anchor) return false;
      own[length++] = row[slot];
      return true;
    });
    std::reverse(own, own + length);
    ways[i] = {own, length, to_size(row[mask.end(node) - 1]), at<float>(state->state)};
  }
  pool.for_each(shape.key_heads, [&](std::size_t head, std::size_t worker) {
    run(call, shape, ways, head, weights[worker]);
  });
}

void delta_fold(Pool& pool, const DeltaFold& call) {
  const auto run = HWY_DYNAMIC_DISPATCH(fold_head);
  const DeltaShape shape(call.kept, call.key_heads);
  const Way way{at<std::int32_t>(call.kept.row) + call.from.anchor, to_size(kAnchorStep), 0,
                at<float>(call.from.state)};
  pool.for_each(shape.value_heads, [&](std::size_t i, std::size_t) {
    const std::size_t key_head = i / shape.group;
    run(shape, way, shape.value_head(key_head, i % shape.group), key_head, at<float>(call.to));
  });
}

void gated_norm(Pool& pool, const GatedNorm& call) {
  const auto run = HWY_DYNAMIC_DISPATCH(gated_norm_row);
  const std::size_t n = to_size(call.x.dim(1));
  for_rows(pool, to_size(call.x.dim(0)), n, [&](std::size_t i) {
    run(at<float>(call.x) + i * n, at<float>(call.g), at<float>(call.z) + i * n, call.eps, n);
  });
}

void gate_heads(Pool& pool, ConstTensorView fused, TensorView x) {
  const auto run = HWY_DYNAMIC_DISPATCH(gate_row);
  const std::size_t n = to_size(x.dim(2));
  for_rows(pool, to_size(x.dim(0) * x.dim(1)), n, [&](std::size_t i) {
    run(at<float>(fused) + (2 * i + 1) * n, n, at<float>(x) + i * n);
  });
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
