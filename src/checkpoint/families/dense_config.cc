// config.json of dense decoders whose equations differ from Llama's in factors, bounds, norms,
// windows or what is rotated.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/readers.h"
#include "src/checkpoint/rope_scaling.h"

namespace canopy {

namespace {

using nlohmann::json;

/// Reads a config whose activation and epsilon stand under other keys than Llama's.
ModelConfig read_with(const json& json_config, const Family& family, const char* activation_key,
                      const char* activation, const char* epsilon_key, double epsilon) {
  const Fields config(json_config);
  if (const std::string act = config.text(activation_key, activation); act != activation)
    refuse_config("the activation " + in_quotes(act) + " (key " + config.name(activation_key) +
                  ")");
  json usual = json_config;
  usual["hidden_act"] = "silu";
  usual["rms_norm_eps"] = config.positive(epsilon_key, epsilon);
  return read_decoder_config(usual, family);
}

/// Reads a positive bound; null and 0 mean none.
float read_cap(const Fields& config, const char* key, float usual) {
  if (!config.given(key)) return usual;
  const double cap = config.number(key).value_or(0);
  return cap == 0 ? 0.0f : static_cast<float>(config.positive(key));
}

/// Reads what Gemma 2 and 3 have in common. The embedding's factor is rounded to the type of its
/// weights where that is known.
ModelConfig read_gemma(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_with(json_config, family, "hidden_activation", "gelu_pytorch_tanh",
                                "rms_norm_eps", 1e-6);
  DecoderFactors& factors = model.factors;
  factors.embedding = std::sqrt(static_cast<float>(model.dim));
  factors.score =
      static_cast<float>(1 / std::sqrt(config.positive("query_pre_attn_scalar", 256.0)));
  factors.logit_cap = read_cap(config, "final_logit_softcapping", family.usual_logit_cap);
  return model;
}

json with_defaults(const json& config, json defaults) {
  Fields{config};  // throws if it is no object
  for (const auto& [key, value] : config.items()) defaults[key] = value;
  return defaults;
}

/// Sets which of two kinds of layers are of the first by a pattern: every so manieth is of the
/// second, or a text with an L for each of the first and a G for each of the second, again and
/// again.
void put_pattern(const Fields& config, const char* key, ModelConfig& model) {
  const json* const pattern = config.find(key);
  if (!pattern || config.find("layer_types")) return;
  if (!pattern->is_string()) {
    model.set_every(config.integer(key, 1 << 14));
    return;
  }
  const std::string kinds = pattern->get<std::string>();
  if (kinds.empty() || kinds.find_first_not_of("LG") != kinds.npos)
    throw Error("key " + config.name(key) + " is " + shown(*pattern) +
                ", not a text of L and G, nor a number");
  for (std::size_t layer = 0; layer < model.kind_of_layer.size(); ++layer)
    model.kind_of_layer[layer] = kinds[layer % kinds.size()] == 'G' ? 1 : 0;
}

void refuse_flag(const Fields& config, const char* key, const char* what) {
  if (config.flag(key, false))
    refuse_config("model type " + in_quotes(config.text("model_type")) + " with " + what +
                  " (key " + config.name(key) + ")");
}

}  // namespace

ModelConfig read_phi3_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_decoder_config(json_config, family);
  put_uniform_window(config, {}, model);
  return model;
}

ModelConfig read_gemma2_config(const json& json_config, const Family& family) {
  // Published files lack some of these.
  const json whole = with_defaults(
      json_config, {{"head_dim", 256}, {"sliding_window", 4096}, {"tie_word_embeddings", true}});
  require_kv_heads(Fields(whole));
  ModelConfig model = read_gemma(whole, family);
  model.factors.score_cap =
      read_cap(Fields(whole), "attn_logit_softcapping", family.usual_score_cap);
  return model;
}

ModelConfig read_gemma3_config(const json& json_config, const Family& family) {
  // Published files that also see leave these out.
  const json whole = with_defaults(json_config, {{"vocab_size", 262208},
                                                 {"num_attention_heads", 8},
                                                 {"num_key_value_heads", 4},
                                                 {"head_dim", 256},
                                                 {"max_position_embeddings", 131072},
                                                 {"sliding_window", 4096},
                                                 {"tie_word_embeddings", true}});
  ModelConfig model = read_gemma(whole, family);
  put_pattern(Fields(whole), "sliding_window_pattern", model);
  return model;
}

