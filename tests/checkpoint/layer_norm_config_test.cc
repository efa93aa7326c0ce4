// OPT and BLOOM: what their config.json says, what is refused by name, and what their files call
// their tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/families/alibi.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/config_errors.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// These two are what the published models of 125 and 560 million parameters say.
json opt_config() {
  return json::parse(R"({"architectures": ["OPTForCausalLM"], "model_type": "opt",
    "activation_function": "relu", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
    "do_layer_norm_before": true, "ffn_dim": 3072, "hidden_size": 768, "_remove_final_layer_norm":
    false, "max_position_embeddings": 2048, "num_attention_heads": 12, "num_hidden_layers": 12,
    "vocab_size": 50272, "word_embed_proj_dim": 768, "torch_dtype": "float16"})");
}
json bloom_config() {
  return json::parse(R"({"architectures": ["BloomForCausalLM"], "model_type": "bloom",
    "apply_residual_connection_post_layernorm": false, "bos_token_id": 1, "eos_token_id": 2,
    "layer_norm_epsilon": 1e-05, "n_embed": 1024, "n_inner": null, "n_layer": 24,
    "num_attention_heads": 16, "offset_alibi": 100, "pretraining_tp": 1, "seq_length": 2048,
    "vocab_size": 250880})");
}

TEST(LayerNormConfig, ReadsThePublishedShapes) {
  const ModelConfig opt = hf_config(opt_config());
  EXPECT_EQ(opt.layers, 12);
  EXPECT_EQ(opt.dim, 768);
  EXPECT_EQ(opt.hidden_dim, 3072);
  EXPECT_EQ(opt.kv_heads, 12);
  EXPECT_EQ(opt.head_dim, 64);
  EXPECT_EQ(opt.max_positions, 2048);
  EXPECT_EQ(opt.norm_eps, 1e-5f);
  EXPECT_TRUE(opt.tied_head);
  EXPECT_EQ(opt.form.positions, PositionKind::kLearned);
  EXPECT_EQ(opt.form.position_offset, 2);
  EXPECT_TRUE(opt.rope_inverse_frequency.empty());

  json config_350m = opt_config();  // of which the others differ in size alone
  config_350m.update({{"do_layer_norm_before", false},
                      {"hidden_size", 1024},
                      {"ffn_dim", 4096},
                      {"num_attention_heads", 16},
                      {"num_hidden_layers", 24},
                      {"word_embed_proj_dim", 512}});
  const ModelConfig after = hf_config(config_350m);
  EXPECT_EQ(after.dim, 1024);
  EXPECT_EQ(after.embedding_width(), 512);
  EXPECT_TRUE(after.form.norm_after);
  EXPECT_FALSE(opt.form.norm_after);
  EXPECT_FALSE(opt.projects());

  for (const bool renamed : {false, true}) {
    json config = bloom_config();
    if (renamed) {
      config["hidden_size"] = config["n_embed"];
      config["n_head"] = config["num_attention_heads"];
      config["num_hidden_layers"] = config["n_layer"];
      for (const char* old : {"n_embed", "num_attention_heads", "n_layer"}) config.erase(old);
    }
    const ModelConfig bloom = hf_config(config);
    EXPECT_EQ(bloom.layers, 24);
    EXPECT_EQ(bloom.dim, 1024);
    EXPECT_EQ(bloom.hidden_dim, 4096);
    EXPECT_EQ(bloom.kv_heads, 16);
    EXPECT_EQ(bloom.head_dim, 64);
    EXPECT_EQ(bloom.max_positions, 2048);
    EXPECT_TRUE(bloom.tied_head);
    EXPECT_EQ(bloom.alibi_slopes, alibi_slopes(16));
  }
}

