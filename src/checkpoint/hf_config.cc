// config.json -> ModelConfig. Both generations of transformers' keys: v4 (rope_theta, rope_scaling)
// and v5 (rope_parameters). What the decoder class cannot express is refused by name.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/families/wrapper.h"
#include "src/checkpoint/quantized/quantization.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

/// A key that means something which the decoder class does not have, but with a neutral value. Null
/// is neutral, as are false for 0 and true for 1; of a list each element must be.
struct Feature {
  const char* key;
  const char* what;
  double neutral = 0;
};
/// Keys and their meaning in a config of any family without experts.
constexpr std::array kMixture{Feature{"num_experts", "a mixture of experts"},
                              Feature{"num_local_experts", "a mixture of experts"},
                              Feature{"n_routed_experts", "a mixture of experts"},
                              Feature{"moe_intermediate_size", "a mixture of experts"}};
/// Keys and their meaning in a config of any family.
constexpr std::array kParts{
    Feature{"kv_lora_rank", "latent attention"},
    Feature{"q_lora_rank", "latent attention"},
    Feature{"linear_num_key_heads", "gated-delta (linear) attention"},
    Feature{"linear_num_value_heads", "gated-delta (linear) attention"},
    Feature{"linear_conv_kernel_dim", "gated-delta (linear) attention"},
    Feature{"vision_config", "an image encoder"},
    Feature{"audio_config", "an audio encoder"},
    Feature{"text_config", "a text model inside another"},
};
/// Keys and their meaning in those of the families here; others may mean something else.
constexpr std::array kSettings{
    Feature{"attention_bias", "biases in the attention output"},
    Feature{"mlp_bias", "biases in the MLP"},
    Feature{"is_causal", "attention in both directions", 1},
    Feature{"use_bidirectional_attention", "attention in both directions"},
    Feature{"attn_logit_softcapping", "soft-capped scores"},
    Feature{"final_logit_softcapping", "soft-capped logits"},
    Feature{"clip_qkv", "clamped queries, keys and values"},
    Feature{"logit_scale", "a scale of logits", 1},
    Feature{"logits_scaling", "a scale of logits", 1},
    Feature{"embedding_multiplier", "a scale of the embedding", 1},
    Feature{"scale_emb", "a scale of the embedding", 1},
    Feature{"residual_multiplier", "a scale of attention and MLP", 1},
    Feature{"scale_depth", "a scale of attention and MLP"},
    Feature{"use_parallel_residual", "attention and MLP side by side"},
    Feature{"parallel_attn", "attention and MLP side by side"},
    Feature{"attention_chunk_size", "attention in chunks"},
    Feature{"attn_temperature_tuning", "queries scaled by their position"},
    Feature{"no_rope_layers", "layers without rotary positions", 1},
    Feature{"rope_interleave", "rotary positions of neighbours"},
    Feature{"rope_interleaved", "rotary positions of neighbours"},
    Feature{"rope_local_base_freq", "rotary positions that differ by layer"},
    Feature{"rotary_pct", "a partial rotary embedding", 1},
};

bool is_neutral(const json& value, double neutral) {
  if (value.is_boolean()) return value.get<bool>() == (neutral != 0);
  if (value.is_number()) return value.get<double>() == neutral;
  if (value.is_array())
    return std::all_of(value.begin(), value.end(),
                       [&](const json& element) { return is_neutral(element, neutral); });
  return value.is_null();
}

[[noreturn]] void refuse(const std::string& what) { refuse_config(what); }

/// Says if a key that other families refuse is one that the family's reader reads.
bool reads(const Family& family, std::string_view key) {
  return std::find(family.own_keys.begin(), family.own_keys.end(), key) != family.own_keys.end();
}

