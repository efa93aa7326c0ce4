#pragma once
// Private to the transformer: what a forward works with. Its rows are laid out and swept in
// transformer.cc; layers.cc has the equations of a layer.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/delta.h"
#include "src/base/error.h"
#include "src/model/buffer_sizes.h"
#include "src/model/mixture.h"
#include "src/model/norms.h"
#include "src/model/sweep_rows.h"
#include "src/model/transformer.h"

namespace canopy {

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Transformer::Impl {
  Device& device;
  ModelConfig config;
  WeightSource& weights;
  Limits limits;
  Ranks* const ranks;  // null: this process has all rows

  Buffer embedded, residual, normed, work, routes, last, logit_input, logits, position, prefix, ids,
      bits, constants;
  Mixture mixtures;
  std::vector<std::int32_t> host_position, host_ids, host_read_ids;
  std::vector<std::int64_t> host_prefix;
  std::vector<TokenId> host_tokens;
  std::vector<std::uint64_t> host_bits;
  std::vector<Layout> layouts;  // of the forwards that were prepared together
  std::size_t current = 0;      // the one that runs
  bool entered = false;         // its nodes have left the embedding for the residual stream
  std::unique_ptr<Event> uploaded;
  std::size_t logit_ids = 0;          // bytes of `ids` before those of read_rows
  std::stop_token stop_at_gather;     // of the sweep that runs, with ranks
  std::vector<Projection> projected;  // of own rows, while they are queued
  std::size_t ones = 0;  // bytes of `constants` before the weights of norms that have none

  Impl(Device& d, const ModelConfig& c, WeightSource& w, const Limits& l, Ranks* r)
      : device(d),
        config(c),
        weights(w),
        limits(l),
        ranks(r && !r->share().is_whole() ? r : nullptr),
        mixtures(device, config, limits.chunk),
        uploaded(d.make_event()) {
    require(limits.max_nodes > 0 && limits.chunk > 0, "a model needs room for at least one node");
    require(ranks == nullptr || device.shares_host_memory(),
            "rows are shared between processes on CPUs alone: a GPU's columns cannot be gathered "
            "yet; use --device cpu");
    require(!config.recurrent() || ranks == nullptr,
            "recurrent layers (gated delta nets) run in one process alone: use no ranks");
    require(!config.recurrent() ||
                (config.form.norm_inputs && !config.form.norm_after && !config.form.parallel),
            "a delta net reads normalised rows");
    require(config.form.positions != PositionKind::kAlibi || !config.sizes_differ(),
            "slopes of heads are for layers of the same heads");
    require(config.experts.count == 0 ||
                (config.form.norm_inputs && !config.form.norm_results && !config.form.parallel),
            "a mixture's results are added as they are");
    require(config.experts.shared_dim == 0 || config.factors.branch == 1,
            "an expert that all rows have has no factor");
    require(!config.form.parallel || (!config.form.norm_results && config.factors.branch == 1),
            "rows that attention and MLP both read have no room for results");
    require(!config.any_layer(&LayerConfig::values_from_keys) ||
                (config.any_layer(&LayerConfig::value_norm) && !config.form.fused_qkv),
            "values that are the keys are normalised");
    require(!config.form.layer_scale || config.experts.count == 0,
            "the sum after a mixture has no factor");
    const BufferSizes sizes(config, limits);
    embedded = device.allocate(sizes.embedded);
    residual = device.allocate(sizes.residual);
    normed = device.allocate(sizes.normed);
    work = device.allocate(sizes.work);
    routes = device.allocate(sizes.routes);
    last = device.allocate(sizes.last);
    logit_input = device.allocate(sizes.logit_input);
    logits = device.allocate(sizes.logits);
    position = device.allocate(sizes.position);
    prefix = device.allocate(sizes.prefix);
    ids = device.allocate(sizes.ids);
    logit_ids = sizes.logit_ids;
    bits = device.allocate(sizes.bits);
    constants = device.allocate(sizes.constants);
    device.ops().reserve(workload(config, limits));
    const auto stream = device.make_stream("setup");
    const std::vector<float> known = constants_of(config);
    ones = sizes.ones;
    device.upload(*stream, constants.data(), std::as_bytes(std::span(known)));
    stream->synchronize();
  }

  TensorView rows_of(const Buffer& buffer, int first, int rows, std::int64_t columns) const {
    return TensorView(buffer.data(), DType::kF32, {first + rows, columns}).rows(first, rows);
  }

  /// Lays each forward's parts out as one list of nodes, cut into chunks, and sends what is known
  /// of them to the device.
  template <class Forwards>
  void lay_out(const Forwards& forwards, Stream& compute);
  void add_layout(std::span<const SequenceRows> parts, Stream& compute);
  const Layout& now() const { return layouts.at(current); }
  void normalize(ConstTensorView x, const UnitWeights& w, Norms norms, TensorView y,
                 Stream& compute) {
    canopy::normalize(device.ops(), config, x, w, norms, y, compute);
  }
  ConstTensorView positions_of(const Chunk& chunk) const;
  /// The rows that attention and MLP of a chunk read: those of the residual stream, or normalised.
  TensorView input_rows(const Chunk& chunk) const {
    if (config.form.norm_after || !config.form.norm_inputs)
      return rows_of(residual, chunk.first_row, chunk.rows, config.dim);
    // The MLP finds what the attention has left there.
    return rows_of(normed, config.form.parallel ? chunk.first_row : 0, chunk.rows, config.dim);
  }
  bool norms_inputs() const { return config.form.norm_inputs && !config.form.norm_after; }
  /// The embedding's rows of this forward's nodes lie here.
  TensorView entry_rows() const {
    return rows_of(config.projects() ? embedded : residual, 0, now().nodes,
                   config.embedding_width());
  }
  /// Computes this process' columns of products with matrices that are cut by rows: all of them
  /// where it has all rows. Each y has the columns of the whole matrix.
  void multiply(ConstTensorView x, std::span<const Projection> products, Stream& compute);
  /// Gathers the columns of rows y [n, columns] that ranks have computed; waits for `compute`.
  void gather(std::initializer_list<TensorView> ys, Stream& compute,
              Ranks::To to = Ranks::To::kAll);
  /// Calls op(part) with views of the columns of y [n, columns] that this process computes: all
  /// rows in one where it has all columns, else row by row.
  template <class Op>
  void for_own_columns(std::int64_t rows, std::int64_t columns, const Op& op) const;
  void activate(int layer, const TensorView& inner, const TensorView& up, Stream& compute);
  void enter(const UnitWeights& w, Stream& compute);
  void project(const UnitWeights& w, int layer, const Chunk& chunk, ConstTensorView h,
               const QkvRows& to, TensorView fused, Stream& compute);
  void norm_heads(const UnitWeights& w, int layer, const QkvRows& to, Stream& compute);
  void rotate_heads(int layer, const Chunk& chunk, const QkvRows& to, Stream& compute);
  void add_result(const UnitWeights& w, Norms norms, ConstTensorView of, Projection product,
                  Stream& compute);
  void scale_logits(TensorView of_rows, Stream& compute);
  void attention(const UnitWeights& w, int layer, Stream& compute);
  void recurrent(const UnitWeights& w, int layer, Stream& compute);
  /// Inputs of a delta net's convolution, and gates, betas and steps.
  struct DeltaInputs {
    TensorView mixed, z, beta, a;
  };
  void project_delta(const UnitWeights& w, ConstTensorView h, const DeltaInputs& to,
                     std::byte* joined, Stream& compute);
  void run_delta(int layer, const Segment& segment, const DeltaEntry& entry, const TensorView& out,
                 Stream& compute);
  XieluFactors xielu_of(int layer) const;
  void mlp(const UnitWeights& w, int layer, Stream& compute);
  void mixture(const UnitWeights& w, int layer, Stream& compute, const std::stop_token& stop);
  void read_for_head(const UnitWeights& w, const std::byte* row_ids, const TensorView& x,
                     const TensorView& to, Stream& compute);
  void hand_out(const UnitWeights& w, const Unit& slice, const OnLogits& read, Stream& compute);
  TensorView sweep(Stream& compute, const std::stop_token& stop, const OnUnit& on_unit,
                   const OnLogits& on_logits);
  /// Calls body(), which uses the weights and `compute`, and leaves both in order if it throws.
  template <class Body>
  auto or_abandon(Stream& compute, const Body& body);
};

}  // namespace canopy
