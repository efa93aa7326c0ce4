#include "src/model/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/model/buffer_sizes.h"
#include "src/model/mixture.h"
#include "src/model/norms.h"
#include "src/model/sweep_rows.h"

namespace canopy {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

struct Transformer::Impl {
  Device& device;
  ModelConfig config;
  WeightSource& weights;
  Limits limits;

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
  std::size_t logit_ids = 0;  // bytes of `ids` before those of read_rows

  Impl(Device& d, const ModelConfig& c, WeightSource& w, const Limits& l)
      : device(d),
        config(c),
        weights(w),
        limits(l),
        mixtures(device, config, limits.chunk),
        uploaded(d.make_event()) {
    require(limits.max_nodes > 0 && limits.chunk > 0, "a model needs room for at least one node");
    require(config.form.positions != PositionKind::kAlibi || !config.sizes_differ(),
            "slopes of heads are for layers of the same heads");
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
    const std::vector<float> known = position_constants(config);
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
  /// The embedding's rows of this forward's nodes lie here.
  TensorView entry_rows() const {
    return rows_of(config.projects() ? embedded : residual, 0, now().nodes,
                   config.embedding_width());
  }
  void enter(const UnitWeights& w, Stream& compute);
  void project(const UnitWeights& w, int layer, const Chunk& chunk, ConstTensorView h,
               const QkvRows& to, TensorView fused, Stream& compute);
  void attention(const UnitWeights& w, int layer, Stream& compute);
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

template <class Forwards>
void Transformer::Impl::lay_out(const Forwards& forwards, Stream& compute) {
  uploaded->wait();  // the previous sweep's copies of the vectors below
  host_position.clear(), host_prefix.clear(), host_ids.clear(), host_tokens.clear();
  host_bits.clear(), host_read_ids.clear(), layouts.clear();
  current = 0;
  for (const std::span<const SequenceRows> parts : forwards) add_layout(parts, compute);
  device.upload(compute, position.data(), std::as_bytes(std::span(host_position)));
  device.upload(compute, prefix.data(), std::as_bytes(std::span(host_prefix)));
  device.upload(compute, ids.data(), std::as_bytes(std::span(host_ids)));
  device.upload(compute, ids.data() + logit_ids, std::as_bytes(std::span(host_read_ids)));
  device.upload(compute, bits.data(), std::as_bytes(std::span(host_bits)));
  compute.record(*uploaded);
}

void Transformer::Impl::add_layout(std::span<const SequenceRows> parts, Stream& compute) {
  const std::size_t first_position = host_position.size(), first_id = host_ids.size();
  Layout& layout = layouts.emplace_back();
  layout.first_position = first_position, layout.first_id = first_id;
  std::vector<Chunk>& chunks = layout.chunks;
  for (const SequenceRows& part : parts) {
    check_part(part, config, limits);
    const TreeBatch& b = part.batch;
    const auto n = static_cast<int>(b.tokens.size());
    part.kv->reserve(part.kv->length() + part.first_scratch_slot + b.first_node + n, compute);
    const auto base = static_cast<int>(host_position.size() - first_position);
    const DeviceScalar<std::int64_t> prefix_of_part(
        part.kv->length() + part.first_scratch_slot,
        reinterpret_cast<const std::int64_t*>(prefix.data()) + host_prefix.size());
    host_prefix.push_back(prefix_of_part.value);
    for (const std::int32_t row : b.logit_rows) host_ids.push_back(base + row);
    for (const std::int32_t row : b.read_rows) host_read_ids.push_back(base + row);
    host_tokens.insert(host_tokens.end(), b.tokens.begin(), b.tokens.end());
    // A tree may reach behind the last position that was learned, where no text does.
    const int last = config.form.positions == PositionKind::kLearned
                         ? config.max_positions - 1
                         : std::numeric_limits<int>::max();
    for (const std::int32_t at : b.position)
      host_position.push_back(std::min(at, last) + config.form.position_offset);
    for (int i = 0; i < n;) {
      if (chunks.empty() || chunks.back().rows == limits.chunk) chunks.push_back({base + i, 0, {}});
      Chunk& chunk = chunks.back();
      const int rows = std::min(n - i, limits.chunk - chunk.rows);
      const bool chain = b.ancestor_bits.empty();
      chunk.segments.push_back(
          {part.kv, base + i, rows, prefix_of_part, b.first_node + i, host_bits.size(), chain});
      // Parents come first, so rows [i, i + rows) have no bits beyond first_node + i + rows.
      const auto words = at(words_for(b.first_node + n));
      for (int r = i; !chain && r < i + rows; ++r) {
        const auto row =
            b.ancestor_bits.subspan(at(r) * words, at(words_for(b.first_node + i + rows)));
        host_bits.insert(host_bits.end(), row.begin(), row.end());
      }
      chunk.rows += rows;
      i += rows;
    }
  }
  layout.nodes = static_cast<int>(host_position.size() - first_position);
  layout.logit_rows = static_cast<int>(host_ids.size() - first_id);
  layout.read_rows = static_cast<int>(host_read_ids.size());
  require(layout.read_rows == 0 || layouts.size() == 1,
          "forwards prepared together have no reader");
  require(layout.read_rows <= limits.max_read_rows,
          "more rows of logits are to be read than the model was set up for");
  if (host_position.size() > at(limits.max_nodes) || layout.logit_rows > limits.max_logit_rows ||
      host_bits.size() * sizeof(std::uint64_t) > bits.bytes())
    throw Error("a sweep of " + std::to_string(host_position.size()) + " nodes and " +
                std::to_string(layout.logit_rows) + " logit rows; the model was set up for " +
                std::to_string(limits.max_nodes) + ", " + std::to_string(limits.max_tree) +
                " of them in trees, and " + std::to_string(limits.max_logit_rows));
}

ConstTensorView Transformer::Impl::positions_of(const Chunk& chunk) const {
  return ConstTensorView(position.data(), DType::kI32,
                         {static_cast<std::int64_t>(host_position.size())})
      .rows(static_cast<std::int64_t>(now().first_position) + chunk.first_row, chunk.rows);
}

/// What the embedding's rows meet before the first layer.
void Transformer::Impl::enter(const UnitWeights& w, Stream& compute) {
  for (const Chunk& chunk : now().chunks) {
    const TensorView x = rows_of(residual, chunk.first_row, chunk.rows, config.dim);
    if (config.projects()) {
      const std::array in{Projection{w.matrix(TensorRole::kProjectIn), {}, x}};
      device.ops().linear(compute,
                          rows_of(embedded, chunk.first_row, chunk.rows, config.embedding_dim), in);
    }
    if (config.form.positions == PositionKind::kLearned)
      device.ops().embed(compute, w.matrix(TensorRole::kPositions), positions_of(chunk), x,
                         Accumulate::kYes);
    if (config.form.embedding_norm) normalize(x, w, kEmbeddingNorms, x, compute);
  }
  entered = true;
}

/// q, k and v of a chunk's rows [n, dim], rotated if the family rotates them. `fused` has room for
/// all three where the model has them in one matrix.
void Transformer::Impl::project(const UnitWeights& w, int layer, const Chunk& chunk,
                                ConstTensorView h, const QkvRows& to, TensorView fused,
                                Stream& compute) {
  Ops& ops = device.ops();
  const std::int64_t n = chunk.rows, hd = config.sizes(layer).head_dim;
  const auto flat = [&](const TensorView& t) {
    return TensorView(t.data(), DType::kF32, {n, t.dim(1) * hd * (t.rank() == 4 ? 3 : 1)});
  };
  if (config.form.fused_qkv) {
    const std::array qkv{Projection{w.matrix(TensorRole::kFusedQkv),
                                    w.vector(TensorRole::kFusedQkvBias), flat(fused)}};
    ops.linear(compute, h, qkv);
    ops.split_qkv(compute, fused, to);
  } else {
    const std::array qkv{
        Projection{w.matrix(TensorRole::kQuery), w.vector(TensorRole::kQueryBias), flat(to.q)},
        Projection{w.matrix(TensorRole::kKey), w.vector(TensorRole::kKeyBias), flat(to.k)},
        Projection{w.matrix(TensorRole::kValue), w.vector(TensorRole::kValueBias), flat(to.v)}};
    ops.linear(compute, h, qkv);
  }
  if (config.layer(layer).qk_norm) {
    const auto per_head = [&](const TensorView& t, const ConstTensorView& g) {
      const std::int64_t heads = config.layer(layer).whole_qk_norm ? t.dim(1) : 1;
      const TensorView rows(t.data(), DType::kF32, {n * t.dim(1) / heads, heads * hd});
      ops.rms_norm(compute, rows, g, config.norm_eps, rows);
    };
    per_head(to.q, w.vector(TensorRole::kQueryNorm));
    per_head(to.k, w.vector(TensorRole::kKeyNorm));
  }
  if (config.form.positions != PositionKind::kRotary) return;
  const std::byte* const frequencies =
      constants.data() + rope_offset(config, layer) * sizeof(float);
  Rope rope{ConstTensorView(frequencies, DType::kF32, {rope_pairs(config, layer)}),
            config.rope_magnitude,
            config.rope_adjacent_pairs ? RopePairs::kAdjacent : RopePairs::kHalves};
  ops.rope(compute, to.k, positions_of(chunk), rope);
  rope.beta = config.query_beta;
  rope.period = config.query_period;
  ops.rope(compute, to.q, positions_of(chunk), rope);
}

void Transformer::Impl::attention(const UnitWeights& w, int layer, Stream& compute) {
  Ops& ops = device.ops();
  const LayerConfig& own = config.layer(layer);
  const LayerSizes sizes = config.sizes(layer);
  const int heads = sizes.heads, kv_heads = sizes.kv_heads, hd = sizes.head_dim;
  ConstTensorView slopes;
  if (config.form.positions == PositionKind::kAlibi)
    slopes = ConstTensorView(constants.data(), DType::kF32, {heads});
  for (const Chunk& chunk : now().chunks) {
    const int n = chunk.rows;
    const TensorView x = rows_of(residual, chunk.first_row, n, config.dim);
    const TensorView h = config.form.norm_after ? x : rows_of(normed, 0, n, config.dim);
    std::byte* next = work.data();
    const auto take = [&](int count) {
      const TensorView view(next, DType::kF32, {n, count, hd});
      next += view.bytes();
      return view;
    };
    const TensorView q = take(heads), k = take(kv_heads), v = take(kv_heads), out = take(heads);
    const TensorView fused(out.data(), DType::kF32, {n, heads, config.form.fused_qkv ? 3 : 0, hd});

    if (!config.form.norm_after) normalize(x, w, kAttentionNorms, h, compute);
    project(w, layer, chunk, h, {q, k, v}, fused, compute);
    for (const Segment& s : chunk.segments) {
      const int skip = s.first_row - chunk.first_row;
      const KvView kv = s.kv->layer(layer);
      ops.store_kv(compute, k.rows(skip, s.rows), v.rows(skip, s.rows), s.prefix, s.first_node, kv);
      ConstTensorView ancestors;
      if (!s.chain)
        ancestors = ConstTensorView(bits.data() + s.bits_offset * sizeof(std::uint64_t),
                                    DType::kU64, {s.rows, words_for(s.first_node + s.rows)});
      ops.attend(compute, {q.rows(skip, s.rows), kv, ancestors, s.prefix, s.first_node,
                           1.0f / std::sqrt(static_cast<float>(hd)), out.rows(skip, s.rows), slopes,
                           own.window, w.vector(TensorRole::kSinks)});
    }
    const std::array output{Projection{w.matrix(TensorRole::kOutput),
                                       w.vector(TensorRole::kOutputBias), x, 0, Accumulate::kYes}};
    ops.linear(compute, TensorView(out.data(), DType::kF32, {n, heads * hd}), output);
    if (config.form.norm_after) normalize(x, w, kAttentionNorms, x, compute);
  }
}

void Transformer::Impl::mlp(const UnitWeights& w, int layer, Stream& compute) {
  Ops& ops = device.ops();
  const int hidden_dim = config.sizes(layer).hidden_dim;
  for (const Chunk& chunk : now().chunks) {
    const int n = chunk.rows;
    const TensorView x = rows_of(residual, chunk.first_row, n, config.dim);
    const TensorView h = config.form.norm_after ? x : rows_of(normed, 0, n, config.dim);
    const TensorView inner = rows_of(work, 0, n, hidden_dim);
    if (!config.form.norm_after) normalize(x, w, kMlpNorms, h, compute);
    if (gated(config)) {
      const TensorView up = rows_of(work, n, n, hidden_dim);
      const std::array gate_up{
          Projection{w.matrix(TensorRole::kGate), {}, inner},
          Projection{w.matrix(TensorRole::kUp), w.vector(TensorRole::kUpBias), up}};
      ops.linear(compute, h, gate_up);
      ops.swiglu(compute, inner, up, inner);
    } else {
      const std::array up{
          Projection{w.matrix(TensorRole::kUp), w.vector(TensorRole::kUpBias), inner}};
      ops.linear(compute, h, up);
      ops.activate(compute,
                   config.form.mlp == MlpKind::kRelu ? Activation::kRelu : Activation::kGeluTanh,
                   inner, inner);
    }
    const std::array down{Projection{w.matrix(TensorRole::kDown), w.vector(TensorRole::kDownBias),
                                     x, 0, Accumulate::kYes}};
    ops.linear(compute, inner, down);
    if (config.form.norm_after) normalize(x, w, kMlpNorms, x, compute);
  }
}

void Transformer::Impl::mixture(const UnitWeights& w, int layer, Stream& compute,
                                const std::stop_token& stop) {
  const int n = now().nodes;
  mixtures.run(w, layer,
               {rows_of(residual, 0, n, config.dim), rows_of(normed, 0, n, config.dim), work.data(),
                routes.data()},
               weights.experts(), compute, stop);
}

/// Gathers what the head reads for some rows of the last layer. Shapes: row_ids [n] i32, x [n,
/// dim], to [n, embedding_width()], which is x where the model does not project.
void Transformer::Impl::read_for_head(const UnitWeights& w, const std::byte* row_ids,
                                      const TensorView& x, const TensorView& to, Stream& compute) {
  Ops& ops = device.ops();
  ops.embed(compute, WeightView(residual.data(), DType::kF32, now().nodes, config.dim),
            ConstTensorView(row_ids, DType::kI32, {x.dim(0)}), x);
  if (!config.form.norm_after) normalize(x, w, kFinalNorms, x, compute);
  if (!config.projects()) return;
  const std::array out{Projection{w.matrix(TensorRole::kProjectOut), {}, to}};
  ops.linear(compute, x, out);
}

/// Hands out this slice's logits of the rows that somebody reads, in pieces that the layers'
/// activations have made room for.
void Transformer::Impl::hand_out(const UnitWeights& w, const Unit& slice, const OnLogits& read,
                                 Stream& compute) {
  const int rows = now().read_rows;
  const auto tokens = static_cast<std::int64_t>(w.matrix(TensorRole::kHead).rows());
  const int room =
      static_cast<int>(work.bytes() / (static_cast<std::size_t>(tokens) * sizeof(float)));
  const int most = std::min({room, limits.chunk, limits.max_nodes});
  for (int first = 0; first < rows; first += most) {
    const int n = std::min(most, rows - first);
    const TensorView x = rows_of(normed, 0, n, config.dim);
    // The matrix that projects comes with the first slice; the embedding's rows have left by then.
    const TensorView in = config.projects() ? rows_of(embedded, first, n, config.embedding_dim) : x;
    if (!config.projects() || slice.first_row == 0)
      read_for_head(w, ids.data() + logit_ids + at(first) * sizeof(std::int32_t), x, in, compute);
    const TensorView out(work.data(), DType::kF32, {n, tokens});
    const std::array head{Projection{w.matrix(TensorRole::kHead), {}, out}};
    device.ops().linear(compute, in, head);
    read(first, slice.first_row, out);
  }
}

TensorView Transformer::Impl::sweep(Stream& compute, const std::stop_token& stop,
                                    const OnUnit& on_unit, const OnLogits& on_logits) {
  const int rows = now().logit_rows;
  const TensorView head_in = rows_of(logit_input, 0, rows, config.embedding_width());
  const TensorView out = rows_of(logits, 0, rows, config.vocab);
  bool gathered = false;
  const std::span<const Unit> units = weights.units();
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (stop.stop_requested()) throw Stopped();
    // Every unit is acquired, needed or not: sources prefetch in this order.
    const UnitLease w = weights.acquire(i, compute, stop);
    if (on_unit) on_unit(units[i]);
    if (i == 0) enter(*w, compute);
    switch (units[i].kind) {
      case UnitKind::kAttention:
        attention(*w, units[i].layer, compute);
        break;
      case UnitKind::kMlp:
        if (config.layer(units[i].layer).experts)
          mixture(*w, units[i].layer, compute, stop);
        else
          mlp(*w, units[i].layer, compute);
        break;
      case UnitKind::kHead:
        if (rows > 0) {
          if (!std::exchange(gathered, true))
            read_for_head(*w, ids.data() + now().first_id * sizeof(std::int32_t),
                          config.projects() ? rows_of(last, 0, rows, config.dim) : head_in, head_in,
                          compute);
          const std::array slice{
              Projection{w->matrix(TensorRole::kHead), {}, out, units[i].first_row}};
          device.ops().linear(compute, head_in, slice);
        }
        if (on_logits) hand_out(*w, units[i], on_logits, compute);
        break;
    }
  }
  return out;
}

template <class Body>
auto Transformer::Impl::or_abandon(Stream& compute, const Body& body) {
  try {
    return body();
  } catch (...) {
    weights.abandon_sweep();
    finish_quietly(compute);  // the caller may now free what queued work reads and writes
    throw;
  }
}

Transformer::Transformer(Device& device, const ModelConfig& config, WeightSource& weights,
                         const Limits& limits)
    : impl_(std::make_unique<Impl>(device, config, weights, limits)) {}
Transformer::~Transformer() = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
const Transformer::Limits& Transformer::limits() const { return impl_->limits; }

TensorView Transformer::forward(std::span<const SequenceRows> parts, Stream& compute,
                                std::stop_token stop, const OnUnit& on_unit,
                                const OnLogits& on_logits) {
  prepare(parts, compute);
  return run(compute, std::move(stop), on_unit, on_logits);
}

ConstTensorView Transformer::hidden() const {
  return impl_->entered ? impl_->rows_of(impl_->residual, 0, impl_->now().nodes, impl_->config.dim)
                        : impl_->entry_rows();
}

ConstTensorView Transformer::logit_inputs() const {
  return impl_->rows_of(impl_->logit_input, 0, static_cast<int>(impl_->host_ids.size()),
                        impl_->config.embedding_width());
}

void Transformer::prepare(std::span<const SequenceRows> parts, Stream& compute) {
  impl_->lay_out(std::array{parts}, compute);
  impl_->entered = false;
  impl_->or_abandon(compute, [&] {
    impl_->weights.embedding().look_up(impl_->host_tokens, compute, impl_->entry_rows());
  });
}

TensorView Transformer::run(Stream& compute, std::stop_token stop, const OnUnit& on_unit,
                            const OnLogits& on_logits) {
  return impl_->or_abandon(compute,
                           [&] { return impl_->sweep(compute, stop, on_unit, on_logits); });
}

void Transformer::prepare_all(std::span<const std::vector<SequenceRows>> forwards,
                              Stream& compute) {
  impl_->lay_out(forwards, compute);
}

TensorView Transformer::run(std::size_t forward, ConstTensorView tokens, Stream& compute,
                            std::stop_token stop) {
  impl_->current = forward;
  impl_->entered = false;
  return impl_->or_abandon(compute, [&] {
    impl_->device.ops().embed(compute, impl_->weights.embedding().on_device(), tokens,
                              impl_->entry_rows());
    return impl_->sweep(compute, stop, {}, {});
  });
}

bool Transformer::embeds_on_device() const {
  return !impl_->weights.embedding().on_device().empty();
}

}  // namespace canopy
