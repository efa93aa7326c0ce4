// Keys of config.json that Ministral 3 alone has: queries scaled by position, and
// defaults that are one model's.
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/config_errors.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

json ministral3_config() {
  TinyOptions options;
  options.family = "mistral";
  json config = tiny_model(options).config;
  config["model_type"] = "ministral3";
  config["architectures"] = {"Ministral3ForCausalLM"};
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "yarn"},
                               {"rope_theta", 1e6},
                               {"factor", 16.0},
                               {"original_max_position_embeddings", 8},
                               {"mscale", 1.0},
                               {"mscale_all_dim", 1.0},
                               {"llama_4_scaling_beta", 0.1}};
  return config;
}

TEST(Ministral3Config, HasTheBetaOfItsQueriesAndThePositionsItCountsBy) {
  const ModelConfig config = hf_config(ministral3_config());
  EXPECT_EQ(config.query_beta, 0.1f);
  EXPECT_EQ(config.query_period, 8);
}

TEST(Ministral3Config, NeedsNoBeta) {
  for (const json& none : {json(nullptr), json(0)}) {
    json config = ministral3_config();
    config["rope_parameters"]["llama_4_scaling_beta"] = none;
    EXPECT_EQ(hf_config(config).query_beta, 0.0f);
  }
}

TEST(Ministral3Config, ABetaNeedsThePositionsItCountsBy) {
  json config = ministral3_config();
  config["rope_parameters"].erase("original_max_position_embeddings");
  EXPECT_TRUE(mentions(error_of([&] { hf_config(config); }),
                       "key 'rope_parameters.original_max_position_embeddings' is missing"));
}

TEST(Ministral3Config, TheMagnitudeOfYarnIsAQuotientWhereBothScalesAreGiven) {
  json config = ministral3_config();
  EXPECT_EQ(hf_config(config).rope_magnitude, 1.0f);  // they cancel
  config["rope_parameters"]["mscale_all_dim"] = 0.0;
  const float usual = hf_config(config).rope_magnitude;
  EXPECT_NEAR(usual, 1.2772589f, 1e-6f);  // 1 + 0.1 ln 16
  config["rope_parameters"]["mscale_all_dim"] = 0.5;
  EXPECT_NEAR(hf_config(config).rope_magnitude, usual / 1.1386294f, 1e-6f);
}

TEST(Ministral3Config, KeysWhoseDefaultsAreOneModelsMustBeThere) {
  for (const char* key : {"head_dim", "rope_parameters", "num_key_value_heads"})
    EXPECT_TRUE(mentions(config_error_without(ministral3_config(), key),
                         std::string("key '") + key + "' is missing"));
}

TEST(Ministral3Config, AWindowIsRefused) {
  EXPECT_TRUE(mentions(config_error_with(ministral3_config(), {{"sliding_window", 16}}),
                       "key 'sliding_window'"));
}

}  // namespace
}  // namespace canopy::testing
