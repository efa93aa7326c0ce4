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
ExpertsConfig read_experts(const Fields& config, const char* hidden_key) {
  ExpertsConfig experts;
  const char* const count_key = config.find("num_experts") ? "num_experts" : "num_local_experts";
  experts.count = config.integer(count_key, kMostExperts);
  experts.active = config.integer("num_experts_per_tok", kMostExperts);
  if (experts.active > experts.count)
    throw Error("key " + config.name("num_experts_per_tok") + " (" +
                std::to_string(experts.active) + ") exceeds " + config.name(count_key) + " (" +
                std::to_string(experts.count) + ")");
  experts.hidden_dim = config.integer(hidden_key, kMostDim);
  return experts;
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
  if (std::count(dense.begin(), dense.end(), 0) == 0)
    throw Error("keys 'mlp_only_layers' and 'decoder_sparse_step' leave no layer with experts");
  if (std::count(dense.begin(), dense.end(), 1) == 0) return;
  LayerConfig without = model.layer_kinds.front();
  without.experts = false;
  model.layer_kinds.push_back(without);
  model.kind_of_layer = std::move(dense);
}

}  // namespace

ModelConfig read_mixtral_config(const json& json_config, const Family& family) {
  ModelConfig model = read_llama_config(json_config, family);
  model.experts = read_experts(Fields(json_config), "intermediate_size");
  return model;
}

ModelConfig read_qwen3_moe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_qwen3_config(json_config, family);
  model.experts = read_experts(config, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
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
  model.experts = read_experts(config, "moe_intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
  model.experts.shared_dim = config.integer("shared_expert_intermediate_size", kMostDim);
  model.experts.shared_switch = family.shared_switch;
  model.layer_kinds.front().qkv_bias = config.flag("qkv_bias", true);
  put_dense_layers(config, model);
  return model;
}

ModelConfig read_olmoe_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  ModelConfig model = read_llama_config(json_config, family);
  model.experts = read_experts(config, "intermediate_size");
  model.experts.normalised = config.flag("norm_topk_prob", false);
  return model;
}

}  // namespace canopy
