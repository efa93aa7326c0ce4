#pragma once
#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/attend_kernels.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_products.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/edit_logits.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/levels.h"
#include "kernels/cuda/matrix_product.h"
#include "kernels/cuda/mixture.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/shared_scratch.h"
#include "kernels/cuda/unpack.h"
#include "kernels/device.h"
#include "kernels/gpu_scratch.h"
#include "kernels/ops.h"
#include "src/base/error.h"

namespace canopy::cuda {

/// Ops by the kernels of this folder, but for those of recurrent layers (delta/ops.h). Launch is
/// how a kernel is run: launch(stream, kernel, grid), and loaded, if that is to be done before:
/// launch.load<Kernel>().
template <class Launch>
class BlockOps : public Ops {
 public:
  BlockOps(Device& device, Launch launch, Fault* fault)
      : launch_(launch), fault_(fault), scratch_(device) {}

  std::size_t scratch_bytes(const Workload& largest) const override {
    return gpu_scratch_bytes(largest);
  }
  void reserve(const Workload& largest) override {
    scratch_.reserve(scratch_bytes(largest));
    load_late_kernels(largest.head_dim);
  }

 protected:
  virtual void multiply(Stream& stream, const MatrixProduct& product) = 0;

  Launch launch_;
  Fault* const fault_;
  SharedScratch scratch_;

 private:
  template <class T = float>
  static T* at(const TensorView& view) {
    return reinterpret_cast<T*>(view.data());
  }
  template <class T = float>
  static const T* at(const ConstTensorView& view) {
    return reinterpret_cast<const T*>(view.data());
  }
  template <class Kernel>
  void launch_over(Stream& stream, const Kernel& kernel, std::int64_t count) {
    launch_(stream, kernel,
            Grid{ceil_div<std::int64_t>(count, Kernel::kThreads), Kernel::kThreads});
  }
  static Grid row_grid(std::int64_t rows, std::int64_t columns, int most_threads = 256) {
    return {rows, threads_for(columns, most_threads)};
  }

  /// Input that the projections of one call share.
  struct LinearInput {
    ConstTensorView x;
    std::byte* rounded;              // x, as the matrix units take it
    DType rounded_to = DType::kF32;  // F32: it is not there yet
    std::byte* slice;                // of expanded weights
    std::int64_t slice_rows;
  };

  void do_linear(Stream& stream, ConstTensorView x,
                 std::span<const Projection> projections) override {
    scratch_.lend(stream, LinearScratch(x.dim(0), x.dim(1)).bytes,
                  [&](std::byte* scratch) { linear_in(scratch, stream, x, projections); });
  }
  void linear_in(std::byte* scratch, Stream& stream, ConstTensorView x,
                 std::span<const Projection> projections) {
    const LinearScratch parts(x.dim(0), x.dim(1));
    LinearInput input{x, scratch, DType::kF32, scratch + parts.slice, parts.slice_rows};
    for (const Projection& p : projections)
      visit_format(MatrixFormats(), p.w.format(),
                   [&]<class Format>(Format) { project<Format>(stream, input, p); });
  }

  template <class Format>
  static MatrixRows<Format> rows_of(const WeightView& w) {
    return {w.payload(), w.companion().data, w.columns()};
  }
  /// Rows [first, first + count) as multiplied() has them.
  template <class Format>
  void expand(Stream& stream, const WeightView& w, std::int64_t first, std::int64_t count,
              std::byte* out) {
    const ExpandRows<Format> kernel{rows_of<Format>(w), first,
                                    reinterpret_cast<decltype(ExpandRows<Format>::out)>(out)};
    launch_(stream, kernel, kernel.grid(count));
  }

