#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/block.h"
#include "kernels/cuda/block_ops.h"
#include "kernels/cuda/delta/enter.h"
#include "kernels/cuda/delta/gates.h"
#include "kernels/cuda/delta/rule.h"
#include "kernels/delta.h"
#include "kernels/gpu_scratch.h"
#include "kernels/ops.h"
#include "src/base/error.h"

namespace canopy::cuda {

/// BlockOps and the ops of recurrent layers, by the kernels of this folder.
template <class Launch>
class DeltaBlockOps : public BlockOps<Launch> {
 public:
  using BlockOps<Launch>::BlockOps;

 private:
  static float* floats(const TensorView& view) { return reinterpret_cast<float*>(view.data()); }
  static const float* floats(const ConstTensorView& view) {
    return view.empty() ? nullptr : reinterpret_cast<const float*>(view.data());
  }
  static DeltaCall call_of(const DeltaNodes& nodes, KeyHeads heads) {
    const DeltaRows& kept = nodes.kept;
    const auto table = [](const ConstTensorView& view) {
      return reinterpret_cast<const std::int32_t*>(view.data());
    };
    const bool chain = nodes.ancestors.empty();
    const auto* const bits = reinterpret_cast<const std::uint64_t*>(nodes.ancestors.data());
    return {kept.key.dim(1),
            kept.update.dim(1),
            kept.key.dim(2),
            kept.update.dim(2),
            heads == KeyHeads::kByTurns,
            floats(kept.input),
            floats(kept.key),
            floats(kept.update),
            floats(kept.decay),
            table(kept.input_row),
            table(kept.row),
            {chain ? nullptr : bits, chain ? 0 : nodes.ancestors.dim(1), nodes.prefix,
             nodes.first_node}};
  }
  /// Throws Error where a block's shared memory has no room for the rule's parts.
  static void require_room(const DeltaRows& kept) {
    constexpr std::int64_t kMostColumns = 512, kMostHeads = 64;
    const std::int64_t columns = kept.key.dim(2), heads = kept.update.dim(1) / kept.key.dim(1);
    if (columns > kMostColumns || heads > kMostHeads)
      throw Error("delta_rule: " + std::to_string(heads) + " value heads for each key of " +
                  std::to_string(columns) + " columns; on a GPU at most " +
                  std::to_string(kMostHeads) + " of " + std::to_string(kMostColumns) +
                  " are supported");
  }
  template <class Kernel>
  void over(Stream& stream, const Kernel& kernel) {
    this->launch_(stream, kernel,
                  Grid{ceil_div<std::int64_t>(kernel.count, Kernel::kThreads), Kernel::kThreads});
  }

  void do_delta_enter(Stream& stream, const DeltaEntry& call) override {
    const std::int64_t n = call.mixed.dim(0);
    const DeltaCall of = call_of(call.nodes, KeyHeads::kInGroups);
    over(stream, KeepInputs{of, floats(call.mixed), n * call.mixed.dim(1)});
    const EnterNodes enter{of,
                           floats(call.mixed),
                           floats(call.beta),
                           floats(call.a),
                           floats(call.taps),
                           floats(call.rate),
                           floats(call.dt),
                           call.rate_is_log};
    this->launch_(stream, enter, enter.grid(n));
  }

  void do_delta_rule(Stream& stream, const DeltaRule& call) override {
    const std::int64_t n = call.out.dim(0), most = DeltaScratch::kMostNodes;
    require_room(call.nodes.kept);
    const DeltaScratch parts(std::min(n, most), call.out.dim(1));
    const auto& [first_state, second] = call.states;
    const DeltaStates states{{first_state.anchor, second.anchor},
                             {floats(first_state.state), floats(second.state)}};
    this->scratch_.lend(stream, parts.bytes, [&](std::byte* scratch) {
      const DeltaWays ways(scratch, parts);
      for (std::int64_t first = 0; first < n; first += most) {
        const std::int64_t count = std::min(most, n - first);
        DeltaNodes nodes = call.nodes;
        nodes.first_node += first;
        if (!nodes.ancestors.empty()) nodes.ancestors = nodes.ancestors.rows(first, count);
        const DeltaCall of = call_of(nodes, call.key_heads);
        const float* const mixed = floats(call.mixed.rows(first, count));
        const WeighWays weigh{of, states, ways, mixed, this->fault_};
        this->launch_(stream, weigh, weigh.grid(count));
        const RunRule run{of,
                          states,
                          ways,
                          mixed,
                          floats(call.beta.rows(first, count)),
                          static_cast<std::int32_t>(count),
                          floats(call.out.rows(first, count))};
        this->launch_(stream, run, run.grid());
      }
    });
  }

  void do_delta_fold(Stream& stream, const DeltaFold& call) override {
    const MoveState move{call_of({call.kept, {}, 0, 0}, call.key_heads), call.from.anchor,
                         floats(call.from.state), floats(call.to)};
    this->launch_(stream, move, move.grid());
  }

  void do_gated_norm(Stream& stream, const GatedNorm& call) override {
    const std::int64_t columns = call.x.dim(1);
    this->launch_(stream,
                  GateNormed{floats(call.x), floats(call.g), floats(call.z), call.eps, columns},
                  Grid{call.x.dim(0), threads_for(columns, GateNormed::kThreads)});
  }

  void do_gate_heads(Stream& stream, ConstTensorView fused, TensorView x) override {
    over(stream, GateHeads{floats(fused), x.dim(2), x.dim(0) * x.dim(1) * x.dim(2), floats(x)});
  }
};

}  // namespace canopy::cuda
