#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/edit_logits.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/mixture.h"
#include "kernels/cpu/sampling.h"
#include "src/base/error.h"

namespace canopy::cpu {

CpuStream& on_cpu(Stream& stream) {
  auto* const cpu_stream = dynamic_cast<CpuStream*>(&stream);
  require(cpu_stream != nullptr, "this stream belongs to another kind of device");
  return *cpu_stream;
}

std::size_t CpuOps::scratch_bytes(const Workload& largest) const {
  const std::size_t threads = pool_.size();
  const std::int64_t hidden = largest.expert_hidden;
  return std::max(
      {hidden == 0 ? 0 : expert_scratch_bytes(largest.rows, largest.columns, hidden, threads),
       linear_scratch_bytes(largest.rows, largest.columns, threads),
       largest.delta_rows == 0 ? 0 : delta_scratch_bytes(largest.delta_rows, threads),
       attention_scratch_bytes(largest, threads), rope_scratch_bytes(largest.head_dim, threads),
       keep_kv_scratch_bytes(largest.rows, largest.head_dim, threads),
       sampling_scratch_bytes(largest.vocab, threads)});
}

std::byte* CpuOps::scratch(std::size_t bytes) {
  if (bytes > scratch_.bytes()) {
    scratch_ = Buffer();  // first, so that both never exist at once
    scratch_ = device_.allocate(bytes);
  }
  return scratch_.data();
}

void CpuOps::reserve(const Workload& largest) {
  const std::lock_guard lock(turn_);
  scratch(scratch_bytes(largest));
}

template <class Body>
void CpuOps::queue(Stream& stream, std::size_t bytes, const Body& body) {
  on_cpu(stream).enqueue([this, bytes, body] {
    const std::lock_guard lock(turn_);
    body(scratch(bytes));
  });
}

void CpuOps::do_linear(Stream& stream, ConstTensorView x, std::span<const Projection> projections) {
  constexpr std::size_t kTogether = 4;  // fit one slot of the stream; q, k, v are 3
  for (; !projections.empty();
       projections = projections.subspan(std::min(kTogether, projections.size()))) {
    std::array<Projection, kTogether> together;
    const std::size_t count = std::min(kTogether, projections.size());
    std::copy_n(projections.begin(), count, together.begin());
    queue(stream, linear_scratch_bytes(x.dim(0), x.dim(1), pool_.size()),
          [=, this](std::byte* scratch) {
            cpu::linear(pool_, scratch, x, std::span(together).first(count));
          });
  }
}

void CpuOps::do_rms_norm(Stream& stream, ConstTensorView x, ConstTensorView g, float eps,
                         TensorView y) {
  queue(stream, 0, [=, this](std::byte*) { cpu::rms_norm(pool_, x, g, eps, y); });
}

void CpuOps::do_layer_norm(Stream& stream, ConstTensorView x, const LayerNorm& norm, TensorView y) {
  queue(stream, 0, [=, this](std::byte*) { cpu::layer_norm(pool_, x, norm, y); });
}

void CpuOps::do_rope(Stream& stream, TensorView qk, ConstTensorView position, const Rope& rope) {
  queue(stream, rope_scratch_bytes(qk.dim(2), pool_.size()),
        [=, this](std::byte* scratch) { cpu::rope(pool_, scratch, qk, position, rope); });
}

void CpuOps::do_swiglu(Stream& stream, ConstTensorView gate, ConstTensorView up, TensorView y,
                       const Gating& gating) {
  queue(stream, 0, [=, this](std::byte*) { cpu::swiglu(pool_, gate, up, y, gating); });
}

void CpuOps::do_route(Stream& stream, ConstTensorView logits, const RouterRule& rule,
                      const RoutedRows& to) {
  queue(stream, 0, [=](std::byte*) { cpu::route(logits, rule, to); });
}

void CpuOps::do_expert(Stream& stream, ConstTensorView x, ConstTensorView weight,
                       ConstTensorView rows, const ExpertWeights& weights, const ExpertForm& form,
                       TensorView sum) {
  const std::size_t bytes =
      expert_scratch_bytes(rows.dim(0), x.dim(1), weights.gate.rows(), pool_.size());
  queue(stream, bytes, [=, this](std::byte* scratch) {
    cpu::expert(pool_, scratch, x, weight, rows, weights, form, sum);
  });
}

void CpuOps::do_activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y,
                         const XieluFactors& xielu) {
  queue(stream, 0, [=, this](std::byte*) { cpu::activate(pool_, activation, x, y, xielu); });
}

void CpuOps::do_add(Stream& stream, ConstTensorView x, float factor, TensorView y) {
  queue(stream, 0, [=, this](std::byte*) { cpu::add(pool_, x, factor, y); });
}

void CpuOps::do_scale(Stream& stream, TensorView x, DeviceScalar<float> factor, float cap) {
  queue(stream, 0, [=, this](std::byte*) { cpu::scale(pool_, x, factor.now(), cap); });
}

void CpuOps::do_take_apart(Stream& stream, ConstTensorView fused, const RowParts& parts) {
  queue(stream, 0, [=, this](std::byte*) { cpu::take_apart(pool_, fused, parts); });
}

