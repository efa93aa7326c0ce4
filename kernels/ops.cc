// The checks of every op, once for all backends. A backend may trust whatever passed.
#include "kernels/ops.h"

#include <cmath>
#include <limits>
#include <string>

#include "kernels/op_checks.h"
#include "src/base/error.h"

namespace canopy {

namespace {

void check_kv(const char* op, const KvView& kv, std::int64_t kv_heads, std::int64_t head_dim) {
  check(op, "the cache of keys", kv.k, {kv_heads, kKvBlock, head_dim}, kFloats);
  check(op, "the cache of values", kv.v, {kv.k.dim(0), kKvBlock, kv.k.dim(2)}, {kv.k.dtype()});
  check(op, "the table of blocks", kv.block, {kAny}, {DType::kI32});
  check(kv.stride >= static_cast<std::int64_t>(kv.k.bytes()) && kv.stride % 16 == 0, op, [&] {
    return "blocks lie " + std::to_string(kv.stride) + " bytes apart, not a multiple of 16 of at " +
           "least " + std::to_string(kv.k.bytes());
  });
}

/// Throws unless slots [first, first + count) lie in the cache.
void check_slots(const char* op, const KvView& kv, std::int64_t first, std::int64_t count) {
  const std::int64_t slots = kv.slots();
  check(first >= 0 && count >= 0 && count <= slots && first <= slots - count, op, [&] {
    return "slots [" + std::to_string(first) + ", + " + std::to_string(count) +
           ") are outside a cache of " + std::to_string(slots);
  });
}

void check_cap(const char* op, float cap) {
  check(cap >= 0.0f && std::isfinite(cap), op,
        [&] { return "cap is " + std::to_string(cap) + ", not positive, or 0 for none"; });
}

/// Throws unless nodes [first_node, first_node + count) after the prefix do.
void check_nodes(const char* op, const KvView& kv, std::int64_t prefix, std::int64_t first_node,
                 std::int64_t count) {
  check_slots(op, kv, prefix, 0);
  check_slots(op, kv, first_node, 0);  // so that their sum cannot overflow
  check_slots(op, kv, prefix + first_node, count);
}

}  // namespace

void Ops::linear(Stream& stream, ConstTensorView x, std::span<const Projection> projections) {
  constexpr const char* kOp = "linear";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(x.dim(1) > 0, kOp, [] { return "x has no columns"; });
  for (const Projection& p : projections) {
    const std::int64_t m = p.w.rows(), k = x.dim(1);
    check(p.w.columns() == k, kOp, [&] {
      return "w has shape " + shape_of({m, p.w.columns()}) + ", not " + shape_of({kAny, k});
    });
    if (!p.bias.empty()) check(kOp, "bias", p.bias, {m}, kF32);
    check(kOp, "y", p.y, {x.dim(0), kAny}, kF32);
    check(p.first_column >= 0 && m <= p.y.dim(1) && p.first_column <= p.y.dim(1) - m, kOp, [&] {
      return "columns [" + std::to_string(p.first_column) + ", + " + std::to_string(m) +
             ") are outside y of shape " + shape_of(p.y);
    });
  }
  if (x.dim(0) > 0) do_linear(stream, x, projections);
}

void Ops::rms_norm(Stream& stream, ConstTensorView x, ConstTensorView g, float eps, TensorView y) {
  constexpr const char* kOp = "rms_norm";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(x.dim(1) > 0, kOp, [] { return "x has no columns"; });
  check(kOp, "g", g, {x.dim(1)}, kFloats);
  check(kOp, "y", y, {x.dim(0), x.dim(1)}, kF32);
  check(eps >= 0.0f && std::isfinite(eps), kOp, [&] { return "eps is " + std::to_string(eps); });
  if (x.dim(0) > 0) do_rms_norm(stream, x, g, eps, y);
}

void Ops::layer_norm(Stream& stream, ConstTensorView x, const LayerNorm& norm, TensorView y) {
  constexpr const char* kOp = "layer_norm";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(x.dim(1) > 0, kOp, [] { return "x has no columns"; });
  const auto check_part = [&](const char* what, const ConstTensorView& part) {
    if (norm.g.rank() == 2 && norm.g.dim(0) > 0)
      check(kOp, what, part, {norm.g.dim(0), x.dim(1)}, kF32);
    else
      check(kOp, what, part, {x.dim(1)}, kF32);
  };
  check_part("g", norm.g);
  if (!norm.b.empty()) check_part("b", norm.b);
  check(kOp, "y", y, {x.dim(0), x.dim(1)}, kF32);
  check(norm.eps >= 0.0f && std::isfinite(norm.eps), kOp,
        [&] { return "eps is " + std::to_string(norm.eps); });
  if (x.dim(0) > 0) do_layer_norm(stream, x, norm, y);
}

void Ops::rope(Stream& stream, TensorView qk, ConstTensorView position, const Rope& rope) {
  constexpr const char* kOp = "rope";
  check(kOp, "qk", qk, {kAny, kAny, kAny}, kF32);
  check(qk.dim(2) % 2 == 0, kOp,
        [&] { return "head_dim " + std::to_string(qk.dim(2)) + " is odd"; });
  check(kOp, "position", position, {qk.dim(0)}, {DType::kI32});
  check(kOp, "inverse_frequency", rope.inverse_frequency, {kAny}, kF32);
  check(rope.inverse_frequency.dim(0) >= 1 && 2 * rope.inverse_frequency.dim(0) <= qk.dim(2), kOp,
        [&] {
          return std::to_string(rope.inverse_frequency.dim(0)) + " pairs of head_dim " +
                 std::to_string(qk.dim(2));
        });
  check(rope.period >= 1 && std::isfinite(rope.beta), kOp, [&] {
    return "period is " + std::to_string(rope.period) + ", beta " + std::to_string(rope.beta);
  });
  if (qk.bytes() > 0) do_rope(stream, qk, position, rope);
}

namespace {

void check_gating(const char* op, const Gating& gating) {
  const bool clamped = gating.kind == GatingKind::kClamped;
  check(!clamped ||
            (gating.limit > 0.0f && std::isfinite(gating.limit) && std::isfinite(gating.alpha)),
        op, [&] {
          return "limit is " + std::to_string(gating.limit) + ", alpha " +
                 std::to_string(gating.alpha);
        });
}

}  // namespace

void Ops::swiglu(Stream& stream, ConstTensorView gate, ConstTensorView up, TensorView y,
                 const Gating& gating) {
  constexpr const char* kOp = "swiglu";
  check(kOp, "gate", gate, {kAny, kAny}, kF32);
  check(kOp, "up", up, {gate.dim(0), gate.dim(1)}, kF32);
  check(kOp, "y", y, {gate.dim(0), gate.dim(1)}, kF32);
  check_gating(kOp, gating);
  if (gate.bytes() > 0) do_swiglu(stream, gate, up, y, gating);
}

void Ops::route(Stream& stream, ConstTensorView logits, const RouterRule& rule, RoutedRows to) {
  constexpr const char* kOp = "route";
  check(kOp, "logits", logits, {kAny, kAny}, kF32);
  const std::int64_t n = logits.dim(0), active = to.expert.dim(1);
  check(active >= 1 && active <= logits.dim(1), kOp, [&] {
    return std::to_string(active) + " of " + std::to_string(logits.dim(1)) + " experts";
  });
  check(kOp, "expert", to.expert, {n, active}, {DType::kI32});
  check(kOp, "weight", to.weight, {n, active}, kF32);
  if (!rule.bias.empty()) check(kOp, "bias", rule.bias, {logits.dim(1)}, kF32);
  check(std::isfinite(rule.scale), kOp, [&] { return "scale is " + std::to_string(rule.scale); });
  if (n > 0) do_route(stream, logits, rule, to);
}

void Ops::experts(Stream& stream, ConstTensorView x, ConstTensorView weight,
                  std::span<const ExpertUse> uses, TensorView sum) {
  constexpr const char* kOp = "experts";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  const std::int64_t n = x.dim(0), dim = x.dim(1);
  check(kOp, "sum", sum, {n, dim}, kF32);
  check(kOp, "weight", weight, {n, kAny}, kF32);
  for (const auto& [weights, form, rows] : uses) {
    check(kOp, "rows", rows, {kAny, 2}, {DType::kI32});
    const std::int64_t hidden = weights.gate.rows();
    check(hidden > 0 && weights.gate.columns() == dim && weights.up.rows() == hidden &&
              weights.up.columns() == dim && weights.down.rows() == dim &&
              weights.down.columns() == hidden,
          kOp, [&] {
            return "the matrices of an expert are not [" + std::to_string(hidden) + ", " +
                   std::to_string(dim) + "] twice and [" + std::to_string(dim) + ", " +
                   std::to_string(hidden) + "]";
          });
    check_gating(kOp, form.gating);
    const auto check_bias = [&](const char* what, const ConstTensorView& bias,
                                std::int64_t length) {
      if (!bias.empty()) check(kOp, what, bias, {length}, kF32);
    };
    check_bias("the gate's bias", form.gate_bias, hidden);
    check_bias("up's bias", form.up_bias, hidden);
    check_bias("down's bias", form.down_bias, dim);
  }
  if (!uses.empty()) do_experts(stream, x, weight, uses, sum);
}

void Ops::do_experts(Stream& stream, ConstTensorView x, ConstTensorView weight,
                     std::span<const ExpertUse> uses, TensorView sum) {
  for (const auto& [weights, form, rows] : uses)
    if (rows.dim(0) > 0) do_expert(stream, x, weight, rows, weights, form, sum);
}

void Ops::activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y,
                   const XieluFactors& xielu) {
  constexpr const char* kOp = "activate";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(kOp, "y", y, {x.dim(0), x.dim(1)}, kF32);
  check(std::isfinite(xielu.positive + xielu.negative + xielu.beta) && xielu.eps <= 0, kOp, [&] {
    return "xIELU's numbers are " + std::to_string(xielu.positive) + ", " +
           std::to_string(xielu.negative) + ", " + std::to_string(xielu.beta) + " and " +
           std::to_string(xielu.eps);
  });
  if (x.bytes() > 0) do_activate(stream, activation, x, y, xielu);
}

