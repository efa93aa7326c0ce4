// The equations of a decoder's layers, and of what comes before and after them.
#include "src/model/transformer_impl.h"

namespace canopy {

ConstTensorView Transformer::Impl::positions_of(const Chunk& chunk) const {
  return ConstTensorView(position.data(), DType::kI32,
                         {static_cast<std::int64_t>(host_position.size())})
      .rows(static_cast<std::int64_t>(now().first_position) + chunk.first_row, chunk.rows);
}

void Transformer::Impl::multiply(ConstTensorView x, std::span<const Projection> products,
                                 Stream& compute) {
  if (!ranks) return device.ops().linear(compute, x, products);
  projected.clear();
  for (Projection product : products) {
    const RowRange own = ranks->share().own(product.y.dim(1));
    if (own.count == 0) continue;
    require(product.w.rows() == own.count,
            "a matrix has the rows of another share than that of its rank");
    product.first_column = own.first;
    if (!product.bias.empty())
      product.bias = ConstTensorView(
          product.bias.data() + own.first * static_cast<std::int64_t>(sizeof(float)), DType::kF32,
          {own.count});
    projected.push_back(product);
  }
  if (!projected.empty()) device.ops().linear(compute, x, projected);
}

void Transformer::Impl::gather(std::initializer_list<TensorView> ys, Stream& compute,
                               Ranks::To to) {
  if (!ranks) return;
  compute.synchronize();
  ranks->gather(to, std::span(ys.begin(), ys.size()), stop_at_gather);
}

template <class Op>
void Transformer::Impl::for_own_columns(std::int64_t rows, std::int64_t columns,
                                        const Op& op) const {
  if (!ranks) return op([](const TensorView& y) { return y; });
  const RowRange own = ranks->share().own(columns);
  for (std::int64_t row = 0; row < rows && own.count > 0; ++row)
    op([&](const TensorView& y) {
      return TensorView(
          y.data() + (row * columns + own.first) * static_cast<std::int64_t>(sizeof(float)),
          DType::kF32, {1, own.count});
    });
}

/// Makes the embedding's rows the first layer's input.
void Transformer::Impl::enter(const UnitWeights& w, Stream& compute) {
  for (const Chunk& chunk : now().chunks) {
    const TensorView x = rows_of(residual, chunk.first_row, chunk.rows, config.dim);
    if (config.projects()) {
      const std::array in{Projection{w.matrix(TensorRole::kProjectIn), {}, x}};
      device.ops().linear(compute,
                          rows_of(embedded, chunk.first_row, chunk.rows, config.embedding_dim), in);
    }
    if (config.factors.embedding != 1) device.ops().scale(compute, x, config.factors.embedding);
    if (config.form.positions == PositionKind::kLearned)
      device.ops().embed(compute, w.matrix(TensorRole::kPositions), positions_of(chunk), x,
                         Accumulate::kYes);
    if (config.form.embedding_norm) normalize(x, w, kEmbeddingNorms, x, compute);
  }
  entered = true;
}

/// q, k and v of a chunk's rows [n, dim], rotated if the family rotates them. `fused` has room for
/// all three where the model has them in one matrix, or for the queries and their gates.
void Transformer::Impl::project(const UnitWeights& w, int layer, const Chunk& chunk,
                                ConstTensorView h, const QkvRows& to, TensorView fused,
                                Stream& compute) {
  Ops& ops = device.ops();
  const LayerConfig& own = config.layer(layer);
  const std::int64_t n = chunk.rows, hd = config.sizes(layer).head_dim;
  const auto flat = [&](const TensorView& t) {
    return TensorView(t.data(), DType::kF32, {n, t.dim(1) * hd * (t.rank() == 4 ? t.dim(2) : 1)});
  };
  const auto by_heads = [&](const TensorView& t) {
    return TensorView(t.data(), DType::kF32, {n, t.dim(1), t.dim(2) * hd});
  };
  if (config.form.fused_qkv) {
    const std::array qkv{Projection{w.matrix(TensorRole::kFusedQkv),
                                    w.vector(TensorRole::kFusedQkvBias), flat(fused)}};
    multiply(h, qkv, compute);
    gather({flat(fused)}, compute);
    ops.take_apart(compute, by_heads(fused),
                   {{{hd, flat(to.q)}, {hd, flat(to.k)}, {hd, flat(to.v)}}});
  } else {
    const TensorView queries = flat(own.output_gate ? fused : to.q);
    const std::array qkv{
        Projection{w.matrix(TensorRole::kQuery), w.vector(TensorRole::kQueryBias), queries},
        Projection{w.matrix(TensorRole::kKey), w.vector(TensorRole::kKeyBias), flat(to.k)},
        own.values_from_keys ? Projection{}
                             : Projection{w.matrix(TensorRole::kValue),
                                          w.vector(TensorRole::kValueBias), flat(to.v)}};
    multiply(h, std::span(qkv).first(own.values_from_keys ? 2 : 3), compute);
    if (own.values_from_keys)
      gather({queries, flat(to.k)}, compute);
    else
      gather({queries, flat(to.k), flat(to.v)}, compute);
    if (own.output_gate) ops.take_apart(compute, by_heads(fused), {{{hd, flat(to.q)}, {hd}}});
  }
  if (own.value_norm) {
    const auto each = [&](const TensorView& t) {
      return TensorView(t.data(), DType::kF32, {n * t.dim(1), hd});
    };
    ops.rms_norm(compute, each(own.values_from_keys ? to.k : to.v),
                 ConstTensorView(constants.data() + ones, DType::kF32, {hd}), config.norm_eps,
                 each(to.v));
  }
  if (own.qk_norm && !config.form.norm_rotated) norm_heads(w, layer, to, compute);
  if (config.form.positions == PositionKind::kRotary && own.rotated)
    rotate_heads(layer, chunk, to, compute);
  if (own.qk_norm && config.form.norm_rotated) norm_heads(w, layer, to, compute);
}

/// Normalises queries and keys, by heads or by whole rows.
void Transformer::Impl::norm_heads(const UnitWeights& w, int layer, const QkvRows& to,
                                   Stream& compute) {
  Ops& ops = device.ops();
  const LayerConfig& own = config.layer(layer);
  const auto norm_each = [&](const TensorView& t, const ConstTensorView& g) {
    const std::int64_t n = t.dim(0), heads = t.dim(1), hd = t.dim(2);
    const std::int64_t joined = own.whole_qk_norm ? heads : 1;
    const TensorView rows(t.data(), DType::kF32, {n * heads / joined, joined * hd});
    if (own.each_head_norm)
      ops.layer_norm(compute, rows,
                     {ConstTensorView(g.data(), DType::kF32, {heads, hd}), {}, config.norm_eps},
                     rows);
    else
      ops.rms_norm(compute, rows, g, config.norm_eps, rows);
  };
  norm_each(to.q, w.vector(TensorRole::kQueryNorm));
  norm_each(to.k, w.vector(TensorRole::kKeyNorm));
}

/// Rotates queries and keys, by the frequencies of their texts' length.
void Transformer::Impl::rotate_heads(int layer, const Chunk& chunk, const QkvRows& to,
                                     Stream& compute) {
  Ops& ops = device.ops();
  const auto rotate = [&](int skip, int rows, TextLength length) {
    const std::byte* const frequencies =
        constants.data() + rope_offset(config, layer, length) * sizeof(float);
    Rope rope{ConstTensorView(frequencies, DType::kF32, {rope_pairs(config, layer)}),
              config.magnitude(layer),
              config.rope_adjacent_pairs ? RopePairs::kAdjacent : RopePairs::kHalves};
    const ConstTensorView positions = positions_of(chunk).rows(skip, rows);
    ops.rope(compute, to.k.rows(skip, rows), positions, rope);
    rope.beta = config.query_beta;
    rope.period = config.query_period;
    ops.rope(compute, to.q.rows(skip, rows), positions, rope);
  };
  if (config.rope_long_frequency.empty()) return rotate(0, chunk.rows, TextLength::kShort);
  for (const Segment& s : chunk.segments)
    rotate(s.first_row - chunk.first_row, s.rows, s.kv->text_length());
}

/// Adds what attention or MLP gives to the residual stream: the product of `of` with a matrix,
/// whose rows y are the stream's.
void Transformer::Impl::add_result(const UnitWeights& w, Norms norms, ConstTensorView of,
                                   Projection product, Stream& compute) {
  Ops& ops = device.ops();
  const TensorView x = product.y;
  const bool as_it_is = !config.form.norm_results && config.factors.branch == 1;
  if (!as_it_is) product.y = rows_of(normed, 0, static_cast<int>(x.dim(0)), config.dim);
  product.accumulate = as_it_is ? Accumulate::kYes : Accumulate::kNo;
  multiply(of, std::array{product}, compute);
  gather({product.y}, compute);
  if (as_it_is) return;
  if (config.form.norm_results) normalize(product.y, w, norms, product.y, compute);
  ops.add(compute, product.y, config.factors.branch, x);
}

void Transformer::Impl::attention(const UnitWeights& w, int layer, Stream& compute) {
  Ops& ops = device.ops();
  const LayerConfig& own = config.layer(layer);
  const LayerSizes sizes = config.sizes(layer);
  const int heads = sizes.heads, kv_heads = sizes.kv_heads, hd = sizes.head_dim;
  const float scale =
      config.factors.score != 0 ? config.factors.score : 1.0f / std::sqrt(static_cast<float>(hd));
  ConstTensorView slopes;
  if (config.form.positions == PositionKind::kAlibi)
    slopes = ConstTensorView(constants.data(), DType::kF32, {heads});
  for (const Chunk& chunk : now().chunks) {
    const int n = chunk.rows;
    const TensorView x = rows_of(residual, chunk.first_row, n, config.dim);
    const TensorView h = input_rows(chunk);
    std::byte* next = work.data();
    const auto take = [&](int count) {
      const TensorView view(next, DType::kF32, {n, count, hd});
      next += view.bytes();
      return view;
    };
    const TensorView q = take(heads), k = take(kv_heads), v = take(kv_heads), out = take(heads);
    // The product of all three lies where the results will be, that of queries and gates after
    // them.
    const int together = config.form.fused_qkv ? 3 : own.output_gate ? 2 : 0;
    const TensorView fused(own.output_gate ? next : out.data(), DType::kF32,
                           {n, heads, together, hd});

    if (norms_inputs()) normalize(x, w, kAttentionNorms, h, compute);
    project(w, layer, chunk, h, {q, k, v}, fused, compute);
    for (const Segment& s : chunk.segments) {
      const int skip = s.first_row - chunk.first_row;
      const KvView kv = s.kv->layer(layer);
      ops.store_kv(compute, k.rows(skip, s.rows), v.rows(skip, s.rows), s.prefix, s.first_node, kv);
      ConstTensorView ancestors;
      if (!s.chain)
        ancestors = ConstTensorView(bits.data() + s.bits_offset * sizeof(std::uint64_t),
                                    DType::kU64, {s.rows, words_for(s.first_node + s.rows)});
      ops.attend(compute, {q.rows(skip, s.rows), kv, ancestors, s.prefix, s.first_node, scale,
                           out.rows(skip, s.rows), slopes, own.window, w.vector(TensorRole::kSinks),
                           config.factors.score_cap});
    }
    if (own.output_gate) ops.gate_heads(compute, fused, out);
    add_result(w, kAttentionResultNorms, TensorView(out.data(), DType::kF32, {n, heads * hd}),
               {w.matrix(TensorRole::kOutput), w.vector(TensorRole::kOutputBias), x}, compute);
    if (config.form.norm_after) normalize(x, w, kAttentionNorms, x, compute);
  }
}

namespace {

/// Names what an MLP without a gate does with its inner values.
Activation activation_of(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kRelu:
      return Activation::kRelu;
    case MlpKind::kReluSquared:
      return Activation::kReluSquared;
    case MlpKind::kXielu:
      return Activation::kXielu;
    default:
      return Activation::kGeluTanh;
  }
}

}  // namespace