/// `family`: of the model, where it is known.
void refuse_features(const Fields& config, const std::string& type,
                     std::span<const Feature> features, const Family* family = nullptr) {
  for (const Feature& feature : features) {
    if (family != nullptr && family->own_attention_bias &&
        feature.key == std::string_view("attention_bias"))
      continue;
    if (family != nullptr && reads(*family, feature.key)) continue;
    const json* value = config.find(feature.key);
    if (value && !is_neutral(*value, feature.neutral))
      refuse("model type " + in_quotes(type) + " has " + feature.what + " (key '" + feature.key +
             "'), which");
  }
}

const Family& choose_family(const Fields& config, std::span<const Family> families) {
  const std::string type = config.text("model_type");
  const Family* const family = find_family(families, type);
  if (!family || !family->mixture) refuse_features(config, type, kMixture);
  refuse_features(config, type, kParts, family);
  if (type.empty()) throw Error("key 'model_type' is missing");
  if (!family) refuse("model type " + in_quotes(type));
  refuse_features(config, type, kSettings, family);
  quantization_of(config.object());  // throws for those that are not read
  require_class(config, family->hf_class);
  return *family;
}

/// Throws Error if scores are multiplied by anything but 1 / sqrt(head_dim).
void refuse_scales_of_scores(const Fields& config, const Family& family, int head_dim) {
  const auto require = [&](const char* key, double usual) {
    const std::optional<double> value = config.number(key);
    if (value && !reads(family, key) && !(std::abs(*value - usual) <= 0x1p-22 * usual))
      refuse("a scale of scores (key " + config.name(key) + ": " + shown(*config.find(key)) +
             ", not " + shown(usual) + ")");
  };
  require("attention_multiplier", 1 / std::sqrt(head_dim));
  require("query_pre_attn_scalar", head_dim);
}

void refuse_layer_types(const Fields& config) {
  const json* const types = config.find("layer_types");
  if (!types) return;
  if (!types->is_array()) throw Error("key 'layer_types' is not a list");
  for (const json& type : *types)
    if (type != "full_attention") refuse("a layer of type " + shown(type));
}

}  // namespace

void put_end_tokens(const json& ids, const std::string& file, ModelConfig& model) {
  model.end_tokens.clear();
  const auto add = [&](const json& id) {
    if (!id.is_number_integer())
      throw Error("key 'eos_token_id' has " + shown(id) + ", which is no token");
    const std::optional<TokenId> token = integer_in<TokenId>(id);
    if (token && *token >= 0 && *token < model.vocab)
      model.end_tokens.push_back(*token);
    else
      add_note(model.notes, file + ": key 'eos_token_id' has " + shown(id) +
                                ", which is no token of a vocabulary of " +
                                std::to_string(model.vocab) + ", and is ignored");
  };
  if (ids.is_null()) return;
  if (ids.is_array())
    for (const json& id : ids) add(id);
  else
    add(ids);
}

void refuse_config(const std::string& what) {
  throw Error(what + " is not supported; Canopy runs " + family_names() + " decoders");
}

void require_class(const Fields& config, std::string_view name) {
  const json* const classes = config.find("architectures");
  if (!classes) return;
  if (!classes->is_array()) throw Error("key 'architectures' is not a list");
  for (const json& given : *classes)
    if (given != name) refuse_config("architecture " + shown(given));
}

void refuse_window(const Fields& config, int max_positions, std::optional<int> fallback) {
  if (config.given("sliding_window") ? !config.find("sliding_window") : !fallback) return;
  if (config.integer("sliding_window", kMostPositions, fallback) < max_positions)
    refuse("a sliding attention window (key 'sliding_window')");
}

void put_windows(const Fields& config, ModelConfig& model) {
  model.set_window(config.integer("sliding_window", kMostPositions));
  const json* const types = config.find("layer_types");
  if (!types) return;
  if (!types->is_array() || std::ssize(*types) != model.layers)
    throw Error("key 'layer_types' is not a list of " + std::to_string(model.layers) +
                " layers' types");
  for (std::size_t layer = 0; layer < types->size(); ++layer) {
    const json& type = (*types)[layer];
    if (type != "sliding_attention" && type != "full_attention")
      refuse("a layer of type " + shown(type));
    model.kind_of_layer.at(layer) = type == "full_attention" ? 1 : 0;
  }
}