ModelConfig read_gemma4_config(const json& json_config, const Family& family) {
  // Defaults of transformers for keys that published files leave out in part.
  const json rope{
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
      {"full_attention",
       {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}};
  const bool unified = family.name == "gemma4_unified_text";
  json whole = with_defaults(json_config, {{"tie_word_embeddings", true},
                                           {"hidden_size_per_layer_input", unified ? 0 : 256},
                                           {"use_bidirectional_attention", nullptr}});
  if (whole.value("rope_parameters", json()).is_null()) whole["rope_parameters"] = rope;
  const Fields config(whole);
  require_kv_heads(config);
  for (const char* key : {"head_dim", "sliding_window"})
    if (!config.find(key)) throw Error("key " + config.name(key) + " is missing");
  const std::string of_type = "model type " + in_quotes(family.name) + " with ";
  if (config.integer("hidden_size_per_layer_input", kMostDim, 0, 0) != 0)
    refuse_config(of_type + "embeddings of each layer (key 'hidden_size_per_layer_input')");
  if (config.integer("num_kv_shared_layers", kMostPositions, 0, 0) != 0)
    refuse_config(of_type + "layers that share keys and values (key 'num_kv_shared_layers')");
  if (config.flag("enable_moe_block", false))
    refuse_config(of_type + "a mixture of experts (key 'enable_moe_block')");
  // "vision": of tokens of images alone.
  if (const json* const both = config.find("use_bidirectional_attention");
      both && *both != "vision")
    refuse_config(of_type + "attention in both directions (key 'use_bidirectional_attention')");
  ModelConfig model =
      read_with(whole, family, "hidden_activation", "gelu_pytorch_tanh", "rms_norm_eps", 1e-6);
  model.factors.embedding = std::sqrt(static_cast<float>(model.dim));
  model.factors.score = family.score;
  model.factors.logit_cap = read_cap(config, "final_logit_softcapping", 0);
  return model;
}

ModelConfig read_olmo2_config(const json& json_config, const Family& family) {
  return read_with(json_config, family, "hidden_act", "silu", "rms_norm_eps", 1e-5);
}

ModelConfig read_olmo3_config(const json& json_config, const Family& family) {
  return read_olmo2_config(with_defaults(json_config, {{"sliding_window", 4096}}), family);
}

ModelConfig read_exaone4_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  const bool windows = !config.given("sliding_window") || config.find("sliding_window");
  json whole = with_defaults(json_config, {{"sliding_window", 4096}});
  if (!windows) {
    if (const json* const types = config.find("layer_types"))
      for (const json& type : *types)
        if (type != "full_attention") refuse_config("a layer of type " + shown(type));
    whole["sliding_window"] = 1;  // which no layer has
    whole.erase("layer_types");
  }
  ModelConfig model = read_with(whole, family, "hidden_act", "silu", "rms_norm_eps", 1e-5);
  put_pattern(Fields(whole), "sliding_window_pattern", model);
  if (!windows) model.make_alike();
  return model;
}

ModelConfig read_exaone_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  json whole = json_config;
  for (const auto& [older, newer] : {std::pair{"num_layers", "num_hidden_layers"},
                                     {"activation_function", "hidden_act"},
                                     {"layer_norm_epsilon", "rms_norm_eps"}}) {
    if (!config.find(older)) continue;
    if (config.find(newer) && *config.find(newer) != *config.find(older))
      throw Error("keys " + config.name(older) + " and " + config.name(newer) +
                  " differ: keep the one that is meant");
    whole[newer] = *config.find(older);
  }
  require_kv_heads(config);
  return read_with(whole, family, "hidden_act", "silu", "rms_norm_eps", 1e-5);
}

ModelConfig read_hunyuan_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  refuse_flag(config, "use_cla", "layers that share keys and values");
  if (!config.flag("use_qk_norm", true))
    refuse_config(
        "model type 'hunyuan_v1_dense' without norms of queries and keys (key "
        "'use_qk_norm')");
  if (!config.find("head_dim")) throw Error("key 'head_dim' is missing");
  json whole = json_config;
  // A larger base, whatever the text's length, is called dynamic in files.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* const rope = config.find(key);
    if (!rope) continue;
    const Fields own(*rope, key);
    if (own.text("rope_type", own.text("type").c_str()) != "dynamic" || !own.find("alpha"))
      continue;
    const double theta = own.positive("rope_theta", config.positive("rope_theta", family.theta));
    whole[key] = {{"rope_type", "default"},
                  {"rope_theta",
                   ntk_theta(theta, own.positive("alpha"), config.integer("head_dim", 1 << 13))}};
  }
  return read_with(whole, family, "hidden_act", "silu", "rms_norm_eps", 1e-5);
}