  /// Rows [first, first + count) of a product of few rows of x; `w` begins with the first of them.
  template <class Multiplied, class Format>
  void multiply_few(Stream& stream, const std::byte* x, const MatrixRows<Format>& w,
                    const Projection& p, std::int64_t first, std::int64_t count) {
    using Few = FewRows<Format, Multiplied>;
    const float* const bias = p.bias.empty() ? nullptr : at(p.bias) + first;
    launch_(stream,
            Few{x, static_cast<int>(p.y.dim(0)), w, count, bias, at(p.y), p.y.dim(1),
                p.first_column + first, p.accumulate == Accumulate::kYes, p.w.factor()},
            Grid{ceil_div<std::int64_t>(count, Few::kWarps), Few::kThreads});
  }

  template <class Format>
  void project(Stream& stream, LinearInput& input, const Projection& p) {
    using Multiplied = MultipliedAs<Format>;
    constexpr bool kExpanded = !std::is_same_v<Multiplied, Format>;
    const std::int64_t n = input.x.dim(0), k = input.x.dim(1), m = p.w.rows(), stride = p.y.dim(1);
    const bool accumulate = p.accumulate == Accumulate::kYes;
    const std::byte* const x = round_input<Multiplied>(stream, input);
    // Plain weights and packed ones, which have the same bits, go to the same products.
    constexpr bool kOwnFew = kExpanded && (kByPieces<Format> || kPacksFp8<Format>);
    const bool few = kOwnFew && n <= RowSums::kMost && k % kPiece == 0;
    if constexpr (kExpanded && kByPieces<Format>)
      if (few) return multiply_few<Multiplied>(stream, x, rows_of<Format>(p.w), p, 0, m);
    MatrixProduct product{
        x,      p.w.payload(), Multiplied::kDType, n, m, k, at(p.y) + p.first_column,
        stride, accumulate,    p.w.factor()};
    if constexpr (kExpanded) {
      product.w = input.slice;
      for (std::int64_t first = 0; first < m; first += input.slice_rows) {
        product.m = std::min(input.slice_rows, m - first);
        product.y = at(p.y) + p.first_column + first;
        expand<Format>(stream, p.w, first, product.m, input.slice);
        if constexpr (kPacksFp8<Format>)
          if (few) {
            const MatrixRows<Multiplied> expanded{input.slice, nullptr, k};
            multiply_few<Multiplied>(stream, x, expanded, p, first, product.m);
            continue;
          }
        multiply(stream, product);
      }
    } else {
      multiply(stream, product);
    }
    if (!p.bias.empty() && !few)
      launch_(stream, AddBias{at(p.bias), m, at(p.y), stride, p.first_column}, row_grid(n, m));
  }

  template <class Format>
  const std::byte* round_input(Stream& stream, LinearInput& input) {
    if constexpr (std::is_same_v<Format, format::F32>) {
      return input.x.data();
    } else {
      const std::int64_t count = input.x.dim(0) * input.x.dim(1);
      if (input.rounded_to != Format::kDType)
        launch_over(stream, RoundInput<Format>{at(input.x), count, input.rounded}, count);
      input.rounded_to = Format::kDType;
      return input.rounded;
    }
  }

  void do_rms_norm(Stream& stream, ConstTensorView x, ConstTensorView g, float eps,
                   TensorView y) override {
    visit_format(PlainFormats(), g.dtype(), [&]<class Format>(Format) {
      launch_(stream, RmsNorm<Format>{at(x), g.data(), eps, x.dim(1), at(y)},
              row_grid(x.dim(0), x.dim(1), RmsNorm<Format>::kThreads));
    });
  }

  void do_layer_norm(Stream& stream, ConstTensorView x, const LayerNorm& norm,
                     TensorView y) override {
    launch_(stream,
            NormalizeRows{at(x), at(norm.g), norm.b.empty() ? nullptr : at(norm.b), norm.eps,
                          x.dim(1), norm.g.rank() == 2 ? norm.g.dim(0) : 1, at(y)},
            row_grid(x.dim(0), x.dim(1), NormalizeRows::kThreads));
  }

