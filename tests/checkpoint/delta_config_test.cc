// Qwen 3.5: delta nets in place of attention in most layers, in both containers, and the wrapper
// with parts that are left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_tensors.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/config_errors.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

std::filesystem::path delta_model(const std::string& name) { return test_data() / "model" / name; }

json delta_config(const char* model = "qwen3_5") {
  return json::parse(std::ifstream(delta_model(model) / "config.json"));
}

TEST(DeltaConfig, HasDeltaNetsButForEachFourthLayer) {
  json config = delta_config();
  for (const bool listed : {true, false}) {
    const ModelConfig model = hf_config(config);
    EXPECT_EQ(model.architecture, "qwen3_5_text");
    EXPECT_TRUE(model.recurrent());
    for (int layer = 0; layer < 8; ++layer) {
      const LayerConfig& own = model.layer(layer);
      EXPECT_EQ(own.attention, layer % 4 == 3) << layer;
      EXPECT_EQ(own.recurrent, layer % 4 != 3) << layer;
      EXPECT_EQ(own.output_gate && own.qk_norm, own.attention) << layer;
      EXPECT_EQ(model.sizes(layer).kv_heads, own.attention ? 1 : 0) << layer;
    }
    EXPECT_EQ(model.delta,
              (DeltaConfig{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12}));
    EXPECT_EQ(model.rope_inverse_frequency.size(), 2U);  // a quarter of 16
    EXPECT_EQ(model.draft_layers, 1);
    config.erase("layer_types");  // by an interval, whose default is 4
    EXPECT_EQ(model.kind_of_layer, (std::vector<std::uint8_t>{0, 0, 0, 1, 0, 0, 0, 1})) << listed;
  }
  config["full_attention_interval"] = 2;
  EXPECT_TRUE(hf_config(config).layer(1).attention);
}

TEST(DeltaConfig, RefusesWhatItIsNot) {
  const json config = delta_config();
  EXPECT_TRUE(
      mentions(config_error_with(config, {{"linear_num_value_heads", 3}}),
               "key 'linear_num_value_heads' (3) is no multiple of 'linear_num_key_heads'"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"linear_conv_kernel_dim", 3}}),
                       "a convolution of 3 taps (key 'linear_conv_kernel_dim')"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"attn_output_gate", false}}),
                       "without gates of the attention's output"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"layer_types", {"full_attention"}}}),
                       "key 'layer_types' is not a list of 8 layers' types"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"layer_types", json(8, "linear_attention")}}),
                       "key 'layer_types' leaves no layer that attends"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"layer_types", json(8, "full_attention")}}),
                       "key 'layer_types' leaves no layer with a delta net"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"layer_types", json(8, "mamba")}}),
                       "a layer of type \"mamba\""));
  EXPECT_TRUE(mentions(config_error_with(config, {{"attention_bias", true}}), "biases"));
  for (const char* key : {"linear_num_key_heads", "linear_key_head_dim", "head_dim",
                          "num_key_value_heads", "rope_parameters", "linear_conv_kernel_dim"})
    EXPECT_TRUE(
        mentions(config_error_without(config, key), "key '" + std::string(key) + "' is missing"));
}

TEST(DeltaConfig, OfAMixtureHasExpertsInAllLayersAndOneForAllRows) {
  const json config = delta_config("qwen3_5_moe");
  const ModelConfig model = hf_config(config);
  for (int layer = 0; layer < 8; ++layer) EXPECT_TRUE(model.layer(layer).experts);
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_EQ(model.experts.active, 2);
  EXPECT_EQ(model.experts.shared_dim, 20);
  EXPECT_TRUE(model.experts.normalised && model.experts.shared_switch);
  EXPECT_TRUE(mentions(config_error_with(config, {{"norm_topk_prob", false}}), "norm_topk_prob"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"mlp_only_layers", {1}}}), "mlp_only_layers"));
}

