// Mixtures of experts: what config.json and GGUF's metadata say of them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

json config_of(const std::string& name) {
  std::ifstream in(test_data() / "model" / name / "config.json");
  return json::parse(in);
}
std::string error_with(const std::string& name, const json& changes) {
  json config = config_of(name);
  config.update(changes);
  return error_of([&] { hf_config(config); });
}

TEST(MixtureConfig, SaysWhichLayersHaveExpertsAndHowManyOfThem) {
  const ModelConfig mixtral = hf_config(config_of("mixtral"));
  EXPECT_EQ(mixtral.experts, (ExpertsConfig{5, 2, 40, true}));
  for (int layer = 0; layer < mixtral.layers; ++layer) EXPECT_TRUE(mixtral.layer(layer).experts);
  EXPECT_EQ(mixtral.sizes(0).experts, 5);

  const ModelConfig qwen = hf_config(config_of("qwen3_moe"));
  EXPECT_EQ(qwen.experts, (ExpertsConfig{7, 3, 24, true}));
  EXPECT_EQ(qwen.sizes(0).hidden_dim, 24);
  EXPECT_EQ(qwen.sizes(1).hidden_dim, 56);
  EXPECT_EQ(qwen.sizes(1).experts, 0);
  EXPECT_TRUE(qwen.layer(0).qk_norm && qwen.layer(1).qk_norm);

  const ModelConfig olmoe = hf_config(config_of("olmoe"));
  EXPECT_EQ(olmoe.experts, (ExpertsConfig{8, 3, 24, false}));
  EXPECT_TRUE(olmoe.layer(0).whole_qk_norm);

  const ModelConfig qwen2 = hf_config(config_of("qwen2_moe"));
  EXPECT_EQ(qwen2.experts, (ExpertsConfig{6, 2, 24, false, 40, true}));
  EXPECT_TRUE(qwen2.layer(1).experts && qwen2.layer(1).qkv_bias && qwen2.layer(2).qkv_bias);
  EXPECT_FALSE(qwen2.layer(2).experts);
  json config = config_of("qwen2_moe");
  config["qkv_bias"] = false;
  EXPECT_FALSE(hf_config(config).any_layer(&LayerConfig::qkv_bias));
}

TEST(MixtureConfig, ReadsEitherGenerationsKeysAndTheirDefaults) {
  json config = config_of("qwen3_moe");
  for (const char* key : {"num_experts", "norm_topk_prob", "mlp_only_layers"}) config.erase(key);
  config["num_local_experts"] = 6;
  const ModelConfig model = hf_config(config);
  EXPECT_EQ(model.experts, (ExpertsConfig{6, 3, 24, false}));
  EXPECT_TRUE(model.layer(1).experts);
  config["decoder_sparse_step"] = 2;
  const ModelConfig every_other = hf_config(config);
  EXPECT_FALSE(every_other.layer(0).experts);
  EXPECT_TRUE(every_other.layer(1).experts);
  EXPECT_FALSE(every_other.layer(2).experts);
}

TEST(MixtureConfig, RefusesByItsKeyWhatContradictsItself) {
  EXPECT_EQ(error_with("mixtral", json::object()), "");
  const auto refused = [](const std::string& name, const json& changes, const char* part) {
    EXPECT_TRUE(mentions(error_with(name, changes), part)) << error_with(name, changes);
  };
  refused("mixtral", {{"num_experts_per_tok", 6}},
          "'num_experts_per_tok' (6) exceeds 'num_local_experts' (5)");
  refused("mixtral", {{"num_experts_per_tok", 0}}, "num_experts_per_tok");
  refused("mixtral", {{"num_local_experts", nullptr}}, "num_local_experts");
  refused("mixtral", {{"sliding_window", 64}}, "sliding_window");
  refused("qwen3_moe", {{"moe_intermediate_size", nullptr}}, "moe_intermediate_size");
  refused("qwen3_moe", {{"mlp_only_layers", 3}}, "mlp_only_layers");
  refused("qwen3_moe", {{"mlp_only_layers", {3}}}, "'mlp_only_layers' has 3, which is no layer");
  refused("qwen3_moe", {{"mlp_only_layers", {0, 1, 2}}}, "leave no layer with experts");
  refused("olmoe", {{"clip_qkv", 8.0}}, "clip_qkv");
  for (const json& size : {json(nullptr), json(0), json(-4), json("40"), json(1 << 25)})
    refused("qwen2_moe", {{"shared_expert_intermediate_size", size}},
            "'shared_expert_intermediate_size'");
  refused("qwen2_moe", {{"use_sliding_window", true}}, "sliding_window");
  refused("qwen2_moe", {{"norm_topk_prob", 1}}, "norm_topk_prob");
  refused("qwen2_moe", {{"qkv_bias", "yes"}}, "qkv_bias");
}

TEST(MixtureConfig, HasTheStackedExpertsOfAGgufFileEachInAPlaceOfItsOwn) {
  const Checkpoint model = Checkpoint::open(test_data() / "model" / "mixtral.gguf");
  EXPECT_EQ(model.config().architecture, "mixtral");
  EXPECT_EQ(model.config().experts, (ExpertsConfig{5, 2, 96, true}));
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    const auto expert = [&](int index) {
      return model.find("model.layers.1.mlp.experts." + std::to_string(index) + "." + matrix +
                        ".weight");
    };
    ASSERT_TRUE(expert(0) && expert(4)) << matrix;
    EXPECT_FALSE(expert(5));
    EXPECT_EQ(expert(4)->offset, expert(0)->offset + 4 * expert(0)->bytes);
    EXPECT_EQ(expert(1)->shape.size(), 2u);
  }
}

TEST(MixtureConfig, HasTheScoreOfASharedExpertAsAMatrixOfOneRow) {
  const Checkpoint model = Checkpoint::open(test_data() / "model" / "qwen2_moe.gguf");
  EXPECT_EQ(model.config().experts, (ExpertsConfig{6, 2, 32, false, 64, true}));
  const TensorEntry* const score = model.find("model.layers.1.mlp.shared_expert_gate.weight");
  ASSERT_TRUE(score);
  EXPECT_EQ(score->shape, (std::vector<std::int64_t>{1, 64}));
}

TEST(MixtureConfig, RefusesStackedExpertsThatAreNotAsManyAsTheFileSays) {
  const TempDir dir;
  // The metadata's number of experts: a key, its type u32, and 5.
  const std::string key = "llama.expert_count";
  std::ifstream in(test_data() / "model" / "mixtral.gguf", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  bytes[at + key.size() + 4] = 6;
  dir.write("model.gguf", bytes);
  const std::string error = error_of([&] { Checkpoint::open(dir / "model.gguf"); });
  EXPECT_TRUE(mentions(error, "'blk.0.ffn_")) << error;
  EXPECT_TRUE(mentions(error, "of 6 experts")) << error;
}

}  // namespace
}  // namespace canopy::testing