  void do_rope(Stream& stream, TensorView qk, ConstTensorView position, const Rope& rope) override {
    launch_(stream,
            RotatePairs{at(qk), qk.dim(1), qk.dim(2), at<std::int32_t>(position),
                        at(rope.inverse_frequency), rope.inverse_frequency.dim(0), rope.magnitude,
                        rope.pairs == RopePairs::kAdjacent, rope.beta, rope.period},
            row_grid(qk.dim(0), qk.dim(1) * rope.inverse_frequency.dim(0), RotatePairs::kThreads));
  }

  void do_swiglu(Stream& stream, ConstTensorView gate, ConstTensorView up, TensorView y,
                 const Gating& gating) override {
    const std::int64_t count = gate.dim(0) * gate.dim(1);
    launch_over(stream, Swiglu{at(gate), at(up), at(y), count, gating}, count);
  }

  void do_route(Stream& stream, ConstTensorView logits, const RouterRule& rule,
                const RoutedRows& to) override {
    launch_(stream,
            RouteRows{at(logits), static_cast<std::int32_t>(logits.dim(1)),
                      static_cast<std::int32_t>(to.expert.dim(1)),
                      rule.score == RouterScore::kSigmoid, rule.normalised == Normalised::kYes,
                      rule.scale, rule.bias.empty() ? nullptr : at(rule.bias),
                      at<std::int32_t>(to.expert), at(to.weight)},
            RouteRows::grid(logits.dim(0), logits.dim(1)));
  }

  void do_expert(Stream& stream, ConstTensorView x, ConstTensorView weight, ConstTensorView rows,
                 const ExpertWeights& weights, const ExpertForm& form, TensorView sum) override {
    const std::int64_t dim = x.dim(1), hidden = weights.gate.rows(), n = rows.dim(0);
    const ExpertScratch parts(n, dim, hidden);
    scratch_.lend(stream, parts.bytes, [&](std::byte* scratch) {
      const auto* const own_rows = at<ExpertRow>(rows);
      const TensorView own(scratch, DType::kF32, {n, dim}),
          gate(scratch + parts.gate, DType::kF32, {n, hidden}),
          up(scratch + parts.up, DType::kF32, {n, hidden}),
          y(scratch + parts.y, DType::kF32, {n, dim});
      launch_(stream, GatherRows{at(x), own_rows, dim, at(own)}, row_grid(n, dim));
      const std::array gate_up{Projection{weights.gate, form.gate_bias, gate},
                               Projection{weights.up, form.up_bias, up}};
      linear_in(scratch + parts.linear, stream, own, gate_up);
      launch_over(stream, Swiglu{at(gate), at(up), at(gate), n * hidden, form.gating}, n * hidden);
      const std::array down{Projection{weights.down, form.down_bias, y}};
      linear_in(scratch + parts.linear, stream, gate, down);
      launch_(stream, AddWeighted{at(y), own_rows, at(weight), dim, at(sum)}, row_grid(n, dim));
    });
  }

  /// Calls use(Format()) for a format that kernels by pieces multiply as Multiplied; returns false
  /// for any other.
  template <class Multiplied, class Use>
  static bool with_pieces(DType dtype, const Use& use) {
    return visit_format(MatrixFormats(), dtype, [&]<class Format>(Format) {
      if constexpr (!kByPieces<Format> || !std::is_same_v<Multiplied, MultipliedAs<Format>>) {
        return false;
      } else {
        use(Format());
        return true;
      }
    });
  }
  /// Computes them at once and returns true if both of their formats are multiplied as Multiplied.
  template <class Multiplied>
  bool did_few_experts(Stream& stream, const FewExperts& few, std::span<const ExpertUse> uses) {
    const DType in = uses[0].weights.gate.format(), out = uses[0].weights.down.format();
    const auto nothing = [](auto) {};
    if (!with_pieces<Multiplied>(in, nothing) || !with_pieces<Multiplied>(out, nothing))
      return false;
    scratch_.lend(stream, few.scratch_bytes(), [&](std::byte* scratch) {
      launch_over(stream, few.rounded<Multiplied>(scratch), few.values_of_x());
      with_pieces<Multiplied>(in, [&]<class Format>(Format) {
        const auto kernel = few.in<Format, Multiplied>(scratch);
        launch_(stream, kernel, kernel.grid());
      });
      with_pieces<Multiplied>(out, [&]<class Format>(Format) {
        const auto kernel = few.out<Format, Multiplied>(scratch);
        launch_(stream, kernel, kernel.grid());
      });
    });
    return true;
  }

