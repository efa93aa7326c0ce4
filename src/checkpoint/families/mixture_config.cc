// config.json of mixtures of experts.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr int kMostExperts = 1 << 14;

/// Reads how many experts there are, and how many of them each row has. Either generation of
/// transformers' keys.
ExpertsConfig read_experts(const Fields& config, const Family& family, const char* hidden_key) {
  ExpertsConfig experts;
  const char* count_key = "num_local_experts";
  for (const char* const other : {"num_experts", "n_routed_experts"})
    if (config.find(other)) count_key = other;
  experts.count = config.integer(count_key, kMostExperts);
  experts.active = config.integer("num_experts_per_tok", kMostExperts);
  if (experts.active > experts.count)
    throw Error("key " + config.name("num_experts_per_tok") + " (" +
                std::to_string(experts.active) + ") exceeds " + config.name(count_key) + " (" +
                std::to_string(experts.count) + ")");
  experts.hidden_dim = config.integer(hidden_key, kMostDim);
  experts.score = family.router_score;
  experts.choice_bias = family.choice_bias;
  experts.shared_switch = family.shared_switch;
  return experts;
}

/// Sets the layers that have no experts. `keys`: what says so.
void put_dense_layers(const std::vector<std::uint8_t>& dense, const char* keys,
                      ModelConfig& model) {
  if (std::count(dense.begin(), dense.end(), 0) == 0)
    throw Error(std::string(keys) + " no layer with experts");
  if (std::count(dense.begin(), dense.end(), 1) == 0) return;
  model.kind_of_layer.resize(dense.size());                       // a model of one kind names none
  std::vector<std::size_t> without(model.layer_kinds.size(), 0);  // of a kind; 0: not there yet
  for (std::size_t layer = 0; layer < dense.size(); ++layer) {
    const std::size_t kind = model.kind_of_layer[layer];
    if (dense[layer] == 0) continue;
    if (without[kind] == 0) {
      without[kind] = model.layer_kinds.size();
      model.layer_kinds.push_back(model.layer_kinds[kind]);
      model.layer_kinds.back().experts = false;
    }
    model.kind_of_layer[layer] = static_cast<std::uint8_t>(without[kind]);
  }
}

/// Sets which layers are dense: those that `mlp_only_layers` names, and all whose number, counted
/// from 1, is no multiple of `decoder_sparse_step`.
void put_dense_layers(const Fields& config, ModelConfig& model) {
  const int step = config.integer("decoder_sparse_step", 1 << 14, 1);
  std::vector<std::uint8_t> dense(static_cast<std::size_t>(model.layers), 0);
  for (std::size_t layer = 0; layer < dense.size(); ++layer)
    dense[layer] = (layer + 1) % static_cast<std::size_t>(step) != 0;
  if (const json* const named = config.find("mlp_only_layers")) {
    if (!named->is_array()) throw Error("key 'mlp_only_layers' is not a list");
    for (const json& one : *named) {
      if (!one.is_number_integer() || one < 0 || one >= model.layers)
        throw Error("key 'mlp_only_layers' has " + shown(one) + ", which is no layer");
      dense[one.get<std::size_t>()] = 1;
    }
  }
  put_dense_layers(dense, "keys 'mlp_only_layers' and 'decoder_sparse_step' leave", model);
}

/// Sets the first layers dense, as many as `first_k_dense_replace` says.
void put_leading_dense_layers(const Fields& config, int otherwise, ModelConfig& model) {
  const int leading = config.integer("first_k_dense_replace", 1 << 14, otherwise, 0);
  std::vector<std::uint8_t> dense(static_cast<std::size_t>(model.layers), 0);
  std::fill_n(dense.begin(), std::min(leading, model.layers), 1);
  put_dense_layers(dense, "key 'first_k_dense_replace' leaves", model);
}

/// Reads the experts that every row has.
int read_shared_dim(const Fields& config, const char* count_key, int hidden_dim) {
  const std::int64_t shared = std::int64_t{config.integer(count_key, kMostExperts, 1)} * hidden_dim;
  if (shared > kMostDim)
    throw Error("key " + config.name(count_key) + " makes " + std::to_string(shared) +
                " dimensions, more than " + std::to_string(kMostDim));
  return static_cast<int>(shared);
}

