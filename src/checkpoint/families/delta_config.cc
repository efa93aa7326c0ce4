// Delta nets, and which layers have one in place of an attention, of config.json and GGUF files.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/gguf_keys.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr int kMostHeads = 1 << 16, kMostHeadDim = 1 << 13, kTaps = 4;

/// Sets which layers attend. Throws Error where there is only one of the kinds: such a model is
/// another.
void put_attending(std::vector<std::uint8_t> attends, const std::string& keys, ModelConfig& model) {
  const auto attending = std::count(attends.begin(), attends.end(), 1);
  if (attending == 0 || attending == std::ssize(attends))
    throw Error(keys + " leaves no layer " +
                (attending == 0 ? "that attends" : "with a delta net"));
  model.kind_of_layer = std::move(attends);
}

void require_groups(const DeltaConfig& delta, const std::string& values, const std::string& keys) {
  if (delta.value_heads % delta.key_heads != 0)
    throw Error(values + " (" + std::to_string(delta.value_heads) + ") is no multiple of " + keys +
                " (" + std::to_string(delta.key_heads) + ")");
}

}  // namespace

ModelConfig read_qwen3_5_config(const json& json_config, const Family& family) {
  const Fields config(json_config);
  require_kv_heads(config);
  // transformers' defaults for these are those of one model.
  if (!config.find("head_dim")) throw Error("key 'head_dim' is missing");
  if (!config.find("rope_parameters") && !config.find("rope_scaling") && !config.find("rope_theta"))
    throw Error("key 'rope_parameters' is missing");
  if (!config.flag("attn_output_gate", true))
    refuse_config("model type " + in_quotes(family.name) +
                  " without gates of the attention's output (key 'attn_output_gate')");
  json usual = json_config;
  usual.erase("layer_types");
  ModelConfig model = read_decoder_config(usual, family);
  DeltaConfig& delta = model.delta;
  delta.key_heads = config.integer("linear_num_key_heads", kMostHeads);
  delta.value_heads = config.integer("linear_num_value_heads", kMostHeads);
  delta.key_dim = config.integer("linear_key_head_dim", kMostHeadDim);
  delta.value_dim = config.integer("linear_value_head_dim", kMostHeadDim);
  require_groups(delta, "key 'linear_num_value_heads'", "'linear_num_key_heads'");
  delta.joined_inputs = delta.joined_steps = family.joined_delta;
  if (const int taps = config.integer("linear_conv_kernel_dim", kMostHeadDim); taps != kTaps)
    refuse_config("a convolution of " + std::to_string(taps) +
                  " taps (key 'linear_conv_kernel_dim')");
  std::vector<std::uint8_t> attends(static_cast<std::size_t>(model.layers), 0);
  const char* key = "layer_types";
  if (const json* const types = config.find(key)) {
    if (!types->is_array() || std::ssize(*types) != model.layers)
      throw Error("key 'layer_types' is not a list of " + std::to_string(model.layers) +
                  " layers' types");
    for (std::size_t layer = 0; layer < types->size(); ++layer) {
      const json& type = (*types)[layer];
      if (type != "linear_attention" && type != "full_attention")
        refuse_config("a layer of type " + shown(type));
      attends[layer] = type == "full_attention" ? 1 : 0;
    }
  } else {
    key = "full_attention_interval";
    const int interval = config.integer(key, kMostHeads, family.period);
    for (std::size_t layer = 0; layer < attends.size(); ++layer)
      attends[layer] = (layer + 1) % static_cast<std::size_t>(interval) == 0 ? 1 : 0;
  }
  put_attending(std::move(attends), "key " + in_quotes(key), model);
  model.draft_layers = config.integer("mtp_num_hidden_layers", kMostHeads, 1, 0);
  return model;
}

void put_delta(const Keys& keys, const GgufHeader& header, const Family& family,
               ModelConfig& model) {
  DeltaConfig& delta = model.delta;
  delta.key_heads = keys.integer("ssm.group_count", kMostHeads);
  delta.value_heads = keys.integer("ssm.time_step_rank", kMostHeads);
  delta.key_dim = keys.integer("ssm.state_size", kMostHeadDim);
  const auto quoted = [&](const char* key) { return in_quotes(keys.name(key)); };
  require_groups(delta, "metadata key " + quoted("ssm.time_step_rank"), quoted("ssm.group_count"));
  const int inner = keys.integer("ssm.inner_size", kMostDim);
  if (inner % delta.value_heads != 0)
    throw Error("metadata key " + quoted("ssm.inner_size") + " is no multiple of " +
                quoted("ssm.time_step_rank"));
  delta.value_dim = inner / delta.value_heads;
  if (const int taps = keys.integer("ssm.conv_kernel", kMostHeadDim); taps != kTaps)
    throw Error("metadata key " + quoted("ssm.conv_kernel") + " is " + std::to_string(taps) +
                ", not " + std::to_string(kTaps) + ", which is not supported");
  // Converters write the rates of decay themselves, and reorder value heads; or, of inputs in one
  // matrix, take queries, keys, values and gates apart, which older ones left where they were.
  delta.rate_is_log = false;
  delta.by_turns = !family.joined_delta;
  delta.joined_steps = family.joined_delta;
  const std::string_view joined = spec_of(TensorRole::kDeltaJoined).gguf;
  delta.joined_inputs =
      family.joined_delta &&
      std::any_of(header.tensors.begin(), header.tensors.end(), [&](const TensorEntry& tensor) {
        return numbers_in(joined, tensor.name).has_value();
      });
  std::vector<std::uint8_t> attends(static_cast<std::size_t>(model.layers), 0);
  const char* key = "attention.recurrent_layers";
  if (const std::vector<double> each = keys.numbers(key); !each.empty()) {
    if (each.size() < attends.size())
      throw Error("metadata key " + quoted(key) + " has " + std::to_string(each.size()) +
                  " numbers for " + std::to_string(model.layers) + " layers");
    for (std::size_t layer = 0; layer < attends.size(); ++layer)
      attends[layer] = each[layer] == 0 ? 1 : 0;
  } else {
    key = "full_attention_interval";
    const int interval = keys.integer(key, kMostHeads, 4);
    for (std::size_t layer = 0; layer < attends.size(); ++layer)
      attends[layer] = (layer + 1) % static_cast<std::size_t>(interval) == 0 ? 1 : 0;
  }
  put_attending(std::move(attends), "metadata key " + quoted(key), model);
}

}  // namespace canopy
