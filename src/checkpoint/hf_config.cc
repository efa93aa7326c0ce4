// config.json -> ModelConfig. Both generations of transformers' keys: v4 (rope_theta, rope_scaling)
// and v5 (rope_parameters). What the decoder class cannot express is refused by name.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/families/wrapper.h"
#include "src/checkpoint/quantized/fp8_scheme.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/rope_scaling.h"

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

/// `family`: of the model, where it is known.
void refuse_features(const Fields& config, const std::string& type,
                     std::span<const Feature> features, const Family* family = nullptr) {
  for (const Feature& feature : features) {
    if (family != nullptr && family->own_attention_bias &&
        feature.key == std::string_view("attention_bias"))
      continue;
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
  refuse_features(config, type, kParts);
  if (type.empty()) throw Error("key 'model_type' is missing");
  if (!family) refuse("model type " + in_quotes(type));
  refuse_features(config, type, kSettings, family);
  quantization_of(config.object());  // throws for those that are not read
  require_class(config, family->hf_class);
  return *family;
}

/// Throws Error if scores are multiplied by anything but 1 / sqrt(head_dim).
void refuse_scales_of_scores(const Fields& config, int head_dim) {
  const auto require = [&](const char* key, double usual) {
    const std::optional<double> value = config.number(key);
    if (value && !(std::abs(*value - usual) <= 0x1p-22 * usual))
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

/// Reads which layers have a window, where the family's table is of one with and one without, and
/// how wide it is.
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

/// Reads how many dimensions of each head are rotated.
int read_rotary_dim(const Fields& config, const Fields& rope, int head_dim, const Family& family) {
  const char* const key = "partial_rotary_factor";
  std::optional<double> share = rope.number(key);
  if (!share) share = config.number(key);
  if (share && !(*share > 0 && *share <= 1))
    throw Error("key " + config.name(key) + " is " + shown(*share) + ", no share of a head");
  const int by_share = static_cast<int>(head_dim * share.value_or(family.rotated));
  const int dim = config.integer("rotary_dim", head_dim, by_share);
  if (share && dim != by_share)
    throw Error("keys " + config.name("rotary_dim") + " (" + std::to_string(dim) + ") and " +
                config.name(key) + " (" + shown(*share) + " of " + std::to_string(head_dim) +
                ") differ: keep the one that is meant");
  if (dim < 2 || dim % 2 != 0)
    throw Error("keys " + config.name(key) + " and " + config.name("rotary_dim") + " rotate " +
                std::to_string(dim) + " of " + std::to_string(head_dim) +
                " dimensions, which are no pairs");
  return dim;
}

/// Reads one object of rotary parameters, with the keys that may stand outside it.
RopeScaling read_rope(const Fields& config, const Fields& rope, const ModelConfig& model,
                      const Family& family) {
  const int max_positions = model.max_positions;
  using Type = RopeScaling::Type;
  RopeScaling s;
  for (const char* layer_type : {"full_attention", "sliding_attention"})
    if (rope.find(layer_type))
      refuse("rotary positions that differ by layer (key " + rope.name(layer_type) + ")");
  s.theta = rope.positive("rope_theta", config.positive("rope_theta", 10000.0));
  for (const Fields* fields : {&rope, &config})
    if (family.rotated == 0 && fields->number("partial_rotary_factor").value_or(1) != 1)
      refuse("a partial rotary embedding (key " + fields->name("partial_rotary_factor") + ")");
  if (family.rotated != 0) s.rotary_dim = read_rotary_dim(config, rope, model.head_dim, family);

  s.query_beta = rope.number("llama_4_scaling_beta").value_or(0);
  if (s.query_beta != 0) {
    if (!family.scaled_queries)
      refuse("queries scaled by their position (key " + rope.name("llama_4_scaling_beta") + ")");
    s.query_period = rope.integer("original_max_position_embeddings", kMostPositions);
  }

  const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
  if (type == "default") return s;
  if (type == "linear")
    s.type = Type::kLinear;
  else if (type == "llama3")
    s.type = Type::kLlama3;
  else if (type == "yarn")
    s.type = Type::kYarn;
  else
    throw Error("rotary scaling of type " + in_quotes(type) +
                " is not supported; Canopy knows default, linear, llama3 and yarn");
  if (s.type != Type::kLinear)
    s.original_positions = config.positive(
        "original_max_position_embeddings",
        rope.positive("original_max_position_embeddings", static_cast<double>(max_positions)));
  if (s.type == Type::kYarn && rope.given("factor") && !rope.find("factor"))
    s.factor = max_positions / s.original_positions;  // a null factor, as transformers reads it
  else
    s.factor = rope.positive("factor");
  if (s.type == Type::kLlama3) {
    s.low_freq_factor = rope.positive("low_freq_factor");
    s.high_freq_factor = rope.positive("high_freq_factor");
    if (s.high_freq_factor <= s.low_freq_factor)
      throw Error("key " + rope.name("high_freq_factor") + " does not exceed 'low_freq_factor'");
  }
  if (s.type == Type::kYarn) {
    s.attention_factor = rope.number("attention_factor");
    s.mscale = rope.number("mscale");
    s.mscale_all_dim = rope.number("mscale_all_dim");
    const auto or_default = [](double value, double otherwise) {
      return value == 0 ? otherwise : value;
    };
    s.beta_fast = or_default(rope.number("beta_fast").value_or(0), 32);
    s.beta_slow = or_default(rope.number("beta_slow").value_or(0), 1);
    s.truncate = rope.flag("truncate", true);
  }
  return s;
}

/// The rotary parameters under either generation's key. transformers takes the older one where both
/// are there, and nothing of the newer one with it; what the files mean then is a guess.
RopeScaling rope_scaling(const Fields& config, const ModelConfig& model, const Family& family) {
  std::optional<RopeScaling> result;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* given = config.find(key);
    if (!given || *given == json::object()) continue;
    const RopeScaling read = read_rope(config, Fields(*given, key), model, family);
    if (result && read != *result)
      throw Error("keys 'rope_scaling' (" + shown(*config.find("rope_scaling")) +
                  ") and 'rope_parameters' (" + shown(*given) +
                  ") mean different rotary positions: keep the one that is meant, with its "
                  "'rope_theta', and remove the other");
    result = read;
  }
  const json empty = json::object();
  return result ? *result : read_rope(config, Fields(empty, "rope_parameters"), model, family);
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

void require_kv_heads(const Fields& config) {
  if (!config.given("num_key_value_heads")) throw Error("key 'num_key_value_heads' is missing");
}

ModelConfig hf_config(const json& config, std::span<const Family> families) {
  const Family& family = choose_family(Fields(config), families);
  ModelConfig model = family.read_config(config, family);
  refuse_scales_of_scores(Fields(config), model.head_dim);
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
  refuse_window(config, model.max_positions, 4096);  // transformers' default
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

ModelConfig read_qwen_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  ModelConfig model = read_decoder_config(json_config, family);
  // With `layer_types`, which by now are all full, nothing else says what layers have a window.
  const bool some_layers =
      !config.find("layer_types") &&
      config.integer("max_window_layers", kMostPositions, 28, 0) < model.layers;
  if (config.flag("use_sliding_window", false) && some_layers)
    refuse_window(config, model.max_positions, 4096);
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
  put_rope(rope_scaling(config, model, family), model);
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