TEST(DeltaConfig, OfGgufHasValueHeadsByTurnsAndTheRatesThemselves) {
  const Checkpoint model = Checkpoint::open(delta_model("qwen3_5.gguf"));
  EXPECT_EQ(model.config().architecture, "qwen3_5_text");
  EXPECT_EQ(model.config().delta, (DeltaConfig{.key_heads = 2,
                                               .value_heads = 6,
                                               .key_dim = 8,
                                               .value_dim = 16,
                                               .by_turns = true,
                                               .rate_is_log = false}));
  EXPECT_TRUE(model.config().layer(3).attention);
  EXPECT_TRUE(model.config().layer(4).recurrent);
  EXPECT_EQ(model.find(tensor_name(TensorRole::kDeltaMixed, 0))->shape,
            (std::vector<std::int64_t>{2 * 2 * 8 + 6 * 16, 64}));
  EXPECT_EQ(model.find(tensor_name(TensorRole::kDeltaTaps, 0))->shape,
            (std::vector<std::int64_t>{2 * 2 * 8 + 6 * 16, 4}));
}

TEST(DeltaConfig, AddsOneToAllNormsOfADirectoryButTheDeltaNets) {
  const Checkpoint model = Checkpoint::open(delta_model("qwen3_5"));
  EXPECT_EQ(model.find(tensor_name(TensorRole::kAttentionNorm, 0))->plus, 1.0f);
  EXPECT_EQ(model.find(tensor_name(TensorRole::kQueryNorm, 3))->plus, 1.0f);
  EXPECT_EQ(model.find(tensor_name(TensorRole::kFinalNorm))->plus, 1.0f);
  EXPECT_EQ(model.find(tensor_name(TensorRole::kDeltaNorm, 0))->plus, 0.0f);
}

TEST(DeltaConfig, LeavesLayersThatGuessFurtherTokensOut) {
  const Checkpoint model = Checkpoint::open(delta_model("qwen3_5"));
  EXPECT_TRUE(std::any_of(model.config().notes.begin(), model.config().notes.end(),
                          [](const std::string& note) {
                            return note.find("guess further tokens, are left out") != note.npos;
                          }));
  for (const TensorEntry& tensor : model.tensors()) EXPECT_FALSE(tensor.name.starts_with("mtp."));
}

TEST(DeltaConfig, OfQwen3NextHasInputsInOneMatrixAndDenseLayersOfEitherKind) {
  const json config = delta_config("qwen3_next");
  const ModelConfig model = hf_config(config);
  EXPECT_EQ(model.architecture, "qwen3_next");
  EXPECT_EQ(model.delta, (DeltaConfig{.key_heads = 3,
                                      .value_heads = 6,
                                      .key_dim = 8,
                                      .value_dim = 12,
                                      .joined_inputs = true,
                                      .joined_steps = true}));
  for (int layer = 0; layer < 8; ++layer) {
    const LayerConfig& own = model.layer(layer);
    EXPECT_EQ(own.attention && own.output_gate && own.qk_norm, layer % 4 == 3) << layer;
    EXPECT_EQ(own.recurrent, layer % 4 != 3) << layer;
    EXPECT_EQ(own.experts, layer != 1 && layer != 3) << layer;
    EXPECT_EQ(model.sizes(layer).hidden_dim, own.experts ? 24 : 40) << layer;
  }
  EXPECT_EQ(model.experts.shared_dim, 20);
  EXPECT_TRUE(model.experts.normalised && model.experts.shared_switch);
  EXPECT_EQ(model.rope_inverse_frequency.size(), 2U);  // a quarter of 16
  const Checkpoint opened = Checkpoint::open(delta_model("qwen3_next"));
  EXPECT_EQ(opened.find(tensor_name(TensorRole::kDeltaJoined, 0))->shape,
            (std::vector<std::int64_t>{3 * 2 * (8 + 2 * 12), 32}));
  EXPECT_EQ(opened.find(tensor_name(TensorRole::kDeltaJoinedSteps, 0))->shape,
            (std::vector<std::int64_t>{12, 32}));
  json sparse = config;
  sparse["mlp_only_layers"] = json::array();
  sparse["decoder_sparse_step"] = 2;
  for (int layer = 0; layer < 8; ++layer)
    EXPECT_EQ(hf_config(sparse).layer(layer).experts, layer % 2 == 1) << layer;
  EXPECT_TRUE(mentions(config_error_with(config, {{"mlp_only_layers", {8}}}), "is no layer"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"decoder_sparse_step", 9}}),
                       "'decoder_sparse_step' leave no layer with experts"));
}

