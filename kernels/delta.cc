// The checks of a recurrent layer's ops, once for all backends.
#include "kernels/delta.h"

#include <cmath>

#include "kernels/op_checks.h"

namespace canopy {

namespace {

constexpr auto kI32 = {DType::kI32};

void check_rows(const char* op, const DeltaRows& rows) {
  check(op, "the cache of keys", rows.key, {kAny, kAny, kAny}, kF32);
  check(op, "the cache of updates", rows.update, {rows.key.dim(0), kAny, kAny}, kF32);
  const std::int64_t key_heads = rows.key.dim(1), value_heads = rows.update.dim(1);
  check(op, "the cache of decays", rows.decay, {rows.key.dim(0), value_heads}, kF32);
  check(op, "the cache of inputs", rows.input,
        {kAny, 2 * key_heads * rows.key.dim(2) + value_heads * rows.update.dim(2)}, kF32);
  check(op, "the table of rows", rows.row, {kAny}, kI32);
  check(op, "the table of inputs", rows.input_row, {rows.row.dim(0)}, kI32);
  check(key_heads > 0 && value_heads % key_heads == 0, op, [&] {
    return std::to_string(value_heads) + " heads of values are no multiple of " +
           std::to_string(key_heads) + " of keys";
  });
}

/// Throws Error unless the nodes, as many as `of_nodes` has rows, lie in the text's slots.
void check_nodes(const char* op, const DeltaNodes& nodes, ConstTensorView of_nodes) {
  check_rows(op, nodes.kept);
  const std::int64_t n = of_nodes.dim(0), slots = nodes.kept.row.dim(0);
  check(nodes.prefix >= 0 && nodes.first_node >= 0 && nodes.prefix <= slots &&
            nodes.first_node + n <= slots - nodes.prefix,
        op, [&] {
          return std::to_string(n) + " nodes after " + std::to_string(nodes.prefix) + " + " +
                 std::to_string(nodes.first_node) + " slots are outside a text of " +
                 std::to_string(slots);
        });
  if (!nodes.ancestors.empty()) check(op, "ancestors", nodes.ancestors, {n, kAny}, {DType::kU64});
}

std::int64_t channels(const DeltaRows& rows) { return rows.input.dim(1); }

void check_state(const char* op, const DeltaRows& rows, ConstTensorView state) {
  if (!state.empty())
    check(op, "a state", state, {rows.update.dim(1), rows.key.dim(2), rows.update.dim(2)}, kF32);
}

/// Checks what both ops over nodes are given.
template <class Call>
void check_call(const char* op, const Call& call) {
  check(op, "beta", call.beta, {kAny, kAny}, kF32);
  check_nodes(op, call.nodes, call.beta);
  const DeltaRows& kept = call.nodes.kept;
  const std::int64_t n = call.beta.dim(0);
  check(op, "beta", call.beta, {n, kept.update.dim(1)}, kF32);
  check(op, "mixed", call.mixed, {n, channels(kept)}, kF32);
}

}  // namespace

void Ops::delta_enter(Stream& stream, const DeltaEntry& call) {
  constexpr const char* kOp = "delta_enter";
  check_call(kOp, call);
  const DeltaRows& kept = call.nodes.kept;
  const std::int64_t n = call.beta.dim(0), heads = kept.update.dim(1);
  check(kOp, "a", call.a, {n, heads}, kF32);
  check(kOp, "taps", call.taps, {channels(kept), kDeltaTaps}, kF32);
  check(kOp, "rate", call.rate, {heads}, kF32);
  check(kOp, "dt", call.dt, {heads}, kF32);
  if (n > 0) do_delta_enter(stream, call);
}

void Ops::delta_rule(Stream& stream, const DeltaRule& call) {
  constexpr const char* kOp = "delta_rule";
  check_call(kOp, call);
  const DeltaRows& kept = call.nodes.kept;
  const std::int64_t n = call.beta.dim(0), heads = kept.update.dim(1);
  check(kOp, "out", call.out, {n, heads, kept.update.dim(2)}, kF32);
  for (const DeltaState& state : call.states) check_state(kOp, kept, state.state);
  if (n > 0) do_delta_rule(stream, call);
}

void Ops::delta_fold(Stream& stream, const DeltaFold& call) {
  constexpr const char* kOp = "delta_fold";
  check_rows(kOp, call.kept);
  check_state(kOp, call.kept, call.from.state);
  check(!call.to.empty() && call.to.data() != call.from.state.data(), kOp,
        [] { return "a state needs another memory"; });
  check_state(kOp, call.kept, call.to);
  check(call.from.anchor >= 0 && call.from.anchor + kAnchorStep <= call.kept.row.dim(0), kOp, [&] {
    return std::to_string(kAnchorStep) + " slots after " + std::to_string(call.from.anchor) +
           " are outside a text of " + std::to_string(call.kept.row.dim(0));
  });
  do_delta_fold(stream, call);
}

void Ops::gated_norm(Stream& stream, const GatedNorm& call) {
  constexpr const char* kOp = "gated_norm";
  check(kOp, "x", call.x, {kAny, kAny}, kF32);
  check(kOp, "z", call.z, {call.x.dim(0), call.x.dim(1)}, kF32);
  check(kOp, "g", call.g, {call.x.dim(1)}, kF32);
  check(call.eps >= 0.0f && std::isfinite(call.eps), kOp,
        [&] { return "eps is " + std::to_string(call.eps); });
  if (call.x.dim(0) > 0) do_gated_norm(stream, call);
}

void Ops::gate_heads(Stream& stream, ConstTensorView fused, TensorView x) {
  constexpr const char* kOp = "gate_heads";
  check(kOp, "x", x, {kAny, kAny, kAny}, kF32);
  check(kOp, "fused", fused, {x.dim(0), x.dim(1), 2, x.dim(2)}, kF32);
  if (x.dim(0) > 0) do_gate_heads(stream, fused, x);
}

}  // namespace canopy