void Ops::add(Stream& stream, ConstTensorView x, float factor, TensorView y) {
  constexpr const char* kOp = "add";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(kOp, "y", y, {x.dim(0), x.dim(1)}, kF32);
  check(std::isfinite(factor), kOp, [&] { return "factor is " + std::to_string(factor); });
  if (x.bytes() > 0) do_add(stream, x, factor, y);
}

void Ops::scale(Stream& stream, TensorView x, DeviceScalar<float> factor, float cap) {
  constexpr const char* kOp = "scale";
  check(kOp, "x", x, {kAny, kAny}, kF32);
  check(std::isfinite(factor.value), kOp,
        [&] { return "factor is " + std::to_string(factor.value); });
  check_cap(kOp, cap);
  if (x.bytes() > 0) do_scale(stream, x, factor, cap);
}

void Ops::take_apart(Stream& stream, ConstTensorView fused, const RowParts& parts) {
  constexpr const char* kOp = "take_apart";
  check(kOp, "fused", fused, {kAny, kAny, kAny}, kF32);
  std::int64_t width = 0;
  for (const RowPart& part : parts) {
    const std::int64_t end = part.first_column + fused.dim(1) * part.width;
    check(part.width >= 0 && part.first_column >= 0, kOp, [&] {
      return "a part of " + std::to_string(part.width) + " columns goes to column " +
             std::to_string(part.first_column);
    });
    width += part.width;
    if (part.y.empty()) continue;
    check(kOp, "a part", part.y, {fused.dim(0), kAny}, kF32);
    check(end <= part.y.dim(1), kOp, [&] {
      return "a part goes to columns up to " + std::to_string(end) + " of " + shape_of(part.y);
    });
  }
  check(width == fused.dim(2), kOp, [&] {
    return "parts of " + std::to_string(width) + " columns are not all of " + shape_of(fused);
  });
  if (fused.bytes() > 0) do_take_apart(stream, fused, parts);
}

