#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/notes.h"
#include "src/base/types.h"

namespace canopy {

/// Settings in which layers of a decoder differ.
struct LayerConfig {
  bool qkv_bias = false, qk_norm = false;
  bool whole_qk_norm = false;     // over all heads of a row at once; with qk_norm
  bool each_head_norm = false;    // by layer norms, with weights of each head; with qk_norm
  bool other_biases = false;      // of the attention's output, of the MLP, of router and experts
  bool value_norm = false;        // each head's values are normalised, without weights
  bool values_from_keys = false;  // as they are before norm and rotation, in place of a product
  bool sinks = false;             // each head has one more score, without a value
  bool attention = true, mlp = true;  // the units that the layer has
  bool recurrent = false;             // a delta net in place of its attention
  bool output_gate =
      false;             // rows of each query head are followed by those of a gate of its output
  bool experts = false;  // its MLP is a mixture: ModelConfig::experts
  int window = 0;        // number of the last keys, which alone are seen; 0: all
  bool rotated = true;   // queries and keys, where the model rotates any
  /// Sizes that are other than the model's; 0: the model's.
  int heads = 0, kv_heads = 0, head_dim = 0, hidden_dim = 0;
  bool operator==(const LayerConfig&) const = default;
};

/// The sizes of one layer.
struct LayerSizes {
  int heads = 0, kv_heads = 0, head_dim = 0;  // of its attention; 0: it has none
  int hidden_dim = 0;                         // of its MLP or of one expert; 0: it has none
  int experts = 0;                            // of its MLP; 0: it is dense
  bool operator==(const LayerSizes&) const = default;
};

/// The mixture of experts that a layer has in place of its MLP. A router scores all experts for
/// each row, the best `active` compute, and what they give is added up by weights.
struct ExpertsConfig {
  int count = 0, active = 0;  // 0: the model has no mixture
  int hidden_dim = 0;         // of each
  /// Weights are the scores of those that compute over their sum; else the scores.
  bool normalised = true;
  RouterScore score = RouterScore::kSoftmax;
  bool choice_bias = false;    // by score and bias they are chosen, by score weighted
  float scale = 1.0f;          // of the weights
  int shared_dim = 0;          // of one more that every row has; 0: there is none
  bool shared_switch = false;  // whose result is multiplied by the sigmoid of a score of its own
  Gating gating = {};          // of each
  bool operator==(const ExpertsConfig&) const = default;
};

/// The delta net of recurrent layers (arXiv:2412.06464): it keeps a state [value_heads, key_dim,
/// value_dim] in place of keys and values.
struct DeltaConfig {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // 0: the model has none
  bool by_turns = false;    // value head h has key head h modulo key_heads; else h / their quotient
  bool rate_is_log = true;  // files have the logarithm of -rate, not the rate of decay
  /// One matrix has the queries, keys, values and gates of each key head, one head after the other;
  /// and one has their betas and steps. Else each has a matrix, but for queries, keys and values.
  bool joined_inputs = false, joined_steps = false;
  int values() const { return value_heads * value_dim; }
  /// Channels of the convolution: those of queries, of keys and of values.
  int channels() const { return 2 * key_heads * key_dim + values(); }
  /// Numbers of a layer's state.
  std::int64_t state() const { return std::int64_t{value_heads} * key_dim * value_dim; }
  bool operator==(const DeltaConfig&) const = default;
};

enum class NormKind : std::uint8_t { kRms, kLayer };  // a layer norm has a bias
/// kLearned: a table of vectors that are added to the embedding; kAlibi: arXiv:2108.12409.
enum class PositionKind : std::uint8_t { kRotary, kLearned, kAlibi };
/// The gate passes through silu or, of kGeglu, through GELU by tanh; the others have none.
enum class MlpKind : std::uint8_t { kSwiglu, kRelu, kGeluTanh, kGeglu, kReluSquared, kXielu };

/// Length of texts, where rotary frequencies depend on it: ModelConfig::rope_original tokens at
/// most, or more.
enum class TextLength : std::uint8_t { kShort, kLong };

/// Settings that all layers of a decoder have in common. What has no field has one form: attention
/// over the whole text. Readers refuse a config that asks for another.
struct DecoderForm {
  NormKind norm = NormKind::kRms;
  PositionKind positions = PositionKind::kRotary;
  MlpKind mlp = MlpKind::kSwiglu;
  /// The sums of attention and MLP are normalised, in place of what they read; and no norm lies
  /// between the last layer and the head.
  bool norm_after = false;
  bool norm_bias = true;        // of NormKind::kLayer: its norms have biases
  bool norm_inputs = true;      // attention and MLP read normalised rows, but for norm_after
  bool norm_results = false;    // what attention and MLP give is normalised, and then added
  bool parallel = false;        // the MLP reads the rows that the layer's attention has read
  bool embedding_norm = false;  // the embedding is normalised before the first layer
  bool fused_qkv = false;       // one matrix of rows [heads, 3, head_dim]
  bool norm_rotated = false;    // queries and keys are normalised after they are rotated
  bool layer_scale = false;     // each layer has a number, by which the sum after it is multiplied
  int position_offset = 0;      // kLearned: rows of the table before position 0's
  bool gated() const { return mlp == MlpKind::kSwiglu || mlp == MlpKind::kGeglu; }
  bool operator==(const DecoderForm&) const = default;
};

/// Numbers of xIELU in one layer as files have them (arXiv:2411.13010). For x > 0 it is positive()
/// x^2 + beta x, else negative() (exp(min(x, eps)) - 1 - x) + beta x.
struct Xielu {
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.5f, eps = -1e-6f;
  float positive() const { return static_cast<float>(softplus(alpha_p)); }
  float negative() const {
    return static_cast<float>(static_cast<double>(beta) + softplus(alpha_n));
  }
  bool operator==(const Xielu&) const = default;