  void do_experts(Stream& stream, ConstTensorView x, ConstTensorView weight,
                  std::span<const ExpertUse> uses, TensorView sum) override {
    for (; uses.size() > ExpertParts::kMost; uses = uses.subspan(ExpertParts::kMost))
      do_experts(stream, x, weight, uses.first(ExpertParts::kMost), sum);
    const FewExperts few(x, weight, uses, sum);
    const bool done = are_few_and_alike(uses) && (did_few_experts<format::F16>(stream, few, uses) ||
                                                  did_few_experts<format::BF16>(stream, few, uses));
    if (done) return;
    for (const auto& [weights, form, rows] : uses)
      if (rows.dim(0) > 0) do_expert(stream, x, weight, rows, weights, form, sum);
  }

  void do_activate(Stream& stream, Activation activation, ConstTensorView x, TensorView y,
                   const XieluFactors& xielu) override {
    const std::int64_t count = x.dim(0) * x.dim(1);
    launch_over(stream, Activate{activation, at(x), at(y), count, xielu}, count);
  }

  void do_add(Stream& stream, ConstTensorView x, float factor, TensorView y) override {
    const std::int64_t count = x.dim(0) * x.dim(1);
    launch_over(stream, AddScaled{at(x), factor, at(y), count}, count);
  }

  void do_scale(Stream& stream, TensorView x, DeviceScalar<float> factor, float cap) override {
    const std::int64_t count = x.dim(0) * x.dim(1);
    launch_over(stream, ScaleValues{at(x), factor, cap, count}, count);
  }

  void do_take_apart(Stream& stream, ConstTensorView fused, const RowParts& parts) override {
    const TakeApart call(fused, parts);
    launch_over(stream, call, call.count);
  }

  void do_embed(Stream& stream, WeightView table, ConstTensorView id, TensorView y,
                Accumulate accumulate) override {
    const bool adds = accumulate == Accumulate::kYes;
    visit_format(MatrixFormats(), table.format(), [&]<class Format>(Format) {
      const EmbedRows<Format> embed{
          rows_of<Format>(table), table.rows(), at<std::int32_t>(id), at(y), adds, fault_};
      launch_(stream, embed, embed.grid(id.dim(0)));
    });
  }

  void do_store_kv(Stream& stream, ConstTensorView k, ConstTensorView v,
                   DeviceScalar<std::int64_t> prefix, std::int64_t first_node, KvView kv) override {
    const auto store = [&](const ConstTensorView& from, const TensorView& to) {
      visit_format(PlainFormats(), to.dtype(), [&]<class Format>(Format) {
        launch_(stream,
                StoreRows<Format>{at(from), from.dim(1), from.dim(2), prefix, first_node, to.data(),
                                  slot_table(kv)},
                row_grid(from.dim(0) * from.dim(1), from.dim(2)));
      });
    };
    store(k, kv.k);
    store(v, kv.v);
  }

  void do_keep_kv(Stream& stream, ConstTensorView path, std::int64_t first_slot,
                  KvView kv) override {
    const std::int64_t rows = path.dim(0), heads = kv.k.dim(0);
    const std::size_t row = row_bytes(kv.k.dtype(), kv.k.dim(2));
    const std::size_t bytes = static_cast<std::size_t>(rows * heads) * row;
    scratch_.lend(stream, bytes, [&](std::byte* scratch) {
      for (const TensorView& cache : {kv.k, kv.v}) {
        MoveRows move{MoveRows::Way::kOut,
                      at<std::int32_t>(path),
                      rows,
                      first_slot,
                      slot_table(kv),
                      kv.slots(),
                      cache.data(),
                      reinterpret_cast<std::uint16_t*>(scratch),
                      fault_};
        const Grid grid = row_grid(rows * heads, move.table.row / 2);
        launch_(stream, move, grid);
        move.way = MoveRows::Way::kBack;
        launch_(stream, move, grid);
      }
    });
  }

