// Seed-OSS: biases of queries, keys and values alone, by keys that mean other biases elsewhere.
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/config_errors.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

TinyModel seed_oss() {
  TinyOptions options;
  options.family = "qwen2";
  TinyModel model = tiny_model(options);
  model.config["model_type"] = "seed_oss";
  model.config["architectures"] = {"SeedOssForCausalLM"};
  model.config["head_dim"] = nullptr;
  model.config["attention_bias"] = true;
  model.config["attention_out_bias"] = false;
  model.config["mlp_bias"] = false;
  return model;
}

TEST(SeedOssConfig, HasBiasesOfQueriesKeysAndValuesAlone) {
  json config = seed_oss().config;
  for (int given = 0; given < 2; ++given) {
    const ModelConfig model = hf_config(config);
    EXPECT_EQ(model.architecture, "seed_oss");
    EXPECT_TRUE(model.layer(0).qkv_bias);
    EXPECT_FALSE(model.layer(0).other_biases);
    config.erase("attention_bias");  // transformers' defaults
    config.erase("attention_out_bias");
  }
}

TEST(SeedOssConfig, MayDoWithoutThem) {
  json config = seed_oss().config;
  config["attention_bias"] = false;
  EXPECT_FALSE(hf_config(config).layer(0).qkv_bias);
}

TEST(SeedOssConfig, OtherBiasesAreRefusedByTheFamilysName) {
  const json config = seed_oss().config;
  EXPECT_TRUE(mentions(
      config_error_with(config, {{"attention_out_bias", true}}),
      "model type 'seed_oss' with biases in the attention output (key 'attention_out_bias')"));
  EXPECT_TRUE(mentions(config_error_with(config, {{"mlp_bias", true}}),
                       "model type 'seed_oss' has biases in the MLP (key 'mlp_bias')"));
}

TEST(SeedOssConfig, NeedsWhatTransformersWouldTakeFromOneModel) {
  for (const char* key : {"head_dim", "num_key_value_heads"})
    EXPECT_TRUE(mentions(config_error_without(seed_oss().config, key),
                         "key '" + std::string(key) + "' is missing"));
}

}  // namespace
}  // namespace canopy::testing