ModelConfig read_apertus_config(const json& json_config, const Family& family) {
  json whole = with_defaults(json_config, json::object());
  const Fields config(whole);
  require_kv_heads(config);
  if (!config.find("rope_parameters") && !config.find("rope_scaling") && !config.find("rope_theta"))
    whole["rope_parameters"] = {
        {"rope_type", "llama3"},  {"rope_theta", 12000000.0},
        {"factor", 8.0},          {"original_max_position_embeddings", 8192},
        {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  // Each layer has numbers of its own in the files of the weights.
  ModelConfig model = read_with(whole, family, "hidden_act", "xielu", "rms_norm_eps", 1e-5);
  model.xielu.resize(static_cast<std::size_t>(model.layers));
  return model;
}

ModelConfig read_granitemoehybrid_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  if (!config.find("num_local_experts")) throw Error("key 'num_local_experts' is missing");
  json whole = json_config;
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const json* const types = config.find(key);
    if (!types) continue;
    for (const json& type : *types)
      if (type != "attention" && type != "full_attention")
        refuse_config("model type 'granitemoehybrid' with a layer of type " + shown(type) +
                      " (key " + config.name(key) + ")");
    whole.erase(key);
  }
  if (whole.size() == json_config.size()) throw Error("key 'layer_types' is missing");
  whole["intermediate_size"] = config.integer("shared_intermediate_size", kMostDim);
  ModelConfig model = read_granite_config(whole, family);
  const std::string positions = config.text("position_embedding_type");
  if (!positions.empty() && positions != "rope" && positions != "nope")
    refuse_config("positions of type " + in_quotes(positions) + " (key 'position_embedding_type')");
  model.layer_kinds.front().rotated = positions == "rope";
  return model;
}

ModelConfig read_glm4_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  if (!config.find("head_dim")) throw Error("key 'head_dim' is missing");
  ModelConfig model =
      read_with(json_config, family, "hidden_act", "silu", "rms_norm_eps", 1.5625e-7);
  model.layer_kinds.front().qkv_bias = config.flag("attention_bias", true);
  return model;
}

ModelConfig read_granite_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_decoder_config(json_config, family);
  const auto factor = [&](const char* key) {
    return static_cast<float>(config.positive(key, 1.0));
  };
  model.factors.embedding = factor("embedding_multiplier");
  model.factors.branch = factor("residual_multiplier");
  model.factors.logit = 1 / factor("logits_scaling");
  model.factors.score = factor("attention_multiplier");
  return model;
}

ModelConfig read_smollm3_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // Layers of these types see all keys, whatever they are called, while no window is used.
  const bool windows = config.flag("use_sliding_window", false) && config.find("sliding_window");
  if (windows) refuse_config("model type 'smollm3' with windows (key 'use_sliding_window')");
  ModelConfig model =
      read_decoder_config(with_defaults(json_config, {{"tie_word_embeddings", true}}), family);
  if (const json* const rotated = config.find("no_rope_layers")) {
    if (!rotated->is_array() || std::ssize(*rotated) < model.layers)
      throw Error("key 'no_rope_layers' is not a list of " + std::to_string(model.layers) +
                  " layers");
    for (int layer = 0; layer < model.layers; ++layer) {
      const json& one = (*rotated)[static_cast<std::size_t>(layer)];
      if (one != 0 && one != 1)
        throw Error("key 'no_rope_layers' has " + shown(one) + ", not 0 or 1");
      model.kind_of_layer[static_cast<std::size_t>(layer)] = one == 1 ? 0 : 1;
    }
  } else {
    model.set_every(config.integer("no_rope_layer_interval", 1 << 14, family.period));
  }
  return model;
}

ModelConfig read_cohere_config(const json& json_config, const Family& family) {
  ModelConfig model = read_with(with_defaults(json_config, {{"tie_word_embeddings", true}}), family,
                                "hidden_act", "silu", "layer_norm_eps", 1e-5);
  const Fields config(json_config);
  model.factors.logit = static_cast<float>(config.positive("logit_scale", 0.0625));
  model.layer_kinds.front().qk_norm = config.flag("use_qk_norm", false);
  return model;
}

ModelConfig read_cohere2_config(const json& json_config, const Family& family) {
  refuse_flag(Fields(json_config), "use_qk_norm", "layer norms of queries and keys");
  const json whole = with_defaults(json_config, {{"sliding_window", 4096}});
  ModelConfig model = read_cohere_config(whole, family);
  put_pattern(Fields(whole), "sliding_window_pattern", model);
  return model;
}

ModelConfig read_arcee_config(const json& json_config, const Family& family) {
  return read_with(json_config, family, "hidden_act", "relu2", "rms_norm_eps", 1e-5);
}

ModelConfig read_nemotron_config(const json& json_config, const Family& family) {
  return read_with(json_config, family, "hidden_act", "relu2", "norm_eps", 1e-5);
}

ModelConfig read_starcoder2_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  if (!config.flag("use_bias", true))
    refuse_config("model type 'starcoder2' without biases (key 'use_bias')");
  ModelConfig model = read_with(with_defaults(json_config, {{"tie_word_embeddings", true}}), family,
                                "hidden_act", "gelu_pytorch_tanh", "norm_epsilon", 1e-5);
  put_uniform_window(config, {}, model);
  return model;
}

}  // namespace canopy