  void do_attend(Stream& stream, const TreeAttention& call) override {
    const std::int64_t n = call.q.dim(0), kv_heads = call.kv.k.dim(0), columns = call.q.dim(2);
    require_room(call.kv.k.dtype(), columns);
    const AttentionCall rows{at(call.q),
                             call.kv.k.data(),
                             call.kv.v.data(),
                             n,
                             call.q.dim(1) / kv_heads,
                             kv_heads,
                             columns,
                             slot_table(call.kv),
                             tree_mask(call),
                             call.scale,
                             at(call.out),
                             call.slopes.empty() ? nullptr : at(call.slopes),
                             call.sinks.empty() ? nullptr : at(call.sinks),
                             call.cap};
    if (n >= AttentionSlices::kLeastNodes && row_bytes(call.kv.k.dtype(), 1) == 2 &&
        columns % 8 == 0 && !stream.capturing())
      return attend_by_products(stream, call.kv.k.dtype(), rows);
    const auto cut = KeyChunks::of_window(call.window);
    // A graph is launched again with longer texts.
    const bool may_grow = stream.capturing() && call.prefix.at != nullptr;
    const std::int64_t chunks =
        may_grow ? cut.most(rows.tree, n, call.kv.slots()) : cut.needed(rows.tree, n);
    if (chunks == 1) return attend(stream, call.kv.k.dtype(), rows, {nullptr, 1, cut});
    const auto bytes_of_node =
        static_cast<std::size_t>(rows.heads() * chunks * PartialSums::floats(columns)) *
        sizeof(float);
    const auto most = static_cast<std::int64_t>(kGpuSliceBytes / bytes_of_node);
    const std::int64_t at_once = std::clamp<std::int64_t>(most, 1, n);
    scratch_.lend(stream, static_cast<std::size_t>(at_once) * bytes_of_node,
                  [&](std::byte* scratch) {
                    const PartialSums partial{reinterpret_cast<float*>(scratch), chunks, cut};
                    for (std::int64_t first = 0; first < n; first += at_once) {
                      const AttentionCall some = rows.nodes(first, std::min(at_once, n - first));
                      attend(stream, call.kv.k.dtype(), some, partial);
                      const MergeChunks merge{some, partial};
                      launch_(stream, merge, merge.grid());
                    }
                  });
  }
  /// Rows have other bits than by the kernels that fewer rows take: tensor cores round what they
  /// multiply to 16 bits. A graph, which may be launched with longer texts, takes those kernels.
  void attend_by_products(Stream& stream, DType dtype, AttentionCall call) {
    call.tree.prefix = call.tree.prefix.value;
    const AttentionSlices slices(call.n, call.heads(), call.kv_heads, call.head_dim);
    scratch_.lend(stream, slices.bytes, [&](std::byte* scratch) {
      for (std::int64_t first = 0; first < call.n; first += slices.nodes) {
        const AttentionCall some = call.nodes(first, std::min(slices.nodes, call.n - first));
        visit_format(format::List<format::F16, format::BF16>(), dtype, [&]<class Format>(Format) {
          attend_slice<Format>(stream, {some, slices, scratch});
        });
      }
    });
  }
  template <class Format>
  void attend_slice(Stream& stream, SliceOfAttention slice) {
    const RoundQueries<Format> round{slice};
    launch_over(stream, round, round.count());
    for (std::int64_t key = slice.first(); key < slice.end(); key += AttentionSlices::kKeys) {
      slice.go_to(key);
      const GatherKeys gather{slice};
      launch_(stream, gather, gather.grid());
      multiply(stream, slice.product_of_scores(Format::kDType));
      const WeighScores<Format> weigh{slice};
      launch_(stream, weigh, weigh.grid());
      multiply(stream, slice.product_of_values(Format::kDType));
    }
    const DivideSums divide{slice};
    launch_over(stream, divide, divide.count());
  }