/// Throws Error if experts are chosen by groups.
void refuse_groups(const Fields& config) {
  for (const char* const key : {"n_group", "topk_group"})
    if (const int groups = config.integer(key, kMostExperts, 1); groups != 1)
      refuse_config("experts in groups (key " + config.name(key) + ": " + std::to_string(groups) +
                    ")");
}

/// Reads experts that are chosen by scores and biases, and those that every row has. `normalised`:
/// where the config does not say.
void put_biased_experts(const Fields& config, const Family& family, bool normalised,
                        ModelConfig& model) {
  model.experts = read_experts(config, family, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", normalised);
  model.experts.scale = static_cast<float>(config.positive("routed_scaling_factor", 1.0));
  model.experts.shared_dim = read_shared_dim(config, "n_shared_experts", model.experts.hidden_dim);
  refuse_groups(config);
}

}  // namespace

ModelConfig read_mixtral_config(const json& json_config, const Family& family) {
  ModelConfig model = read_llama_config(json_config, family);
  model.experts = read_experts(Fields(json_config), family, "intermediate_size");
  return model;
}

ModelConfig read_qwen3_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_qwen3_config(json_config, family);
  for (const LayerConfig& kind : model.layer_kinds)
    if (kind.window != 0) refuse_config("a sliding attention window (key 'sliding_window')");
  model.experts = read_experts(config, family, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
  put_dense_layers(config, model);
  return model;
}

ModelConfig read_qwen3_5_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  json usual = json_config;
  usual["intermediate_size"] = config.integer("moe_intermediate_size", kMostDim);
  ModelConfig model = read_qwen3_5_config(usual, family);
  if (!config.flag("norm_topk_prob", true))
    refuse_config("model type " + in_quotes(family.name) +
                  " with weights of experts as they are (key 'norm_topk_prob')");
  if (const json* const dense = config.find("mlp_only_layers"); dense && !dense->empty())
    refuse_config("model type " + in_quotes(family.name) +
                  " with layers without experts (key 'mlp_only_layers')");
  model.experts = read_experts(config, family, "moe_intermediate_size");
  model.experts.shared_dim = config.integer("shared_expert_intermediate_size", kMostDim);
  return model;
}

ModelConfig read_qwen3_next_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_qwen3_5_config(json_config, family);
  model.experts = read_experts(config, family, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", true);
  model.experts.shared_dim = config.integer("shared_expert_intermediate_size", kMostDim);
  put_dense_layers(config, model);
  return model;
}

ModelConfig read_qwen2_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  ModelConfig model = read_decoder_config(json_config, family);
  // With `layer_types`, which by now are all full, nothing else says what layers have a window.
  if (!config.find("layer_types") && config.flag("use_sliding_window", false))
    refuse_window(config, model.max_positions, 4096);
  model.experts = read_experts(config, family, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
  model.experts.shared_dim = config.integer("shared_expert_intermediate_size", kMostDim);
  model.layer_kinds.front().qkv_bias = config.flag("qkv_bias", true);
  put_dense_layers(config, model);
  return model;
}

ModelConfig read_glm4_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  ModelConfig model = read_decoder_config(json_config, family);
  put_biased_experts(config, family, true, model);
  model.layer_kinds.front().qkv_bias = config.flag("attention_bias", false);
  model.layer_kinds.front().qk_norm = config.flag("use_qk_norm", false);
  put_leading_dense_layers(config, 1, model);
  model.draft_layers = config.integer("num_nextn_predict_layers", 1 << 14, 1, 0);
  return model;
}

ModelConfig read_dots1_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  ModelConfig model = read_decoder_config(json_config, family);
  // With `layer_types`, which by now are all full, nothing else says what layers have a window.
  if (!config.find("layer_types") &&
      config.integer("max_window_layers", kMostPositions, 62, 0) < model.layers)
    refuse_window(config, model.max_positions, 4096);
  put_biased_experts(config, family, false, model);
  put_leading_dense_layers(config, 0, model);
  return model;
}