void Ops::embed(Stream& stream, WeightView table, ConstTensorView id, TensorView y,
                Accumulate accumulate) {
  constexpr const char* kOp = "embed";
  check(!table.empty(), kOp, [] { return "there is no table"; });
  check(kOp, "id", id, {kAny}, {DType::kI32});
  check(kOp, "y", y, {id.dim(0), table.columns()}, kF32);
  if (y.bytes() > 0) do_embed(stream, table, id, y, accumulate);
}

void Ops::store_kv(Stream& stream, ConstTensorView k, ConstTensorView v,
                   DeviceScalar<std::int64_t> prefix, std::int64_t first_node, KvView kv) {
  constexpr const char* kOp = "store_kv";
  check(kOp, "k", k, {kAny, kAny, kAny}, kF32);
  check(kOp, "v", v, {k.dim(0), k.dim(1), k.dim(2)}, kF32);
  check_kv(kOp, kv, k.dim(1), k.dim(2));
  check_nodes(kOp, kv, prefix.value, first_node, k.dim(0));
  if (k.bytes() > 0) do_store_kv(stream, k, v, prefix, first_node, kv);
}

void Ops::keep_kv(Stream& stream, ConstTensorView path, std::int64_t first_slot, KvView kv) {
  constexpr const char* kOp = "keep_kv";
  check(kOp, "path", path, {kAny}, {DType::kI32});
  check_kv(kOp, kv, kAny, kAny);
  check_slots(kOp, kv, first_slot, path.dim(0));
  if (path.dim(0) > 0) do_keep_kv(stream, path, first_slot, kv);
}