TEST(DeltaConfig, OfQwen3NextsGgufHasGatesApartUnlessAnOlderConverterLeftThem) {
  for (const bool older : {false, true}) {
    const Checkpoint model =
        Checkpoint::open(delta_model(older ? "qwen3_next_ssm_in.gguf" : "qwen3_next.gguf"));
    EXPECT_EQ(model.config().architecture, "qwen3_next");
    EXPECT_EQ(model.config().delta, (DeltaConfig{.key_heads = 3,
                                                 .value_heads = 6,
                                                 .key_dim = 8,
                                                 .value_dim = 16,
                                                 .rate_is_log = false,
                                                 .joined_inputs = older,
                                                 .joined_steps = true}));
    for (const auto& [role, there] : {std::pair{TensorRole::kDeltaJoined, older},
                                      {TensorRole::kDeltaMixed, !older},
                                      {TensorRole::kDeltaGate, !older},
                                      {TensorRole::kDeltaJoinedSteps, true},
                                      {TensorRole::kDeltaBeta, false}})
      EXPECT_EQ(model.find(tensor_name(role, 0)) != nullptr, there) << tensor_name(role, 0);
  }
}

/// The tiny model inside of a wrapper's directory, as the Hub has Qwen 3.5.
class WrappedDelta : public ::testing::TestWithParam<const char*> {
 protected:
  /// Rewrites the names in the header of a safetensors file; the data stay.
  static std::string renamed(const std::string& file) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    json header = json::parse(file.substr(8, length)), names;
    std::uint64_t end = 0;
    for (const auto& [name, value] : header.items()) {
      if (name.starts_with("model."))
        names["model.language_model." + name.substr(6)] = value;
      else
        names[name] = value;
      if (value.contains("data_offsets"))
        end = std::max(end, value["data_offsets"][1].get<std::uint64_t>());
    }
    names["model.visual.blocks.0.attn.qkv.weight"] = {
        {"dtype", "BF16"}, {"shape", {2, 2}}, {"data_offsets", {end, end + 8}}};
    const std::uint64_t header_bytes = length;
    const std::string text = names.dump();
    length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text +
           file.substr(8 + header_bytes) + std::string(8, '\0');
  }
};

TEST_P(WrappedDelta, IsReadForItsTextAlone) {
  const std::string inner = GetParam();
  json text = delta_config(inner.c_str());
  const std::string type = inner == "qwen3_5" ? "qwen3_5" : "qwen3_5_moe";
  const std::string architecture =
      inner == "qwen3_5" ? "Qwen3_5ForConditionalGeneration" : "Qwen3_5MoeForConditionalGeneration";
  text.erase("architectures");
  const json config{{"architectures", {architecture}},
                    {"model_type", type},
                    {"tie_word_embeddings", false},
                    {"text_config", text},
                    {"vision_config", {{"model_type", type + "_vision"}}}};
  std::stringstream bytes;
  bytes << std::ifstream(delta_model(inner) / "model.safetensors", std::ios::binary).rdbuf();
  const TempDir dir;
  dir.write("config.json", config.dump());
  dir.write("model.safetensors", renamed(bytes.str()));
  const Checkpoint model = Checkpoint::open(dir.path()),
                   plain = Checkpoint::open(delta_model(inner));
  EXPECT_EQ(model.config().architecture, plain.config().architecture);
  ASSERT_EQ(model.tensors().size(), plain.tensors().size());
  for (std::size_t i = 0; i < plain.tensors().size(); ++i)
    EXPECT_EQ(model.tensors()[i].name, plain.tensors()[i].name);
  EXPECT_TRUE(std::any_of(
      model.config().notes.begin(), model.config().notes.end(),
      [](const std::string& note) { return note.find("visual (1 tensor") != note.npos; }));
}

INSTANTIATE_TEST_SUITE_P(Models, WrappedDelta, ::testing::Values("qwen3_5", "qwen3_5_moe"));

}  // namespace
}  // namespace canopy::testing
