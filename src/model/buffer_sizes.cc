#include "src/model/buffer_sizes.h"

namespace canopy {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Floats of a row that a layer's attention or delta net works with.
std::size_t mixing_floats(const ModelConfig& c, int layer) {
  const LayerConfig& own = c.layer(layer);
  const LayerSizes s = c.sizes(layer);
  if (own.recurrent) {
    // The inputs of the convolution, z, b and a, and the results, or, before, what is joined.
    const DeltaConfig& d = c.delta;
    const int joined = (d.joined_inputs ? d.channels() + d.values() : 0) +
                       (d.joined_steps ? 2 * d.value_heads : 0);
    return at(d.channels() + d.values() + 2 * d.value_heads + std::max(d.values(), joined));
  }
  // q, k, v and out, which may lie where the fused product was; and queries with their gates.
  const std::size_t out = c.form.fused_qkv ? 3 : own.output_gate ? 3 : 1;
  return at(s.head_dim) * (at(s.heads) * (1 + out) + 2 * at(s.kv_heads));
}

/// The most of a figure among the layers.
template <class Of>
auto most(const ModelConfig& c, const Of& of) {
  auto largest = of(c.sizes(0));
  for (int layer = 1; layer < c.layers; ++layer) largest = std::max(largest, of(c.sizes(layer)));
  return largest;
}

std::size_t count_of_ones(const ModelConfig& c) {
  if (!c.any_layer(&LayerConfig::value_norm)) return 0;
  return at(most(c, [](const LayerSizes& s) { return s.head_dim; }));
}

}  // namespace

std::vector<float> constants_of(const ModelConfig& c) {
  std::vector<float> all = c.alibi_slopes;
  if (c.rope_of_kind.empty())
    all.insert(all.end(), c.rope_inverse_frequency.begin(), c.rope_inverse_frequency.end());
  for (const std::vector<float>& one : c.rope_of_kind)
    all.insert(all.end(), one.begin(), one.end());
  all.insert(all.end(), c.rope_long_frequency.begin(), c.rope_long_frequency.end());
  all.insert(all.end(), count_of_ones(c), 1.0f);
  return all;
}

std::size_t rope_offset(const ModelConfig& c, int layer, TextLength length) {
  if (length == TextLength::kLong) return c.rope_inverse_frequency.size();
  std::size_t offset = 0;
  for (std::size_t kind = 0; !c.rope_of_kind.empty() && kind < c.kind(layer); ++kind)
    offset += c.rope_of_kind[kind].size();
  return offset;
}

std::int64_t rope_pairs(const ModelConfig& c, int layer) {
  return std::ssize(c.rope_of_kind.empty() ? c.rope_inverse_frequency
                                           : c.rope_of_kind.at(c.kind(layer)));
}

BufferSizes::BufferSizes(const ModelConfig& c, const Transformer::Limits& limits) {
  const auto nodes = at(limits.max_nodes), chunk = at(std::min(limits.chunk, limits.max_nodes));
  const auto rows = at(limits.max_logit_rows), f32 = sizeof(float);
  std::size_t attention = 0;
  for (int layer = 0; layer < c.layers; ++layer)
    attention = std::max(attention, mixing_floats(c, layer));
  const std::size_t mlp = most(c, [&](const LayerSizes& s) {
    return s.experts > 0 ? at(s.experts) : at(s.hidden_dim) * (c.form.gated() ? 2 : 1);
  });
  embedded = c.projects() ? nodes * at(c.embedding_dim) * f32 : 0;
  residual = nodes * at(c.dim) * f32;
  normed = (c.experts.count > 0 || c.form.parallel ? nodes : chunk) * at(c.dim) * f32;
  work = chunk * std::max(attention, mlp) * f32;  // attention and MLP take turns
  if (limits.max_read_rows > 0) work = std::max(work, at(c.vocab) * f32);  // and pieces of logits
  routes = nodes * at(c.experts.active) * (sizeof(std::int32_t) + f32 + sizeof(ExpertRow));
  if (c.experts.shared_dim > 0) routes += nodes * (f32 + sizeof(ExpertRow));
  last = c.projects() ? rows * at(c.dim) * f32 : 0;
  logit_input = rows * at(c.embedding_width()) * f32;
  logits = rows * at(c.vocab) * f32;
  position = nodes * sizeof(std::int32_t);
  prefix = nodes * sizeof(std::int64_t);  // of each part, which has a node at least
  logit_ids = std::max(rows, nodes) * sizeof(std::int32_t);  // of several forwards, see prepare_all
  ids = logit_ids + at(limits.max_read_rows) * sizeof(std::int32_t);
  bits = at(limits.max_tree) * at(words_for(limits.max_tree)) * sizeof(std::uint64_t);
  constants = constants_of(c).size() * f32;
  ones = constants - count_of_ones(c) * f32;
}

std::size_t Transformer::activation_bytes(const ModelConfig& config, const Limits& limits) {
  return BufferSizes(config, limits).total();
}

Workload Transformer::workload(const ModelConfig& config, const Limits& limits) {
  Workload w;
  w.rows = std::max(std::min(limits.chunk, limits.max_nodes), limits.max_logit_rows);
  w.columns = std::max({config.dim, config.embedding_width(), most(config, [](const LayerSizes& s) {
                          return std::max(s.hidden_dim, s.heads * s.head_dim);
                        })});
  if (config.recurrent()) {
    w.columns = std::max<std::int64_t>(w.columns, config.delta.values());
    w.delta_rows = std::min(limits.chunk, limits.max_nodes);
    w.delta_heads = config.delta.value_heads;
  }
  w.vocab = config.vocab;
  // A layer may have the most KV heads and another the most heads for each of them.
  w.kv_heads = most(config, [](const LayerSizes& s) { return s.kv_heads; });
  w.heads = w.kv_heads * most(config, [](const LayerSizes& s) {
              return s.kv_heads == 0 ? 0 : s.heads / s.kv_heads;
            });
  w.head_dim = most(config, [](const LayerSizes& s) { return s.head_dim; });
  w.context = limits.max_context;
  w.expert_hidden = std::max(config.experts.hidden_dim, config.experts.shared_dim);
  return w;
}

}  // namespace canopy