 private:
  static double softplus(float alpha) {
    const auto x = static_cast<double>(alpha);
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  }
};

/// Factors of what flows through a decoder, and bounds of what it scores.
struct DecoderFactors {
  float embedding = 1.0f;  // of the embedding's rows
  float branch = 1.0f;     // of what attention and MLP give, before it is added
  float logit = 1.0f;
  float logit_cap = 0.0f;  // a logit x becomes cap tanh(x / cap); 0: it stays
  float score = 0.0f;      // of products of queries and keys; 0: 1 / sqrt(head_dim)
  float score_cap = 0.0f;  // of scores, as of logits
  bool operator==(const DecoderFactors&) const = default;
};

/// The shape of a decoder, as plain data that every room may read. Filled by src/checkpoint from
/// config.json (both generations of keys) or GGUF metadata; anything it cannot express is refused
/// there, by name.
struct ModelConfig {
  std::string architecture;  // a Family's name
  DecoderForm form;
  DecoderFactors factors;
  int layers = 0, dim = 0, hidden_dim = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;  // of layers that have no others of their own
  int vocab = 0, max_positions = 0;
  ExpertsConfig experts;
  DeltaConfig delta;
  int embedding_dim = 0;  // of the rows of embedding and head, if projections lie between them and
                          // the layers; else 0
  bool tied_head = false;
  std::vector<LayerConfig> layer_kinds = std::vector<LayerConfig>(1);
  std::vector<std::uint8_t> kind_of_layer;  // [layers], of layer_kinds; empty: all are of the first
  float norm_eps = 1e-5f;
  /// Frequencies of the pairs of each head that rotate, [head_dim / 2] or fewer, after linear,
  /// llama3 or yarn scaling; 0 of one that stays; empty without rotary positions. Where kinds of
  /// layers differ in it, that of the last.
  std::vector<float> rope_inverse_frequency;
  /// The same of all positions of texts of more than rope_original tokens, where these have others
  /// (longrope); else empty.
  std::vector<float> rope_long_frequency;
  int rope_original = 0;
  /// By kind of layer, [its head_dim / 2] each, where kinds differ in it; else empty.
  std::vector<std::vector<float>> rope_of_kind;
  std::vector<float> alibi_slopes;            // [heads]; empty without ALiBi
  std::vector<Xielu> xielu;                   // [layers]; empty but of MlpKind::kXielu
  float rope_magnitude = 1.0f;                // yarn's attention factor
  std::vector<float> rope_magnitude_of_kind;  // by kind of layer, where kinds differ; else empty
  /// True for GLM-4 and Cohere, and for GGUF files of llama and others; the rest rotate halves.
  bool rope_adjacent_pairs = false;
  /// Rotated queries are multiplied by 1 + beta ln(1 + floor(position / period)); 0: by nothing.
  float query_beta = 0.0f;
  int query_period = 1;
  std::vector<TokenId> end_tokens;
  int draft_layers =
      0;  // that files have after the last: they guess further tokens and are left out
  std::string inflated_from;  // not empty: a function-preserving enlargement (docs/formats.md), so
                              // say so in reports
  std::string inflated_source;  // source_fingerprint() of what it was made from, where it says so
  int widen = 1;                // of an enlargement: dim / that model's
  std::string quantization;     // what its files say of the weights' scales, in words; else ""
  Notes notes;                  // of what its files say and is taken otherwise