  void attend(Stream& stream, DType dtype, const AttentionCall& call, const PartialSums& partial) {
    visit_format(PlainFormats(), dtype, [&]<class Format>(Format) {
      visit_columns(call.head_dim, [&]<int kColumns, bool kExact>() {
        const auto run = [&](const auto& kernel) { launch_(stream, kernel, kernel.grid()); };
        constexpr int kMany = rows_of_block<Format, kColumns>();
        if constexpr (kExact && kMany == 32)
          if (call.n * call.group <= 8)
            return run(AttendChunk<Format, kColumns, true, 8>{call, partial});
        if constexpr (has_room<Format>(kColumns))
          run(AttendChunk<Format, kColumns, kExact, kMany>{call, partial});
      });
    });
  }
  /// Loads the kernels that nothing but a captured call may launch: others take one chunk of keys
  /// for a short text, and many nodes by products.
  void load_late_kernels(std::int64_t head_dim) {
    launch_.template load<MergeChunks>();
    visit_columns(head_dim, [&]<int kColumns, bool kExact>() {
      const auto load = [&]<class Format>(Format) {
        constexpr int kMany = rows_of_block<Format, kColumns>();
        launch_.template load<AttendChunk<Format, kColumns, kExact, kMany>>();
      };
      load(format::F16());
      load(format::BF16());
    });
  }

  void do_edit_logits(Stream& stream, ConstTensorView logits, const LogitEdits& edits,
                      TensorView y) override {
    const std::int64_t words = edits.allowed.empty() ? 0 : edits.allowed.dim(1);
    launch_(stream,
            EditLogits{at(logits), logits.dim(1), at<LogitEditRow>(edits.row),
                       at<LogitEdit>(edits.edit), at<std::uint32_t>(edits.allowed), words, at(y)},
            EditLogits::grid(logits.dim(0)));
  }

  void do_probabilities(Stream& stream, ConstTensorView logits, Sampling sampling,
                        TensorView p) override {
    launch_(stream, Probabilities{at(logits), logits.dim(1), sampling, at(p)},
            Probabilities::grid(logits.dim(0)));
  }

  static TopTokens top_of(const char* op, ConstTensorView logits, std::int64_t count,
                          TensorView token) {
    if (count > TopTokens::kMost)
      throw Error(std::string(op) + ": " + std::to_string(count) +
                  " tokens of a row; on a GPU at most " + std::to_string(TopTokens::kMost) +
                  " can be taken");
    return {at(logits), logits.dim(1), static_cast<int>(count), at<std::int32_t>(token)};
  }

  void do_top_tokens(Stream& stream, ConstTensorView logits, int count, TensorView token) override {
    const TopTokens kernel = top_of("top_tokens", logits, count, token);
    launch_(stream, kernel, kernel.grid(logits.dim(0)));
  }

  void do_top_probabilities(Stream& stream, ConstTensorView logits, float temperature,
                            const BestOfRows& to) override {
    const TopProbabilities kernel{top_of("top_probabilities", logits, to.token.dim(1), to.token),
                                  temperature, at(to.probability), at(to.entropy)};
    launch_(stream, kernel, kernel.grid(logits.dim(0)));
  }

  void do_take_tokens(Stream& stream, ConstTensorView from, ConstTensorView index,
                      TensorView to) override {
    const TakeTokens take{at<std::int32_t>(from), at<std::int32_t>(index), at<std::int32_t>(to),
                          to.dim(0)};
    launch_over(stream, take, take.count);
  }

  void do_draw_tokens(Stream& stream, ConstTensorView q, int count, Replacement replacement,
                      DeviceScalar<StepRng> rng, std::uint64_t first_index,
                      TensorView token) override {
    const DrawTokens kernel{
        at(q), q.dim(1), count, replacement, rng, first_index, at<std::int32_t>(token)};
    launch_(stream, kernel, kernel.grid(q.dim(0)));
  }
};

}  // namespace canopy::cuda