void put_uniform_window(const Fields& config, std::optional<int> fallback, ModelConfig& model) {
  if (config.given("sliding_window") ? !config.find("sliding_window") : !fallback) return;
  const int window = config.integer("sliding_window", kMostPositions, fallback);
  if (window >= model.max_positions) return;  // which hides nothing
  for (LayerConfig& kind : model.layer_kinds) kind.window = window;
}

void require_kv_heads(const Fields& config) {
  if (!config.given("num_key_value_heads")) throw Error("key 'num_key_value_heads' is missing");
}

ModelConfig hf_config(const json& config, std::span<const Family> families) {
  const Family& family = choose_family(Fields(config), families);
  ModelConfig model = family.read_config(config, family);
  refuse_scales_of_scores(Fields(config), family, model.head_dim);
  return model;
}

ModelConfig read_llama_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_decoder_config(json_config, family);
  if (config.flag("use_sliding_window", true)) refuse_window(config, model.max_positions, {});
  return model;
}

ModelConfig read_mistral_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  ModelConfig model = read_decoder_config(json_config, family);
  put_uniform_window(config, 4096, model);  // transformers' default
  return model;
}

ModelConfig read_ministral3_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // transformers' defaults for these are those of one model.
  if (!config.find("head_dim")) throw Error("key 'head_dim' is missing");
  if (!config.find("rope_parameters") && !config.find("rope_scaling"))
    throw Error("key 'rope_parameters' is missing");
  ModelConfig model = read_decoder_config(json_config, family);
  refuse_window(config, model.max_positions, {});
  return model;
}

ModelConfig read_seed_oss_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // transformers' default is that of one model; null means the usual quotient.
  if (!config.given("head_dim")) throw Error("key 'head_dim' is missing");
  if (config.flag("attention_out_bias", false))
    refuse("model type 'seed_oss' with biases in the attention output (key 'attention_out_bias')");
  ModelConfig model = read_decoder_config(json_config, family);
  model.layer_kinds.front().qkv_bias = config.flag("attention_bias", true);
  return model;
}

namespace {

/// Sets the windows of the layers from `max_window_layers` on, or of those that `layer_types`
/// names.
void put_late_windows(const Fields& config, ModelConfig& model) {
  const int first = config.integer("max_window_layers", kMostPositions, 28, 0);
  const bool wanted = config.flag("use_sliding_window", false) &&
                      (!config.given("sliding_window") || config.find("sliding_window"));
  const int window = wanted ? config.integer("sliding_window", kMostPositions, 4096) : 0;
  LayerConfig windowed = model.layer_kinds.front();
  windowed.window = window;
  std::vector<std::uint8_t> is_full(static_cast<std::size_t>(model.layers), 1);
  if (const json* const types = config.find("layer_types")) {
    ModelConfig typed = model;
    typed.layer_kinds = {windowed, model.layer_kinds.front()};
    typed.kind_of_layer = is_full;
    json known = config.object();
    known["sliding_window"] = window == 0 ? 1 : window;
    put_windows(Fields(known), typed);
    is_full = typed.kind_of_layer;
    if (window == 0 && std::find(is_full.begin(), is_full.end(), 0) != is_full.end())
      throw Error("key 'layer_types' has " + shown(*types) +
                  ", but 'use_sliding_window' and 'sliding_window' give no window");
  } else if (window != 0) {
    for (int layer = first; layer < model.layers; ++layer)
      is_full[static_cast<std::size_t>(layer)] = 0;
  }
  const auto windows = std::count(is_full.begin(), is_full.end(), 0);
  if (windows == 0 || window >= model.max_positions) return;
  if (windows == model.layers) {
    model.layer_kinds = {windowed};
    return;
  }
  model.layer_kinds.insert(model.layer_kinds.begin(), windowed);
  model.kind_of_layer = std::move(is_full);
}

}  // namespace

