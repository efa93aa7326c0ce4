// The equations of a layer with a gated delta net, math.md "Recurrent layers".
#include "src/model/transformer_impl.h"

namespace canopy {

/// Runs the delta net of a segment's rows, which are those of the entry; states are moved on as
/// far as they must be, and snapshots written.
void Transformer::Impl::run_delta(int layer, const Segment& segment, const DeltaEntry& entry,
                                  const TensorView& out, Stream& compute) {
  Ops& ops = device.ops();
  const RecurrentState& states = *segment.kv->recurrent();
  const KeyHeads heads = config.delta.by_turns ? KeyHeads::kByTurns : KeyHeads::kInGroups;
  for (const DeltaStep& step : segment.steps) {
    if (step.snapshot >= 0) {
      states.write_snapshot(layer, step, compute);
      continue;
    }
    const auto state = [&](const DeltaStep::At& of) {
      return DeltaState{of.anchor, states.state(layer, of.buffer)};
    };
    if (step.rows == 0) {
      ops.delta_fold(compute, {entry.nodes.kept, state(step.states[0]),
                               states.state(layer, step.states[1].buffer), heads});
      continue;
    }
    const auto own = [&](const auto& all) { return all.rows(step.first_row, step.rows); };
    DeltaEntry part = entry;
    part.mixed = own(entry.mixed);
    part.beta = own(entry.beta);
    part.a = own(entry.a);
    part.nodes.first_node += step.first_row;
    if (!entry.nodes.ancestors.empty()) part.nodes.ancestors = own(entry.nodes.ancestors);
    ops.delta_enter(compute, part);
    ops.delta_rule(compute, {part.nodes,
                             part.mixed,
                             part.beta,
                             {state(step.states[0]), state(step.states[1])},
                             heads,
                             own(out)});
  }
}

/// Computes what a delta net reads of rows h. `joined` has room for the products of joined
/// matrices.
void Transformer::Impl::project_delta(const UnitWeights& w, ConstTensorView h,
                                      const DeltaInputs& to, std::byte* joined, Stream& compute) {
  using enum TensorRole;
  Ops& ops = device.ops();
  const DeltaConfig& delta = config.delta;
  const std::int64_t n = h.dim(0), heads = delta.key_heads, keys = heads * delta.key_dim,
                     group = delta.value_heads / heads, values = group * delta.value_dim;
  const auto take = [&](std::int64_t columns) {
    const TensorView view(joined, DType::kF32, {n, columns});
    joined += view.bytes();
    return view;
  };
  std::array<Projection, 4> products;
  std::size_t count = 0;
  TensorView inputs, steps;
  if (delta.joined_inputs) {
    inputs = take(delta.channels() + delta.values());
    products[count++] = {w.matrix(kDeltaJoined), {}, inputs};
  } else {
    products[count++] = {w.matrix(kDeltaMixed), {}, to.mixed};
    products[count++] = {w.matrix(kDeltaGate), {}, to.z};
  }
  if (delta.joined_steps) {
    steps = take(2 * delta.value_heads);
    products[count++] = {w.matrix(kDeltaJoinedSteps), {}, steps};
  } else {
    products[count++] = {w.matrix(kDeltaBeta), {}, to.beta};
    products[count++] = {w.matrix(kDeltaStep), {}, to.a};
  }
  ops.linear(compute, h, std::span(products).first(count));
  const auto of_heads = [&](const TensorView& t) {
    return TensorView(t.data(), DType::kF32, {n, heads, t.dim(1) / heads});
  };
  if (delta.joined_inputs)
    ops.take_apart(compute, of_heads(inputs),
                   {{{delta.key_dim, to.mixed},
                     {delta.key_dim, to.mixed, keys},
                     {values, to.mixed, 2 * keys},
                     {values, to.z}}});
  if (delta.joined_steps)
    ops.take_apart(compute, of_heads(steps), {{{group, to.beta}, {group, to.a}}});
}

void Transformer::Impl::recurrent(const UnitWeights& w, int layer, Stream& compute) {
  require(!compute.capturing(), "a recurrent layer, whose states move on, cannot be captured");
  Ops& ops = device.ops();
  const DeltaConfig& delta = config.delta;
  for (const Chunk& chunk : now().chunks) {
    const int n = chunk.rows;
    const TensorView x = rows_of(residual, chunk.first_row, n, config.dim);
    const TensorView h = input_rows(chunk);
    std::byte* next = work.data();
    const auto take = [&](std::int64_t columns) {
      const TensorView view(next, DType::kF32, {n, columns});
      next += view.bytes();
      return view;
    };
    const TensorView mixed = take(delta.channels()), z = take(delta.values()),
                     beta = take(delta.value_heads), a = take(delta.value_heads),
                     flat = take(delta.values());
    const TensorView out(flat.data(), DType::kF32, {n, delta.value_heads, delta.value_dim});
    normalize(x, w, kAttentionNorms, h, compute);
    // A joined product lies where the results will be.
    project_delta(w, h, {mixed, z, beta, a}, flat.data(), compute);
    for (const Segment& s : chunk.segments) {
      const int skip = s.first_row - chunk.first_row;
      const auto own = [&](const TensorView& all) { return all.rows(skip, s.rows); };
      ConstTensorView ancestors;
      if (!s.chain)
        ancestors = ConstTensorView(bits.data() + s.bits_offset * sizeof(std::uint64_t),
                                    DType::kU64, {s.rows, words_for(s.first_node + s.rows)});
      run_delta(layer, s,
                {{s.kv->recurrent()->rows(layer), ancestors, s.prefix.value, s.first_node},
                 own(mixed),
                 own(beta),
                 own(a),
                 w.vector(TensorRole::kDeltaTaps),
                 w.vector(TensorRole::kDeltaRate),
                 w.vector(TensorRole::kDeltaStepBias),
                 delta.rate_is_log},
                own(out), compute);
    }
    const auto by_heads = [&](const TensorView& t) {
      return TensorView(t.data(), DType::kF32,
                        {std::int64_t{n} * delta.value_heads, delta.value_dim});
    };
    ops.gated_norm(
        compute, {by_heads(flat), w.vector(TensorRole::kDeltaNorm), by_heads(z), config.norm_eps});
    add_result(w, kAttentionResultNorms, flat, {w.matrix(TensorRole::kDeltaOutput), {}, x},
               compute);
  }
}

}  // namespace canopy
