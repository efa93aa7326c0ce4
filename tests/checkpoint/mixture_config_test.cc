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

/// The error of a directory whose config.json is changed.
std::string error_of_directory(const std::string& name, const json& changes) {
  const TempDir dir;
  json config = config_of(name);
  config.update(changes);
  dir.write("config.json", config.dump());
  std::filesystem::copy(test_data() / "model" / name / "model.safetensors", dir.path());
  return error_of([&] { Checkpoint::open(dir.path()); });
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
  EXPECT_EQ(qwen2.experts, (ExpertsConfig{.count = 6,
                                          .active = 2,
                                          .hidden_dim = 24,
                                          .normalised = false,
                                          .shared_dim = 40,
                                          .shared_switch = true}));
  EXPECT_TRUE(qwen2.layer(1).experts && qwen2.layer(1).qkv_bias && qwen2.layer(2).qkv_bias);
  EXPECT_FALSE(qwen2.layer(2).experts);
  json config = config_of("qwen2_moe");
  config["qkv_bias"] = false;
  EXPECT_FALSE(hf_config(config).any_layer(&LayerConfig::qkv_bias));
}

TEST(MixtureConfig, SaysHowExpertsAreChosenAndWhatIsRotated) {
  const ModelConfig glm = hf_config(config_of("glm4_moe"));
  EXPECT_TRUE(glm.experts == (ExpertsConfig{.count = 7,
                                            .active = 3,
                                            .hidden_dim = 32,
                                            .score = RouterScore::kSigmoid,
                                            .choice_bias = true,
                                            .scale = 2.5f,
                                            .shared_dim = 32}));
  EXPECT_FALSE(glm.layer(0).experts);
  EXPECT_TRUE(glm.layer(1).experts && glm.layer(2).experts);
  EXPECT_TRUE(glm.layer(0).qkv_bias && glm.layer(1).qk_norm);
  EXPECT_EQ(glm.rope_inverse_frequency.size(), 8u);  // half of the 16 pairs
  const ModelConfig minimax = hf_config(config_of("minimax_m2"));
  EXPECT_TRUE(minimax.experts == (ExpertsConfig{.count = 6,
                                                .active = 2,
                                                .hidden_dim = 40,
                                                .score = RouterScore::kSigmoid,
                                                .choice_bias = true}));
  EXPECT_TRUE(minimax.layer(0).qk_norm && minimax.layer(0).whole_qk_norm);
  EXPECT_EQ(minimax.rope_inverse_frequency.size(), 8u);  // of 12 pairs
  const ModelConfig dots = hf_config(config_of("dots1"));
  EXPECT_TRUE(dots.experts == (ExpertsConfig{.count = 7,
                                             .active = 3,
                                             .hidden_dim = 24,
                                             .normalised = false,
                                             .score = RouterScore::kSigmoid,
                                             .choice_bias = true,
                                             .scale = 1.5f,
                                             .shared_dim = 48}));
  EXPECT_FALSE(dots.layer(0).experts);
  EXPECT_TRUE(dots.layer(0).qk_norm && dots.layer(1).experts);
  json whole = config_of("minimax_m2");
  whole.erase("rotary_dim");
  EXPECT_EQ(hf_config(whole).rope_inverse_frequency.size(), 12u);
  json config = config_of("glm4_moe");
  for (const char* key : {"partial_rotary_factor", "attention_bias", "use_qk_norm", "n_group",
                          "norm_topk_prob", "routed_scaling_factor", "first_k_dense_replace"})
    config.erase(key);
  const ModelConfig plain = hf_config(config);
  EXPECT_EQ(plain.rope_inverse_frequency, glm.rope_inverse_frequency);
  EXPECT_FALSE(plain.layer(1).qkv_bias || plain.layer(1).qk_norm || plain.layer(0).experts);
  EXPECT_EQ(plain.experts.scale, 1);
  EXPECT_TRUE(plain.experts.normalised);
  config["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  config["first_k_dense_replace"] = 0;
  EXPECT_EQ(hf_config(config).rope_inverse_frequency.size(), 4u);
  EXPECT_TRUE(hf_config(config).layer(0).experts);
}

TEST(MixtureConfig, LeavesOutLayersThatGuessFurtherTokens) {
  for (const char* const model : {"glm4_moe", "glm4_moe.gguf"}) {
    const Checkpoint checkpoint = Checkpoint::open(test_data() / "model" / model);
    ASSERT_EQ(checkpoint.config().notes.size(), 1u);
    EXPECT_TRUE(mentions(checkpoint.config().notes.front(), "guess further tokens, are left out"));
    for (const TensorEntry& tensor : checkpoint.tensors())
      EXPECT_FALSE(tensor.name.starts_with("model.layers." +
                                           std::to_string(checkpoint.config().layers) + "."));
  }
  const std::string error = error_of_directory("glm4_moe", {{"num_nextn_predict_layers", 0}});
  EXPECT_TRUE(mentions(error, "'model.layers.3.")) << error;
}

TEST(MixtureConfig, FindsNoTensorsForALayerThatIsTakenForDense) {
  for (const int leading : {0, 2}) {
    const std::string error = error_of_directory("glm4_moe", {{"first_k_dense_replace", leading}});
    EXPECT_TRUE(mentions(error, "is missing")) << error;
  }
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
  refused("glm4_moe", {{"n_group", 2}}, "experts in groups (key 'n_group': 2)");
  refused("glm4_moe", {{"topk_group", 4}}, "experts in groups (key 'topk_group': 4)");
  refused("glm4_moe", {{"first_k_dense_replace", 3}}, "leaves no layer with experts");
  refused("glm4_moe", {{"first_k_dense_replace", -1}}, "first_k_dense_replace");
  refused("glm4_moe", {{"n_shared_experts", 0}}, "n_shared_experts");
  refused("glm4_moe", {{"n_shared_experts", 1 << 14}, {"moe_intermediate_size", 1 << 14}},
          "'n_shared_experts' makes 268435456 dimensions");
  for (const json& share : {json(0), json(-0.5), json(1.5), json("half"), json(0.1)})
    refused("glm4_moe", {{"partial_rotary_factor", share}}, "partial_rotary_factor");
  refused("glm4_moe", {{"rotary_dim", 20}}, "'rotary_dim' (20)");
  refused("glm4_moe", {{"rotary_dim", 64}}, "rotary_dim");
  refused("qwen2_moe", {{"partial_rotary_factor", 0.5}}, "a partial rotary embedding");
  for (const json& scale : {json(0), json(-1), json(1e39), json("2")})
    refused("glm4_moe", {{"routed_scaling_factor", scale}}, "routed_scaling_factor");
  refused("glm4_moe", {{"num_nextn_predict_layers", -1}}, "num_nextn_predict_layers");
  refused("glm4_moe", {{"use_qk_norm", 1}}, "use_qk_norm");
  refused("glm4_moe", {{"attention_bias", 1}}, "attention_bias");
  refused("minimax_m2", {{"scoring_func", "softmax"}}, "'scoring_func': \"softmax\"");
  refused("minimax_m2", {{"use_routing_bias", false}}, "use_routing_bias");
  refused("minimax_m2", {{"use_qk_norm", false}}, "use_qk_norm");
  refused("minimax_m2", {{"qk_norm_type", "per_head"}}, "qk_norm_type");
  refused("minimax_m2", {{"shared_intermediate_size", 8}}, "shared_intermediate_size");
  refused("minimax_m2", {{"attn_type_list", {1, 0}}}, "attn_type_list");
  refused("minimax_m2", {{"rotary_dim", 26}}, "rotary_dim");
  refused("minimax_m2", {{"rotary_dim", 15}}, "rotary_dim");
  refused("minimax_m2", {{"head_dim", nullptr}}, "head_dim");
  refused("dots1", {{"sliding_window", 64}}, "sliding_window");
  refused("dots1", {{"n_group", 2}}, "n_group");
  refused("dots1", {{"attention_bias", true}}, "attention_bias");
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
  EXPECT_EQ(model.config().experts, (ExpertsConfig{.count = 6,
                                                   .active = 2,
                                                   .hidden_dim = 32,
                                                   .normalised = false,
                                                   .shared_dim = 64,
                                                   .shared_switch = true}));
  const TensorEntry* const score = model.find("model.layers.1.mlp.shared_expert_gate.weight");
  ASSERT_TRUE(score);
  EXPECT_EQ(score->shape, (std::vector<std::int64_t>{1, 64}));
}

/// The error of a GGUF file of which a key with a small number has another.
std::string error_of_number(const std::string& model, const std::string& key, char value) {
  const TempDir dir;
  std::ifstream in(test_data() / "model" / model, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = bytes.find(key);
  if (at == bytes.npos) return "no such key";
  bytes[at + key.size() + 4] = value;  // after the type
  dir.write("model.gguf", bytes);
  return error_of([&] { Checkpoint::open(dir / "model.gguf"); });
}

TEST(MixtureConfig, RefusesStackedExpertsThatAreNotAsManyAsTheFileSays) {
  const std::string error = error_of_number("mixtral.gguf", "llama.expert_count", 6);
  EXPECT_TRUE(mentions(error, "'blk.0.ffn_")) << error;
  EXPECT_TRUE(mentions(error, "of 6 experts")) << error;
}

TEST(MixtureConfig, RefusesWhatMetadataSaysOtherwise) {
  const auto refused = [](const std::string& key, char value, const char* part) {
    const std::string error = error_of_number("glm4_moe.gguf", "glm4moe." + key, value);
    EXPECT_TRUE(mentions(error, part)) << error;
  };
  refused("expert_gating_func", 1, "is 1, not 2 (sigmoid)");
  refused("leading_dense_block_count", 2, "leading_dense_block_count' is 2, outside 0 to 1");
  refused("nextn_predict_layers", 3, "nextn_predict_layers' is 3, outside 0 to 2");
  refused("nextn_predict_layers", 0, "is missing");
  refused("rope.dimension_count", 15, "15 of 32 dimensions");
  refused("rope.dimension_count", 34, "34 of 32 dimensions");
  refused("expert_shared_count", 3, "shared_experts");
  EXPECT_TRUE(mentions(error_of_number("qwen3_moe.gguf", "qwen3moe.expert_count", 8), "8 experts"));
}

TEST(MixtureConfig, GranitesExpertsAreSlicesOfTwoTensors) {
  const Checkpoint model = Checkpoint::open(test_data() / "model" / "granitemoe");
  EXPECT_EQ(model.config().experts, (ExpertsConfig{5, 2, 40, true}));
  EXPECT_FLOAT_EQ(model.config().factors.branch, 0.7f);
  const auto find = [&](int expert, const char* matrix) {
    return model.find("model.layers.1.mlp.experts." + std::to_string(expert) + "." + matrix +
                      "_proj.weight");
  };
  const TensorEntry *const gate = find(3, "gate"), *const up = find(3, "up");
  ASSERT_TRUE(gate && up && find(4, "down"));
  EXPECT_EQ(gate->shape, (std::vector<std::int64_t>{40, 32}));
  EXPECT_EQ(up->offset, gate->offset + 40 * 32 * 2);
  EXPECT_EQ(gate->offset, find(2, "up")->offset + 40 * 32 * 2);
  EXPECT_EQ(find(4, "down")->offset, find(3, "down")->offset + 32 * 40 * 2);
  const std::string error = error_of_directory("granitemoe", {{"num_local_experts", 4}});
  EXPECT_TRUE(mentions(error, "input_linear.weight' has shape [5, 80, 32]")) << error;
}

TEST(MixtureConfig, ErnieSaysWhichLayersHaveExperts) {
  const ModelConfig model = hf_config(config_of("ernie4_5_moe"));
  EXPECT_EQ(model.experts,
            (ExpertsConfig{
                .count = 7, .active = 3, .hidden_dim = 24, .choice_bias = true, .shared_dim = 24}));
  for (int layer = 0; layer < 4; ++layer)
    EXPECT_EQ(model.layer(layer).experts, layer == 1 || layer == 2) << layer;
  json changed = config_of("ernie4_5_moe");
  changed.update({{"moe_layer_end_index", -1}, {"moe_layer_interval", 2}});
  changed["moe_num_shared_experts"] = 0;
  const ModelConfig others = hf_config(changed);
  for (int layer = 0; layer < 4; ++layer)
    EXPECT_EQ(others.layer(layer).experts, layer % 2 == 1) << layer;
  EXPECT_EQ(others.experts.shared_dim, 0);
  EXPECT_TRUE(mentions(error_with("ernie4_5_moe", {{"use_bias", true}}), "'use_bias'"));
  EXPECT_TRUE(mentions(error_with("ernie4_5_moe", {{"moe_layer_start_index", 4}}), "no layer"));
  const Checkpoint whole = Checkpoint::open(test_data() / "model" / "ernie4_5_moe");
  EXPECT_FALSE(whole.find("model.mtp_emb_norm.0.weight"));  // of a layer that is left out
}

}  // namespace
}  // namespace canopy::testing