ModelConfig read_minimax_m2_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // transformers' default is that of one model.
  if (!config.find("head_dim")) throw Error("key 'head_dim' is missing");
  // Files say these, which transformers does not read.
  const json as_known{{"scoring_func", "sigmoid"},
                      {"use_routing_bias", true},
                      {"use_qk_norm", true},
                      {"qk_norm_type", "per_layer"},
                      {"shared_intermediate_size", 0}};
  for (const auto& [key, known] : as_known.items())
    if (const json* const given = config.find(key.c_str()); given && *given != known)
      refuse_config("model type 'minimax_m2' with key " + config.name(key.c_str()) + ": " +
                    shown(*given) + ", not " + shown(known) + ",");
  if (const json* const types = config.find("attn_type_list"))
    if (!types->is_array() ||
        std::any_of(types->begin(), types->end(), [](const json& type) { return type != 1; }))
      refuse_config("model type 'minimax_m2' with key 'attn_type_list': " + shown(*types) +
                    ", not all 1,");
  ModelConfig model = read_decoder_config(json_config, family);
  refuse_window(config, model.max_positions, {});
  model.experts = read_experts(config, family, "intermediate_size");
  return model;
}

ModelConfig read_gpt_oss_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // transformers' defaults for these are those of one model.
  for (const char* const key : {"head_dim", "sliding_window", "rms_norm_eps"})
    if (!config.find(key)) throw Error("key " + config.name(key) + " is missing");
  if (!config.find("rope_parameters") && !config.find("rope_scaling"))
    throw Error("key 'rope_parameters' is missing");
  if (!config.flag("attention_bias", true))
    refuse_config("model type 'gpt_oss' without biases in the attention (key 'attention_bias')");
  ModelConfig model = read_decoder_config(json_config, family);
  model.experts = read_experts(config, family, "intermediate_size");
  Gating& gating = model.experts.gating;
  gating = family.gating;
  gating.limit = static_cast<float>(config.positive("swiglu_limit", double{gating.limit}));
  gating.alpha = static_cast<float>(config.positive("swiglu_alpha", double{gating.alpha}));
  return model;
}

ModelConfig read_granitemoe_config(const json& json_config, const Family& family) {
  ModelConfig model = read_granite_config(json_config, family);
  model.experts = read_experts(Fields(json_config), family, "intermediate_size");
  return model;
}

ModelConfig read_ernie4_5_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  if (config.flag("use_bias", false))
    refuse_config("biases in the attention or the MLP (key 'use_bias')");
  json usual = json_config;
  usual["num_experts"] = config.integer("moe_num_experts", kMostExperts);
  usual["num_experts_per_tok"] = config.integer("moe_k", kMostExperts);
  if (!config.given("tie_word_embeddings")) usual["tie_word_embeddings"] = true;
  ModelConfig model = read_decoder_config(usual, family);
  model.experts = read_experts(Fields(usual), family, "moe_intermediate_size");
  const char* const shared_key = "moe_num_shared_experts";
  usual[shared_key] = config.integer(shared_key, kMostExperts, 2, 0);
  if (usual[shared_key] != 0)
    model.experts.shared_dim = read_shared_dim(Fields(usual), shared_key, model.experts.hidden_dim);
  const int first = config.integer("moe_layer_start_index", 1 << 14, 1, 0);
  const int last = config.integer("moe_layer_end_index", 1 << 14, -1, -1);  // -1: that of all
  const int every = config.integer("moe_layer_interval", 1 << 14, 1);
  std::vector<std::uint8_t> dense(static_cast<std::size_t>(model.layers), 0);
  for (int layer = 0; layer < model.layers; ++layer)
    dense[static_cast<std::size_t>(layer)] =
        (layer + 1) % every != 0 || layer < first || (last >= 0 && layer > last);
  put_dense_layers(dense,
                   "keys 'moe_layer_start_index', 'moe_layer_end_index' and 'moe_layer_interval' "
                   "leave",
                   model);
  model.draft_layers = config.integer("num_nextn_predict_layers", 1 << 14, 0, 0);
  return model;
}

ModelConfig read_olmoe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_llama_config(json_config, family);
  model.experts = read_experts(config, family, "intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
  return model;
}

}  // namespace canopy