ModelConfig read_qwen_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  json without_types = json_config;
  without_types.erase("layer_types");
  ModelConfig model = read_decoder_config(without_types, family);
  put_late_windows(config, model);
  return model;
}

ModelConfig read_qwen3_config(const json& config, const Family& family) {
  if (!Fields(config).find("head_dim")) throw Error("key 'head_dim' is missing");
  return read_qwen_config(config, family);
}

ModelConfig read_sizes(const Fields& config, const Family& family, const SizeKeys& keys) {
  constexpr int kMostLayers = 1 << 14, kMostHeads = 1 << 16;  // larger than any model's
  ModelConfig model;
  model.architecture = family.name;
  model.form = family.form;
  model.layers = config.integer(keys.layers, kMostLayers);
  model.take_turns(family.layer_kinds);
  if (family.period != 0) model.set_every(family.period);
  model.rope_adjacent_pairs = family.adjacent_pairs;
  model.dim = config.integer(keys.dim, keys.hidden_dim ? kMostDim : kMostDim / 4);
  model.hidden_dim = keys.hidden_dim ? config.integer(keys.hidden_dim, kMostDim) : 4 * model.dim;
  model.heads = config.integer(keys.heads, kMostHeads);
  model.kv_heads = config.integer("num_key_value_heads", kMostHeads, model.heads);
  if (model.heads % model.kv_heads != 0)
    throw Error("key " + config.name(keys.heads) + " (" + std::to_string(model.heads) +
                ") is not a multiple of 'num_key_value_heads' (" + std::to_string(model.kv_heads) +
                ")");
  if (!config.find("head_dim") && model.dim % model.heads != 0)
    throw Error("key " + config.name(keys.dim) + " (" + std::to_string(model.dim) +
                ") is not a multiple of " + config.name(keys.heads) + " (" +
                std::to_string(model.heads) + "), and there is no 'head_dim'");
  model.head_dim = config.integer("head_dim", 1 << 13, model.dim / model.heads);
  model.vocab = config.integer("vocab_size", kMostDim);
  model.max_positions = config.integer(keys.positions, kMostPositions - 2, keys.max_positions);
  model.tied_head = config.flag("tie_word_embeddings", keys.tied_head);
  if (const nlohmann::json* ids = config.find("eos_token_id"))
    put_end_tokens(*ids, "config.json", model);
  if (const nlohmann::json* json_label = config.find("canopy_inflated")) {
    const Fields label(*json_label, "canopy_inflated");
    model.inflated_from = label.text("from", "an unnamed model");
    model.inflated_source = label.text("source", "");
    model.widen = label.integer("widen", model.dim, 1);
    if (model.dim % model.widen != 0)
      throw Error("key " + config.name(keys.dim) + " (" + std::to_string(model.dim) +
                  ") is not a multiple of " + label.name("widen") + " (" +
                  std::to_string(model.widen) + ")");
  }
  return model;
}