/// Gives the numbers of a layer's activation, of a model that has some.
XieluFactors Transformer::Impl::xielu_of(int layer) const {
  if (config.xielu.empty()) return {};
  const Xielu& own = config.xielu.at(at(layer));
  return {own.positive(), own.negative(), own.beta, own.eps};
}

void Transformer::Impl::activate(int layer, const TensorView& inner, const TensorView& up,
                                 Stream& compute) {
  Ops& ops = device.ops();
  const MlpKind kind = config.form.mlp;
  for_own_columns(inner.dim(0), inner.dim(1), [&](const auto& own) {
    if (config.form.gated())
      ops.swiglu(compute, own(inner), own(up), own(inner),
                 {kind == MlpKind::kGeglu ? GatingKind::kGelu : GatingKind::kSwiglu});
    else
      ops.activate(compute, activation_of(kind), own(inner), own(inner), xielu_of(layer));
  });
}

void Transformer::Impl::mlp(const UnitWeights& w, int layer, Stream& compute) {
  const int hidden_dim = config.sizes(layer).hidden_dim;
  for (const Chunk& chunk : now().chunks) {
    const int n = chunk.rows;
    const TensorView x = rows_of(residual, chunk.first_row, n, config.dim);
    const TensorView h = input_rows(chunk);
    const TensorView inner = rows_of(work, 0, n, hidden_dim);
    if (norms_inputs() && !config.form.parallel) normalize(x, w, kMlpNorms, h, compute);
    const TensorView up = config.form.gated() ? rows_of(work, n, n, hidden_dim) : inner;
    const std::array products{
        Projection{w.matrix(TensorRole::kGate), {}, inner},
        Projection{w.matrix(TensorRole::kUp), w.vector(TensorRole::kUpBias), up}};
    multiply(h, std::span(products).last(config.form.gated() ? 2 : 1), compute);
    activate(layer, inner, up, compute);
    gather({inner}, compute);
    add_result(w, kMlpResultNorms, inner,
               {w.matrix(TensorRole::kDown), w.vector(TensorRole::kDownBias), x}, compute);
    if (config.form.norm_after) normalize(x, w, kMlpNorms, x, compute);
    if (config.form.layer_scale) {
      const ConstTensorView scale = w.vector(TensorRole::kLayerScale);
      device.ops().scale(compute, x, {1.0f, reinterpret_cast<const float*>(scale.data())});
    }
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

void Transformer::Impl::scale_logits(TensorView of_rows, Stream& compute) {
  const DecoderFactors& factors = config.factors;
  if (factors.logit != 1 || factors.logit_cap != 0)
    device.ops().scale(compute, of_rows, factors.logit, factors.logit_cap);
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
    scale_logits(out, compute);
    read(first, slice.first_row, out);
  }
}

}  // namespace canopy
