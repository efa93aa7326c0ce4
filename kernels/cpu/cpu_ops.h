#pragma once
#include <mutex>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace canopy::cpu {

class CpuStream;

/// The stream as this backend's own; throws Error if it belongs to another.
CpuStream& on_cpu(Stream& stream);

/// The arithmetic of the CPU. Work of several streams takes turns: the pool and the scratch serve
/// one op at a time. Calls from any thread, each stream by one.
class CpuOps final : public Ops {
 public:
  CpuOps(Device& device, Pool& pool) : device_(device), pool_(pool) {}

  std::size_t scratch_bytes(const Workload& largest) const override;
  void reserve(const Workload& largest) override;

 private:
  void do_linear(Stream&, ConstTensorView x, std::span<const Projection>) override;
  void do_rms_norm(Stream&, ConstTensorView x, ConstTensorView g, float eps, TensorView y) override;
  void do_layer_norm(Stream&, ConstTensorView x, const LayerNorm& norm, TensorView y) override;
  void do_rope(Stream&, TensorView qk, ConstTensorView position, const Rope&) override;
  void do_swiglu(Stream&, ConstTensorView gate, ConstTensorView up, TensorView y,
                 const Gating& gating) override;
  void do_route(Stream&, ConstTensorView logits, const RouterRule&, const RoutedRows& to) override;
  void do_expert(Stream&, ConstTensorView x, ConstTensorView weight, ConstTensorView rows,
                 const ExpertWeights&, const ExpertForm&, TensorView sum) override;
  void do_activate(Stream&, Activation, ConstTensorView x, TensorView y,
                   const XieluFactors&) override;
  void do_add(Stream&, ConstTensorView x, float factor, TensorView y) override;
  void do_scale(Stream&, TensorView x, DeviceScalar<float> factor, float cap) override;
  void do_take_apart(Stream&, ConstTensorView fused, const RowParts& parts) override;
  void do_embed(Stream&, WeightView table, ConstTensorView id, TensorView y, Accumulate) override;
  void do_store_kv(Stream&, ConstTensorView k, ConstTensorView v, DeviceScalar<std::int64_t> prefix,
                   std::int64_t first_node, KvView) override;
  void do_keep_kv(Stream&, ConstTensorView path, std::int64_t first_slot, KvView) override;
  void do_attend(Stream&, const TreeAttention&) override;
  void do_delta_enter(Stream&, const DeltaEntry&) override;
  void do_delta_rule(Stream&, const DeltaRule&) override;
  void do_delta_fold(Stream&, const DeltaFold&) override;
  void do_gated_norm(Stream&, const GatedNorm&) override;
  void do_gate_heads(Stream&, ConstTensorView fused, TensorView x) override;
  void do_edit_logits(Stream&, ConstTensorView logits, const LogitEdits&, TensorView y) override;
  void do_probabilities(Stream&, ConstTensorView logits, Sampling, TensorView p) override;
  void do_top_tokens(Stream&, ConstTensorView logits, int count, TensorView token) override;
  void do_top_probabilities(Stream&, ConstTensorView logits, float temperature,
                            const BestOfRows& to) override;
  void do_take_tokens(Stream&, ConstTensorView from, ConstTensorView index, TensorView to) override;
  void do_draw_tokens(Stream&, ConstTensorView q, int count, Replacement, DeviceScalar<StepRng>,
                      std::uint64_t first_index, TensorView token) override;

  /// Queues body(scratch), which then has the pool and `bytes` of scratch to itself.
  template <class Body>
  void queue(Stream& stream, std::size_t bytes, const Body& body);
  std::byte* scratch(std::size_t bytes);  // under turn_

  Device& device_;
  Pool& pool_;
  std::mutex turn_;
  Buffer scratch_;
};

}  // namespace canopy::cpu