  bool projects() const { return embedding_dim != 0; }
  /// Columns of the embedding and of the head, which is what the head reads.
  int embedding_width() const { return projects() ? embedding_dim : dim; }
  /// Sets kinds that take turns: layer i is of kind i modulo their number. `layers` is set before.
  void take_turns(std::span<const LayerConfig> kinds) {
    layer_kinds.assign(kinds.begin(), kinds.end());
    kind_of_layer.clear();
    for (int i = 0; layer_kinds.size() > 1 && i < layers; ++i)
      kind_of_layer.push_back(static_cast<std::uint8_t>(i % std::ssize(layer_kinds)));
  }
  /// Sets which of two kinds layers are of: each `period`-th is of the second, others of the first.
  void set_every(int period) {
    kind_of_layer.assign(static_cast<std::size_t>(layers), 0);
    for (int i = period - 1; i < layers; i += period)
      kind_of_layer[static_cast<std::size_t>(i)] = 1;
  }
  /// Makes all layers of the first kind, less its window.
  void make_alike() {
    layer_kinds.resize(1);
    layer_kinds.front().window = 0;
    kind_of_layer.clear();
  }
  TextLength text_length(std::size_t tokens) const {
    const bool grown = !rope_long_frequency.empty() && std::cmp_greater(tokens, rope_original);
    return grown ? TextLength::kLong : TextLength::kShort;
  }
  float magnitude(int layer) const {
    return rope_magnitude_of_kind.empty() ? rope_magnitude : rope_magnitude_of_kind[kind(layer)];
  }
  std::size_t kind(int layer) const {
    return kind_of_layer.empty() ? 0 : kind_of_layer.at(static_cast<std::size_t>(layer));
  }
  const LayerConfig& layer(int i) const { return layer_kinds[kind(i)]; }
  int head_dim_of(const LayerConfig& kind) const {
    return kind.head_dim != 0 ? kind.head_dim : head_dim;
  }
  LayerSizes sizes(int i) const {
    const LayerConfig& own = layer(i);
    const auto pick = [](bool has, int of_layer, int of_model) {
      return !has ? 0 : of_layer != 0 ? of_layer : of_model;
    };
    return {pick(own.attention, own.heads, heads), pick(own.attention, own.kv_heads, kv_heads),
            pick(own.attention, own.head_dim, head_dim),
            own.experts ? experts.hidden_dim : pick(own.mlp, own.hidden_dim, hidden_dim),
            own.experts ? experts.count : 0};
  }
  /// True if layers differ in size, or lack a unit.
  bool sizes_differ() const {
    return std::any_of(layer_kinds.begin(), layer_kinds.end(), [&](const LayerConfig& layer) {
      return !layer.attention || !layer.mlp || layer.heads || layer.kv_heads || layer.head_dim ||
             layer.hidden_dim || layer.experts != layer_kinds.front().experts;
    });
  }
  /// Sets how many keys the layers see that do not see all.
  void set_window(int window) {
    for (LayerConfig& kind : layer_kinds)
      if (kind.window != 0) kind.window = window;
  }
  /// True if some layer keeps a state, which cannot be cut where a text is.
  bool recurrent() const { return any_layer(&LayerConfig::recurrent); }
  bool any_layer(bool LayerConfig::*property) const {
    return std::any_of(layer_kinds.begin(), layer_kinds.end(),
                       [&](const LayerConfig& layer) { return layer.*property; });
  }
};

}  // namespace canopy