void Ops::attend(Stream& stream, const TreeAttention& call) {
  constexpr const char* kOp = "attend";
  check(kOp, "q", call.q, {kAny, kAny, kAny}, kF32);
  const std::int64_t n = call.q.dim(0), heads = call.q.dim(1);
  check_kv(kOp, call.kv, kAny, call.q.dim(2));
  check(kOp, "out", call.out, {n, heads, call.q.dim(2)}, kF32);
  const std::int64_t kv_heads = call.kv.k.dim(0);
  check(kv_heads > 0 && heads % kv_heads == 0, kOp, [&] {
    return std::to_string(heads) + " heads cannot share " + std::to_string(kv_heads) + " kv heads";
  });
  check_nodes(kOp, call.kv, call.prefix.value, call.first_node, n);
  if (!call.ancestors.empty())
    check(kOp, "ancestors", call.ancestors, {n, (call.first_node + n + 63) / 64}, {DType::kU64});
  if (!call.slopes.empty()) check(kOp, "slopes", call.slopes, {heads}, kF32);
  if (!call.sinks.empty()) check(kOp, "sinks", call.sinks, {heads}, kF32);
  check_cap(kOp, call.cap);
  check(call.window >= 0 && call.window <= std::numeric_limits<std::int32_t>::max(), kOp, [&] {
    return "window is " + std::to_string(call.window) +
           ", not a number of keys below 2^31, or 0 for all";
  });
  if (call.q.bytes() > 0) do_attend(stream, call);
}

void Ops::edit_logits(Stream& stream, ConstTensorView logits, const LogitEdits& edits,
                      TensorView y) {
  constexpr const char* kOp = "edit_logits";
  check(kOp, "logits", logits, {kAny, kAny}, kF32);
  check(kOp, "y", y, {logits.dim(0), logits.dim(1)}, kF32);
  check(kOp, "row", edits.row, {logits.dim(0), 5}, {DType::kI32});
  check(kOp, "edit", edits.edit, {kAny, 4}, {DType::kI32});
  if (!edits.allowed.empty()) {
    check(kOp, "allowed", edits.allowed, {kAny, kAny}, {DType::kU32});
    check(edits.allowed.dim(1) * 32 >= logits.dim(1), kOp, [&] {
      return std::to_string(edits.allowed.dim(1)) + " words of bits are too few for " +
             std::to_string(logits.dim(1)) + " tokens";
    });
  }
  if (logits.bytes() > 0) do_edit_logits(stream, logits, edits, y);
}