void CpuOps::do_embed(Stream& stream, WeightView table, ConstTensorView id, TensorView y,
                      Accumulate accumulate) {
  queue(stream, 0, [=, this](std::byte*) { cpu::embed(pool_, table, id, y, accumulate); });
}

void CpuOps::do_store_kv(Stream& stream, ConstTensorView k, ConstTensorView v,
                         DeviceScalar<std::int64_t> prefix, std::int64_t first_node, KvView kv) {
  queue(stream, 0,
        [=, this](std::byte*) { cpu::store_kv(pool_, k, v, prefix.now() + first_node, kv); });
}

void CpuOps::do_keep_kv(Stream& stream, ConstTensorView path, std::int64_t first_slot, KvView kv) {
  queue(stream, keep_kv_scratch_bytes(path.dim(0), kv.k.dim(2), pool_.size()),
        [=, this](std::byte* scratch) { cpu::keep_kv(pool_, scratch, path, first_slot, kv); });
}

void CpuOps::do_attend(Stream& stream, const TreeAttention& call) {
  on_cpu(stream).enqueue([this, call] {
    TreeAttention now = call;
    now.prefix = call.prefix.now();
    Workload needed;
    needed.rows = call.q.dim(0);
    needed.heads = call.q.dim(1);
    needed.kv_heads = call.kv.k.dim(0);
    needed.head_dim = call.q.dim(2);
    needed.context = now.prefix.value + call.first_node + call.q.dim(0);
    const std::lock_guard lock(turn_);
    cpu::attend(pool_, scratch(attention_scratch_bytes(needed, pool_.size())), now);
  });
}

void CpuOps::do_delta_enter(Stream& stream, const DeltaEntry& call) {
  queue(stream, 0, [=, this](std::byte*) { cpu::delta_enter(pool_, call); });
}

void CpuOps::do_delta_rule(Stream& stream, const DeltaRule& call) {
  queue(stream, delta_scratch_bytes(call.out.dim(0), pool_.size()),
        [=, this](std::byte* scratch) { cpu::delta_rule(pool_, scratch, call); });
}

void CpuOps::do_delta_fold(Stream& stream, const DeltaFold& call) {
  queue(stream, 0, [=, this](std::byte*) { cpu::delta_fold(pool_, call); });
}

void CpuOps::do_gated_norm(Stream& stream, const GatedNorm& call) {
  queue(stream, 0, [=, this](std::byte*) { cpu::gated_norm(pool_, call); });
}

void CpuOps::do_gate_heads(Stream& stream, ConstTensorView fused, TensorView x) {
  queue(stream, 0, [=, this](std::byte*) { cpu::gate_heads(pool_, fused, x); });
}

void CpuOps::do_edit_logits(Stream& stream, ConstTensorView logits, const LogitEdits& edits,
                            TensorView y) {
  queue(stream, 0, [=, this](std::byte*) { cpu::edit_logits(pool_, logits, edits, y); });
}

void CpuOps::do_probabilities(Stream& stream, ConstTensorView logits, Sampling sampling,
                              TensorView p) {
  queue(stream, sampling_scratch_bytes(logits.dim(1), pool_.size()),
        [=, this](std::byte* scratch) { cpu::probabilities(pool_, scratch, logits, sampling, p); });
}

void CpuOps::do_top_tokens(Stream& stream, ConstTensorView logits, int count, TensorView token) {
  queue(stream, sampling_scratch_bytes(logits.dim(1), pool_.size()),
        [=, this](std::byte* scratch) { cpu::top_tokens(pool_, scratch, logits, count, token); });
}

void CpuOps::do_top_probabilities(Stream& stream, ConstTensorView logits, float temperature,
                                  const BestOfRows& to) {
  queue(stream, sampling_scratch_bytes(logits.dim(1), pool_.size()), [=, this](std::byte* scratch) {
    cpu::top_probabilities(pool_, scratch, logits, temperature, to);
  });
}

void CpuOps::do_take_tokens(Stream& stream, ConstTensorView from, ConstTensorView index,
                            TensorView to) {
  queue(stream, 0, [=](std::byte*) {  // some hundreds: not worth other threads
    const auto* const tokens = reinterpret_cast<const std::int32_t*>(from.data());
    const auto* const indices = reinterpret_cast<const std::int32_t*>(index.data());
    auto* const taken = reinterpret_cast<std::int32_t*>(to.data());
    for (std::int64_t i = 0; i < to.dim(0); ++i) taken[i] = std::max(tokens[indices[i]], 0);
  });
}

void CpuOps::do_draw_tokens(Stream& stream, ConstTensorView q, int count, Replacement replacement,
                            DeviceScalar<StepRng> rng, std::uint64_t first_index,
                            TensorView token) {
  queue(stream, sampling_scratch_bytes(q.dim(1), pool_.size()), [=, this](std::byte* scratch) {
    cpu::draw_tokens(pool_, scratch, q, count, replacement, rng.now(), first_index, token);
  });
}

}  // namespace canopy::cpu