namespace {

/// Finds what a file that transformers 5 has saved says of the heads of layers that see all keys.
/// Throws Error where it says nothing, or differs by layer in more than their kind.
Fields heads_of_full_layers(const Fields& of_layers, const ModelConfig& model) {
  const json* known = nullptr;
  for (int layer = 0; layer < model.layers; ++layer) {
    const std::string number = std::to_string(layer);
    const json* const own = of_layers.find(number.c_str());
    const bool full = model.kind(layer) == 1;
    if (full != (own != nullptr) || (known != nullptr && own != nullptr && *own != *known))
      throw Error("key " + of_layers.name(number.c_str()) +
                  (own == nullptr ? " is missing" : " is " + shown(*own)) + "; layers that see " +
                  (full ? "all keys" : "some keys") + " have " +
                  (full ? "others, and all the same" : "the model's") + " heads here");
    if (own != nullptr) known = own;
  }
  for (const auto& [key, value] : Fields(*known, "per_layer_config").object().items())
    if (key != "head_dim" && key != "num_key_value_heads")
      refuse("layers that differ in " + in_quotes(key) + " (key 'per_layer_config')");
  return Fields(*known, "per_layer_config");
}

/// Reads the size and number of KV heads of layers that see all keys, of which the last layer is
/// one.
void put_full_heads(const Fields& config, ModelConfig& model) {
  constexpr int kMostHeads = 1 << 16, kMostHeadDim = 1 << 13;
  model.kind_of_layer.back() = 1;
  LayerConfig& full = model.layer_kinds.back();
  full.values_from_keys = config.flag("attention_k_eq_v", false);
  if (const json* const each = config.find("per_layer_config")) {
    const Fields heads = heads_of_full_layers(Fields(*each, "per_layer_config"), model);
    full.head_dim = heads.integer("head_dim", kMostHeadDim, model.head_dim);
    full.kv_heads = heads.integer("num_key_value_heads", kMostHeads, model.kv_heads);
  } else {
    full.head_dim = config.integer("global_head_dim", kMostHeadDim, 512);
    if (full.values_from_keys)
      full.kv_heads = config.integer("num_global_key_value_heads", kMostHeads, model.kv_heads);
  }
  if (full.kv_heads != 0 && model.heads % full.kv_heads != 0)
    throw Error("key 'num_attention_heads' (" + std::to_string(model.heads) +
                ") is not a multiple of the " + std::to_string(full.kv_heads) +
                " heads of keys of layers that see all");
}

}  // namespace

ModelConfig read_decoder_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_sizes(config, family);
  model.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
  if (const std::string act = config.text("hidden_act", "silu"); act != "silu" && act != "swish")
    refuse("the activation " + in_quotes(act) + " (key 'hidden_act')");
  if (family.windows)
    put_windows(config, model);
  else
    refuse_layer_types(config);
  if (family.full_heads) put_full_heads(config, model);
  put_rope(config, family, model);
  return model;
}

namespace {

std::optional<Metadata::Value> metadata_array(const json& array) {
  const auto all = [&](auto test) { return std::all_of(array.begin(), array.end(), test); };
  if (array.empty()) return {};
  if (all([](const json& v) { return v.is_string(); }))
    return array.get<std::vector<std::string>>();
  if (all([](const json& v) { return integer_in<std::int32_t>(v).has_value(); }))
    return array.get<std::vector<std::int32_t>>();
  if (all([](const json& v) { return v.is_number(); })) {
    std::vector<float> values;
    for (const json& v : array) values.push_back(static_cast<float>(v.get<double>()));
    return values;
  }
  return {};
}

void flatten_into(const json& value, const std::string& path, Metadata& metadata) {
  if (value.is_object()) {  // read_json bounds the depth
    for (const auto& [key, child] : value.items())
      flatten_into(child, path.empty() ? key : path + "." + key, metadata);
  } else if (value.is_boolean()) {
    metadata.set(path, value.get<bool>());
  } else if (const auto integer = integer_in<std::int64_t>(value)) {
    metadata.set(path, *integer);
  } else if (value.is_number()) {
    metadata.set(path, value.get<double>());
  } else if (value.is_string()) {
    metadata.set(path, value.get<std::string>());
  } else if (value.is_array()) {
    if (auto array = metadata_array(value)) metadata.set(path, std::move(*array));
  }
}

}  // namespace

Metadata flatten_config(const json& config) {
  Metadata metadata;
  flatten_into(config, "", metadata);
  return metadata;
}

ModelConfig shape_from_config(std::string_view config_json) {
  return hf_config(text_config(parse_json(with_quoted_literals(std::string(config_json)))));
}

}  // namespace canopy