void require_valid(const Sampling& sampling) {
  constexpr const char* kWhat = "sampling";
  check(sampling.temperature >= 0.0f && sampling.temperature <= kHighestTemperature, kWhat, [&] {
    return "temperature " + std::to_string(sampling.temperature) + " is outside [0, 1000000]";
  });
  check(sampling.top_k >= 0, kWhat,
        [&] { return "top-k " + std::to_string(sampling.top_k) + " is negative"; });
  check(sampling.top_p > 0.0f && sampling.top_p <= 1.0f, kWhat,
        [&] { return "top-p " + std::to_string(sampling.top_p) + " is outside (0, 1]"; });
  check(sampling.min_p >= 0.0f && sampling.min_p <= 1.0f, kWhat,
        [&] { return "min-p " + std::to_string(sampling.min_p) + " is outside [0, 1]"; });
  check(sampling.typical_p > 0.0f && sampling.typical_p <= 1.0f, kWhat,
        [&] { return "typical-p " + std::to_string(sampling.typical_p) + " is outside (0, 1]"; });
}

void Ops::probabilities(Stream& stream, ConstTensorView logits, Sampling sampling, TensorView p) {
  constexpr const char* kOp = "probabilities";
  check(kOp, "logits", logits, {kAny, kAny}, kF32);
  check(kOp, "p", p, {logits.dim(0), logits.dim(1)}, kF32);
  require_valid(sampling);
  if (logits.bytes() > 0) do_probabilities(stream, logits, sampling, p);
}

void Ops::top_tokens(Stream& stream, ConstTensorView logits, int count, TensorView token) {
  constexpr const char* kOp = "top_tokens";
  check(kOp, "logits", logits, {kAny, kAny}, kF32);
  check(count > 0 && count <= logits.dim(1), kOp, [&] {
    return std::to_string(count) + " tokens cannot be taken from a vocabulary of " +
           std::to_string(logits.dim(1));
  });
  check(kOp, "token", token, {logits.dim(0), count}, {DType::kI32});
  if (logits.dim(0) > 0) do_top_tokens(stream, logits, count, token);
}

void Ops::top_probabilities(Stream& stream, ConstTensorView logits, float temperature,
                            const BestOfRows& to) {
  constexpr const char* kOp = "top_probabilities";
  check(kOp, "logits", logits, {kAny, kAny}, kF32);
  check(kOp, "token", to.token, {logits.dim(0), kAny}, {DType::kI32});
  const std::int64_t count = to.token.dim(1);
  check(count > 0 && count <= logits.dim(1), kOp, [&] {
    return std::to_string(count) + " tokens cannot be taken from a vocabulary of " +
           std::to_string(logits.dim(1));
  });
  check(kOp, "probability", to.probability, {logits.dim(0), count}, kF32);
  check(kOp, "entropy", to.entropy, {logits.dim(0)}, kF32);
  check(temperature > 0 && std::isfinite(temperature), kOp,
        [] { return std::string("the temperature must be a number above 0"); });
  if (logits.dim(0) > 0) do_top_probabilities(stream, logits, temperature, to);
}

void Ops::take_tokens(Stream& stream, ConstTensorView from, ConstTensorView index, TensorView to) {
  constexpr const char* kOp = "take_tokens";
  check(kOp, "from", from, {kAny}, {DType::kI32});
  check(kOp, "index", index, {kAny}, {DType::kI32});
  check(kOp, "to", to, {index.dim(0)}, {DType::kI32});
  if (to.dim(0) > 0) do_take_tokens(stream, from, index, to);
}

void Ops::draw_tokens(Stream& stream, ConstTensorView q, int count, Replacement replacement,
                      DeviceScalar<StepRng> rng, std::uint64_t first_index, TensorView token) {
  constexpr const char* kOp = "draw_tokens";
  check(kOp, "q", q, {kAny, kAny}, kF32);
  check(count > 0 && (replacement == Replacement::kYes || count <= q.dim(1)), kOp, [&] {
    return std::to_string(count) + " distinct tokens cannot be drawn from a vocabulary of " +
           std::to_string(q.dim(1));
  });
  check(kOp, "token", token, {q.dim(0), count}, {DType::kI32});
  if (q.dim(0) > 0) do_draw_tokens(stream, q, count, replacement, rng, first_index, token);
}

}  // namespace canopy