TEST(LayerNormConfig, RefusesByNameWhatTheDecoderCannotExpress) {
  for (const auto& [changes, error] : {
           std::pair<json, const char*>{{{"enable_bias", false}}, "enable_bias"},
           {{{"layer_norm_elementwise_affine", false}}, "layer_norm_elementwise_affine"},
           {{{"_remove_final_layer_norm", true}}, "_remove_final_layer_norm"},
           {{{"word_embed_proj_dim", 0}}, "key 'word_embed_proj_dim' is 0"},
           {{{"do_layer_norm_before", 0}}, "do_layer_norm_before"},
           {{{"activation_function", "gelu"}}, "the activation 'gelu' (key 'activation_function')"},
           {{{"ffn_dim", 0}}, "key 'ffn_dim' is 0"},
           {{{"ffn_dim", "3072"}}, "key 'ffn_dim' is not an integer"},
           {{{"num_attention_heads", 7}}, "is not a multiple of 'num_attention_heads' (7)"},
           {{{"architectures", {"OPTForSequenceClassification"}}}, "OPTForSequenceClassification"},
       })
    EXPECT_NE(config_error_with(opt_config(), changes).find(error), std::string::npos) << changes;
  for (const auto& [changes, error] : {
           std::pair<json, const char*>{{{"apply_residual_connection_post_layernorm", true}},
                                        "apply_residual_connection_post_layernorm"},
           {{{"slow_but_exact", true}}, "slow_but_exact"},
           {{{"n_embed", 1 << 24}}, "key 'n_embed' is 16777216"},
           {{{"layer_norm_epsilon", 0}}, "layer_norm_epsilon"},
           {{{"n_layer", 0}}, "key 'n_layer' is 0"},
           {{{"n_head", 8}}, "keys 'n_head' (8) and 'num_attention_heads' (16) differ"},
       })
    EXPECT_NE(config_error_with(bloom_config(), changes).find(error), std::string::npos) << changes;
  for (const char* key : {"ffn_dim", "hidden_size", "max_position_embeddings", "vocab_size"})
    EXPECT_NE(
        config_error_without(opt_config(), key).find(std::string("key '") + key + "' is missing"),
        std::string::npos);
  for (const char* key : {"n_embed", "n_layer", "num_attention_heads", "vocab_size"})
    EXPECT_NE(config_error_without(bloom_config(), key).find("is missing"), std::string::npos)
        << key;
}

TEST(LayerNormConfig, SlopesAreThoseOfThePaper) {
  const std::vector<float> eight = alibi_slopes(8);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(eight[static_cast<std::size_t>(i)], std::ldexp(1.0f, -(i + 1)));
  // Four of four, then the first and third of eight.
  EXPECT_EQ(alibi_slopes(6),
            (std::vector<float>{0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f}));
  EXPECT_EQ(alibi_slopes(1), std::vector<float>{0x1p-8f});
}

TEST(LayerNormConfig, TensorsHaveTwoNamesAndThatOfTheWholeModelIsWritten) {
  for (const std::string name : {"opt", "opt_after", "bloom"}) {
    const Family& family = *find_family(known_families(), name.substr(0, name.find('_')));
    const Checkpoint model = Checkpoint::open(test_data() / "model" / name);
    for (const TensorEntry& tensor : model.tensors()) {
      const std::string whole = stored_name(family, tensor.name);
      ASSERT_TRUE(whole.starts_with(family.bare_lacks)) << whole;
      EXPECT_EQ(canonical_name(family, whole), tensor.name);
      EXPECT_EQ(canonical_name(family, whole.substr(family.bare_lacks.size())), tensor.name);
    }
  }
}

TEST(LayerNormConfig, ATableOfPositionsOfAnotherLengthIsRefused) {
  const TempDir dir;
  fs::copy(test_data() / "model" / "opt", dir / "opt");
  json config = json::parse(std::ifstream(dir / "opt" / "config.json"));
  config["max_position_embeddings"] = 65;
  std::ofstream(dir / "opt" / "config.json") << config;
  const std::string error = error_of([&] { Checkpoint::open(dir / "opt"); });
  EXPECT_NE(error.find("'model.embed_positions.weight' has shape [66, 32], but the config asks for "
                       "[67, 32]"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace canopy
