// GGUF metadata and names -> ModelConfig and canonical names.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/gguf_keys.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/rope_scaling.h"

namespace canopy {

namespace {

constexpr int kMostLayers = 1 << 14;

RopeScaling rope_scaling(const Keys& keys, const Family& family, int max_positions, Notes& notes) {
  RopeScaling s;
  for (const double beta : keys.numbers("attention.temperature_scale")) s.query_beta = beta;
  if (s.query_beta != 0)
    s.query_period =
        keys.integer("rope.scaling.original_context_length", std::numeric_limits<int>::max());
  s.theta = keys.positive("rope.freq_base", family.theta);
  // Old files have another key for the factor. A factor without a type is that of a linear scaling;
  // with the type "none" it has no effect.
  const double factor =
      keys.positive("rope.scaling.factor", keys.positive("rope.scale_linear", 1.0));
  const std::string type = keys.text("rope.scaling.type", factor == 1 ? "none" : "linear");
  const double magnitude = keys.positive("rope.scaling.attn_factor", 1.0);
  if (type != "yarn" && magnitude != 1)
    throw Error("metadata key '" + keys.name("rope.scaling.attn_factor") +
                "' scales rotary positions of type " + in_quotes(type) +
                ", which is not supported but for yarn");
  if (type == "none") return s;
  s.factor = factor;
  if (type == "linear") {
    s.type = RopeScaling::Type::kLinear;
  } else if (type == "yarn") {
    s.type = RopeScaling::Type::kYarn;
    s.truncate = family.gguf_truncated_yarn;
    s.original_positions = keys.integer("rope.scaling.original_context_length",
                                        std::numeric_limits<int>::max(), max_positions);
    s.beta_fast = keys.positive("rope.scaling.yarn_beta_fast", 32.0);
    s.beta_slow = keys.positive("rope.scaling.yarn_beta_slow", 1.0);
    if (keys.positive("rope.scaling.yarn_ext_factor", 1.0) != 1)
      throw Error("metadata key '" + keys.name("rope.scaling.yarn_ext_factor") +
                  "' differs from 1, which is not supported");
    const double usual = 1 + 0.1 * std::log(std::max(factor, 1.0));
    if (magnitude != 1) s.attention_factor = magnitude * usual;
    // Converters write Hugging Face's mscale_all_dim under this key, of models whose mscale is 1.
    for (const double log_multiplier : keys.numbers("rope.scaling.yarn_log_multiplier")) {
      if (s.attention_factor && log_multiplier != 0)
        throw Error("metadata keys '" + keys.name("rope.scaling.yarn_log_multiplier") + "' and '" +
                    keys.name("rope.scaling.attn_factor") + "' both set the magnitude of yarn");
      s.mscale = 1;
      s.mscale_all_dim = log_multiplier;
    }
    constexpr const char* kWhole = "rope.scaling.yarn_attn_factor";
    if (keys.given(kWhole)) {
      // Converters write Hugging Face's attention_factor here, which is the whole magnitude.
      for (const char* other : {"rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"})
        if (magnitude != 1 || s.mscale_all_dim.value_or(0) != 0)
          if (keys.given(other))
            throw Error("metadata keys '" + keys.name(kWhole) + "' and '" + keys.name(other) +
                        "' both set the magnitude of yarn");
      s.attention_factor = keys.positive(kWhole);
      if (std::abs(*s.attention_factor - usual) > 1e-6 * usual)
        add_note(notes, "metadata key '" + keys.name(kWhole) + "' is " +
                            std::to_string(*s.attention_factor) +
                            ", and is taken for the whole magnitude of yarn, as a Hugging Face "
                            "model's attention_factor; llama.cpp takes " +
                            std::to_string(usual));
    }
  } else {
    throw Error("rotary scaling of type " + in_quotes(type) +
                " is not supported; Canopy knows none, linear and yarn (and llama3 by "
                "rope_freqs.weight)");
  }
  return s;
}

/// A key that means a function which the decoder class does not have, but with a neutral value.
struct Feature {
  const char* key;
  const char* what;
  double neutral = 0;
  bool Family::*unless = nullptr;  // of families that have it
  std::optional<double> also_neutral = {};
};
constexpr Feature kRefused[] = {
    {"expert_shared_count", "experts that every row has", 0, &Family::shared_experts},
    {"expert_shared_feed_forward_length", "experts that every row has", 0, &Family::shared_experts},
    {"expert_group_count", "experts in groups", 0, nullptr, 1},
    {"leading_dense_block_count", "layers without experts before those with", 0,
     &Family::leading_dense},
    {"interleave_moe_layer_step", "layers without experts between those with", 0, nullptr, 1},
    {"attention.kv_lora_rank", "latent attention"},
    {"attention.q_lora_rank", "latent attention"},
    {"ssm.state_size", "linear attention", 0, &Family::delta},
    {"ssm.conv_kernel", "linear attention", 0, &Family::delta},
    {"wkv.head_size", "linear attention"},
    {"kda.head_dim", "linear attention"},
    {"shortconv.l_cache", "short convolutions"},
    {"attention.causal", "attention in both directions", 1},
    {"attention.max_alibi_bias", "positions by a bias of the scores"},
    {"attention.clamp_kqv", "clamped queries, keys and values"},
    {"attention.temperature_length", "queries scaled by their position"},
    {"attention.temperature_scale", "queries scaled by their position", 0, &Family::scaled_queries},
    {"attention.indexer.top_k", "sparse attention"},
    {"attention.shared_kv_layers", "layers that share keys and values"},
    {"attn_logit_softcapping", "soft-capped scores", 0, &Family::scaled_embedding},
    {"final_logit_softcapping", "soft-capped logits", 0, &Family::scaled_embedding},
    {"router_logit_softcapping", "soft-capped scores of experts"},
    {"logit_scale", "a scale", 1, &Family::factors},
    {"residual_scale", "a scale", 1, &Family::factors},
    {"embedding_scale", "a scale", 1, &Family::factors},
    {"attention.output_scale", "a scale", 1},
    {"attention.value_scale", "a scale", 1},
    {"swiglu_clamp_exp", "a clamped MLP"},
    {"swiglu_clamp_shexp", "a clamped MLP"},
    {"activation_sparsity_scale", "an MLP of its largest values"},
    {"use_parallel_residual", "attention and MLP side by side"},
    {"swin_norm", "norms of what attention and MLP give"},
    {"nextn_predict_layers", "layers that guess further tokens", 0, &Family::draft_layers},
    {"embedding_length_per_layer_input", "embeddings of each layer"},
    {"rope.scaling.alpha", "rotary positions scaled by a power"},
    {"rope.scaling.yarn_log_multiplier", "yarn with a magnitude of its own", 0,
     &Family::scaled_queries},
};

/// Throws Error if a key has another value than a neutral one.
void refuse_features(const Keys& keys, int max_positions, const Family& family) {
  for (const Feature& f : kRefused) {
    if (f.unless != nullptr && family.*f.unless) continue;
    for (const double value : keys.numbers(f.key))
      if (value != f.neutral && value != f.also_neutral)
        throw Error("metadata key '" + keys.name(f.key) + "' is " + number_text(value) +
                    ", which means " + f.what + " and is not supported");
  }
  if (family.windows || family.uniform_window) return;
  const int window =
      keys.integer("attention.sliding_window", std::numeric_limits<int>::max(), 0, 0);
  if (window != 0 && window < max_positions)
    throw Error("metadata key '" + keys.name("attention.sliding_window") +
                "' means a sliding attention window, which is not supported");
}

/// The same of keys that are neutral where they say what holds without them.
void refuse_odd_layers(const Keys& keys, const Family& family, int head_dim) {
  const auto require = [&](const char* key, double usual, const char* what) {
    for (const double value : keys.numbers(key))  // a float in the file
      if (!(std::abs(value - usual) <= 0x1p-22 * usual))
        throw Error("metadata key '" + keys.name(key) + "' is " + number_text(value) + ", not " +
                    number_text(usual) + ": " + what);
  };
  if (!family.factors && keys.numbers("attention.scale") != std::vector{0.0})
    require("attention.scale", 1 / std::sqrt(head_dim), "another scale of scores is not supported");
  for (const char* key :
       {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
    require(key, head_dim, "heads that differ by layer are not supported");
  if (family.local_theta == 0)
    require("rope.freq_base_swa", keys.positive("rope.freq_base", family.theta),
            "rotary positions that differ by layer are not supported");
}

void put_end_tokens(const Metadata& metadata, ModelConfig& model) {
  std::vector<TokenId>& result = model.end_tokens;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto* id = metadata.find<std::int64_t>(key);
    if (!id) continue;
    if (*id < 0 || *id >= model.vocab) {
      add_note(model.notes, std::string("metadata key '") + key + "' is " + std::to_string(*id) +
                                ", which is no token of a vocabulary of " +
                                std::to_string(model.vocab) + ", and is ignored");
      continue;
    }
    const auto token = static_cast<TokenId>(*id);
    if (std::find(result.begin(), result.end(), token) == result.end()) result.push_back(token);
  }
}

const TensorEntry* find_entry(const GgufHeader& header, const Family& family, TensorRole role,
                              int layer = -1) {
  const std::string wanted = gguf_name(family, {&spec_of(role), layer});
  for (const TensorEntry& tensor : header.tensors)
    if (tensor.name == wanted) return &tensor;
  return nullptr;
}

/// Throws Error if a value is not positive.
void require_factors(const char* tensor, const std::vector<float>& factors) {
  for (const float factor : factors)
    if (!(factor > 0) || !std::isfinite(factor))
      throw Error(std::string("tensor '") + tensor + "' has a value that is not positive");
}

/// Reads what files with factors for short and for long texts say besides.
RopeScaling longrope_of(const Keys& keys, const RopeFactors& factors) {
  RopeScaling s;
  s.type = RopeScaling::Type::kLongrope;
  s.short_factors = factors.short_texts;
  s.long_factors = factors.long_texts;
  require_factors("rope_factors_short.weight", s.short_factors);
  require_factors("rope_factors_long.weight", s.long_factors);
  s.original_positions =
      keys.integer("rope.scaling.original_context_length", std::numeric_limits<int>::max());
  s.attention_factor = keys.positive("rope.scaling.attn_factor");
  const std::string type = keys.text("rope.scaling.type", "longrope");
  if (type != "longrope" && type != "none" && type != "yarn")
    throw Error("rotary scaling of type " + in_quotes(type) +
                " and tensors 'rope_factors_short.weight' and 'rope_factors_long.weight' mean "
                "different positions");
  return s;
}

void put_rope(const Keys& keys, const Family& family, const RopeFactors& rope_factors,
              int rotary_dim, ModelConfig& model) {
  const std::vector<float>& factors = rope_factors.all;
  const bool longrope =
      family.longrope && (!rope_factors.short_texts.empty() || !rope_factors.long_texts.empty());
  RopeScaling scaling = longrope ? longrope_of(keys, rope_factors)
                                 : rope_scaling(keys, family, model.max_positions, model.notes);
  if (longrope) scaling.theta = keys.positive("rope.freq_base", family.theta);
  scaling.rotary_dim = rotary_dim;
  put_rope(scaling, model);
  std::vector<float>& frequency = model.rope_inverse_frequency;
  if (!factors.empty() && factors.size() != frequency.size())
    throw Error("tensor 'rope_freqs.weight' has " + std::to_string(factors.size()) +
                " values for " + std::to_string(frequency.size()) + " pairs");
  require_factors("rope_freqs.weight", factors);
  constexpr float kStays = 1e30f;  // what converters write for a pair that is not rotated
  for (std::size_t i = 0; i < factors.size(); ++i)
    frequency[i] = factors[i] >= kStays ? 0.0f : frequency[i] / factors[i];
  if (family.local_theta == 0) return;
  RopeScaling local;
  local.theta =
      keys.positive("rope.freq_base_swa",
                    family.local_theta == family.theta ? scaling.theta : family.local_theta);
  put_local_rope(local, model);
}

/// Sets the factors and bounds of a family that has some.
void put_factors(const Keys& keys, const Family& family, ModelConfig& model) {
  DecoderFactors& factors = model.factors;
  const auto factor = [&](const char* key) { return static_cast<float>(keys.positive(key, 1.0)); };
  const auto cap = [&](const char* key, float usual) {
    for (const double value : keys.numbers(key)) usual = static_cast<float>(value);
    if (!(usual >= 0 && std::isfinite(usual)))
      throw Error("metadata key '" + keys.name(key) + "' is not positive, nor 0");
    return usual;
  };
  if (family.factors) {
    factors.embedding = factor("embedding_scale");
    factors.branch = factor("residual_scale");
    factors.logit = factor("logit_scale");
    if (family.gguf_divides_logits) factors.logit = 1 / factors.logit;
    for (const double scale : keys.numbers("attention.scale"))
      if (scale != 0) factors.score = factor("attention.scale");
  }
  if (!family.scaled_embedding) return;
  factors.embedding = std::sqrt(static_cast<float>(model.dim));
  factors.logit_cap = cap("final_logit_softcapping", family.usual_logit_cap);
  factors.score_cap = cap("attn_logit_softcapping", family.usual_score_cap);
  factors.score = gguf_score_factor(family, model);
}

}  // namespace

/// Reads the experts of a family's mixture.
static ExpertsConfig read_experts(const Keys& keys, const Family& family, int hidden_dim) {
  constexpr int kMostExperts = 1 << 14, kMostDim = 1 << 24;
  constexpr double kMostScale = std::numeric_limits<float>::max();
  ExpertsConfig experts;
  experts.count = keys.integer("expert_count", kMostExperts);
  experts.active = keys.integer("expert_used_count", experts.count);
  experts.hidden_dim = keys.integer("expert_feed_forward_length", kMostDim, hidden_dim);
  experts.normalised = family.gguf_normalised_experts;
  for (const double normalised : keys.numbers("expert_weights_norm"))
    experts.normalised = normalised != 0;
  experts.score = family.router_score;
  experts.gating = family.gating;
  experts.choice_bias = family.choice_bias;
  for (const double scale : keys.numbers("expert_weights_scale")) {
    if (scale == 0 || scale == 1) continue;  // 0: there is none
    if (!family.gguf_weight_keys || !(scale > 0 && scale <= kMostScale))
      throw Error("metadata key '" + keys.name("expert_weights_scale") + "' is " +
                  number_text(scale) + ", which is not supported");
    experts.scale = static_cast<float>(scale);
  }
  const bool sigmoid = experts.score == RouterScore::kSigmoid;
  const int function = keys.integer("expert_gating_func", 255, 0, 0);  // 0: the architecture's own
  // 3 is a softmax of the chosen alone, which is that of all over the sum of theirs.
  const bool same = function == 3 && !sigmoid && experts.normalised;
  if (function != 0 && function != (sigmoid ? 2 : 1) && !same)
    throw Error("metadata key '" + keys.name("expert_gating_func") + "' is " +
                std::to_string(function) + ", not " + (sigmoid ? "2 (sigmoid)" : "1 (softmax)") +
                ", which is not supported");
  if (!family.shared_experts) return experts;
  experts.shared_switch = family.shared_switch;
  const char* const key = "expert_shared_feed_forward_length";
  const std::int64_t shared =
      family.shared_switch ? hidden_dim
                           : std::int64_t{keys.integer("expert_shared_count", kMostExperts, 0, 0)} *
                                 experts.hidden_dim;
  if (shared == 0) return experts;
  if (shared > kMostDim)
    throw Error("metadata key '" + keys.name("expert_shared_count") + "' makes " +
                std::to_string(shared) + " dimensions, more than " + std::to_string(kMostDim));
  experts.shared_dim = keys.integer(key, kMostDim, static_cast<int>(shared));
  if (!family.shared_switch && experts.shared_dim != shared)
    throw Error("metadata key '" + keys.name(key) + "' is " + std::to_string(experts.shared_dim) +
                ", where " + std::to_string(shared) + " follow from the number of shared experts");
  return experts;
}

/// Sets how wide the windows of layers are, and which layers have one.
static void put_windows(const Keys& keys, const Family& family, ModelConfig& model) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const char* const width = "attention.sliding_window";
  if (family.uniform_window) {
    const int window = keys.integer(width, kMost, 0, 0);
    if (window != 0 && window < model.max_positions)
      for (LayerConfig& kind : model.layer_kinds) kind.window = window;
  }
  if (!family.windows) return;
  if (family.windows_may_lack && keys.integer(width, kMost, 0, 0) == 0) return model.make_alike();
  model.set_window(keys.integer(width, kMost));
  const char* const pattern = "attention.sliding_window_pattern";  // a period, or a flag a layer
  const std::vector<double> given = keys.numbers(pattern);
  if (given.size() == 1 && model.layers > 1) {
    model.set_every(keys.integer(pattern, kMostLayers));
  } else if (!given.empty()) {
    if (std::ssize(given) != model.layers)
      throw Error("metadata key '" + keys.name(pattern) + "' has " + std::to_string(given.size()) +
                  " numbers for " + std::to_string(model.layers) + " layers");
    for (std::size_t layer = 0; layer < given.size(); ++layer)
      model.kind_of_layer.at(layer) = given[layer] == 0 ? 1 : 0;
  }
}

/// Reads how many heads of keys layers have by their kind, and whether those that see all keys take
/// them for values.
static void put_full_heads(const Keys& keys, const GgufHeader& header, const Family& family,
                           ModelConfig& model) {
  const char* const key = "attention.head_count_kv";
  LayerConfig& full = model.layer_kinds.back();
  const std::vector<double> given = keys.numbers(key);
  if (given.size() != 1 && std::ssize(given) != model.layers)
    throw Error("metadata key '" + keys.name(key) + "' has " + std::to_string(given.size()) +
                " numbers for " + std::to_string(model.layers) + " layers");
  for (int layer = 0; layer < model.layers; ++layer) {
    const double heads = given[given.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
    const bool sees_all = model.kind(layer) == 1;
    int& known = sees_all ? full.kv_heads : model.kv_heads;
    if (!(heads >= 1 && heads <= model.heads) || (known != 0 && known != heads))
      throw Error("metadata key '" + keys.name(key) + "' has " + number_text(heads) +
                  " for layer " + std::to_string(layer) + ", not 1 to " +
                  std::to_string(model.heads) + " and what other layers of its kind have");
    known = static_cast<int>(heads);
    if (sees_all)
      full.values_from_keys = find_entry(header, family, TensorRole::kValue, layer) == nullptr;
  }
  if (model.kv_heads == 0) model.kv_heads = full.kv_heads;
}

/// Sets what of a mixture's layers is the file's: how many before all others are dense, and how
/// many after the last guess further tokens, which block_count counts.
static void put_layers(const Keys& keys, const Family& family, int blocks, ModelConfig& model) {
  model.draft_layers =
      family.draft_layers ? keys.integer("nextn_predict_layers", blocks - 1, 0, 0) : 0;
  model.layers = blocks - model.draft_layers;
  model.take_turns(family.layer_kinds);
  if (family.period != 0) model.set_every(family.period);
  put_windows(keys, family, model);
  const int dense =
      family.leading_dense ? keys.integer("leading_dense_block_count", model.layers - 1, 0, 0) : 0;
  if (dense == 0) return;
  LayerConfig without = model.layer_kinds.front();
  without.experts = false;
  model.layer_kinds.push_back(without);
  model.kind_of_layer.assign(static_cast<std::size_t>(model.layers), 0);
  std::fill_n(model.kind_of_layer.begin(), dense, 1);
}

ModelConfig gguf_config(const GgufHeader& header, const RopeFactors& factors,
                        std::span<const Family> families) {
  constexpr int kMostHeads = 1 << 16, kMostDim = 1 << 24;
  const auto* architecture = header.metadata.find<std::string>("general.architecture");
  if (!architecture) throw Error("metadata key 'general.architecture' is missing");
  const Keys keys(header.metadata, *architecture);
  const std::vector<double> experts = keys.numbers("expert_count");
  const bool mixture = !experts.empty() && experts.front() != 0;
  // One of two families that share an architecture has windows.
  const bool windows = keys.given("attention.sliding_window");
  const auto find = [&](auto&& fits) {
    return std::find_if(families.begin(), families.end(), [&](const Family& f) {
      return !f.gguf.empty() && f.gguf == *architecture && f.mixture == mixture && fits(f);
    });
  };
  auto family = find([&](const Family& f) { return (f.windows || f.uniform_window) == windows; });
  if (family == families.end()) family = find([](const Family&) { return true; });
  if (family == families.end())
    throw Error(
        "architecture " + in_quotes(*architecture) +
        (mixture ? " with experts (metadata key '" + keys.name("expert_count") + "')" : "") +
        " is not supported; Canopy runs " + family_names() + " decoders");
  ModelConfig model;
  model.architecture = family->name;
  model.form = family->form;
  model.rope_adjacent_pairs = family->gguf_adjacent_pairs || family->adjacent_pairs;
  model.max_positions = keys.integer("context_length", std::numeric_limits<int>::max());
  refuse_features(keys, model.max_positions, *family);
  const int blocks = keys.integer("block_count", kMostLayers);
  put_layers(keys, *family, blocks, model);
  if (family->gguf_lacks_parts)
    for (LayerConfig& kind : model.layer_kinds) {
      kind.qkv_bias = kind.qkv_bias && find_entry(header, *family, TensorRole::kQueryBias, 0);
      kind.qk_norm = kind.qk_norm && find_entry(header, *family, TensorRole::kQueryNorm, 0);
    }
  model.dim = keys.integer("embedding_length", kMostDim);
  // A mixture without dense layers may have the length of its experts alone.
  const bool of_experts = mixture && !keys.given("feed_forward_length");
  model.hidden_dim = keys.of_layers(
      of_experts ? "expert_feed_forward_length" : "feed_forward_length", blocks, kMostDim);
  if (mixture) model.experts = read_experts(keys, *family, model.hidden_dim);
  if (family->delta) put_delta(keys, header, *family, model);
  model.heads = keys.of_layers("attention.head_count", blocks, kMostHeads);
  if (family->full_heads)
    put_full_heads(keys, header, *family, model);
  else
    model.kv_heads = keys.of_layers("attention.head_count_kv", blocks, kMostHeads, model.heads);
  for (const LayerConfig& kind : model.layer_kinds)
    if (model.heads % (kind.kv_heads != 0 ? kind.kv_heads : model.kv_heads) != 0)
      throw Error("metadata key '" + keys.name("attention.head_count") +
                  "' is not a multiple of '" + keys.name("attention.head_count_kv") + "'");
  if (!keys.given("attention.key_length") && model.dim % model.heads != 0)
    throw Error("metadata key '" + keys.name("embedding_length") + "' is not a multiple of '" +
                keys.name("attention.head_count") + "'");
  const int head_dim = keys.integer("attention.key_length", 1 << 13, model.dim / model.heads);
  if (family->full_heads) {
    model.head_dim = keys.integer("attention.key_length_swa", 1 << 13);
    model.layer_kinds.back().head_dim = head_dim;
  } else {
    model.head_dim = head_dim;
  }
  if (keys.integer("attention.value_length", 1 << 13, model.dim / model.heads) != head_dim)
    throw Error("metadata keys '" + keys.name("attention.key_length") +
                "' and 'attention.value_length' differ, which is not supported");
  const int rotary_dim = keys.integer("rope.dimension_count", kMostDim, head_dim);
  if (rotary_dim != head_dim && family->rotated == 0)
    throw Error("metadata key '" + keys.name("rope.dimension_count") +
                "' means a partial rotary embedding, which is not supported");
  refuse_odd_layers(keys, *family, model.head_dim);
  model.norm_eps = static_cast<float>(keys.positive(gguf_epsilon_key(*family)));

  const TensorEntry* embedding = find_entry(header, *family, TensorRole::kEmbedding);
  if (!embedding || embedding->shape.size() != 2)
    throw Error("tensor 'token_embd.weight' is missing or not a matrix");
  if (embedding->shape[0] < 1 || embedding->shape[0] > kMostDim)
    throw Error("tensor 'token_embd.weight' has " + std::to_string(embedding->shape[0]) + " rows");
  model.vocab = static_cast<int>(embedding->shape[0]);
  model.tied_head = !find_entry(header, *family, TensorRole::kHead);

  put_rope(keys, *family, factors, rotary_dim, model);
  put_factors(keys, *family, model);
  if (model.form.mlp == MlpKind::kXielu) put_xielu(header.metadata, model);
  if (family->gguf_rotation_switch)
    for (const double rotated : keys.numbers("rope.scaling.finetuned"))
      for (LayerConfig& kind : model.layer_kinds) kind.rotated = rotated != 0;
  put_end_tokens(header.metadata, model);
  if (const auto* from = header.metadata.find<std::string>("canopy.inflated_from"))
    model.inflated_from = *from;
  return model;
}

}  // namespace canopy
