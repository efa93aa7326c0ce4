// Dense families that differ from Llama in norms, windows, factors or what is rotated: what their
// files mean, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/rope_scaling.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/config_errors.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

const std::filesystem::path kModels = test_data() / "model";

json config_of(const std::string& name) {
  return json::parse(std::ifstream(kModels / name / "config.json"));
}
ModelConfig config_with(const std::string& name, const json& changes) {
  json config = config_of(name);
  config.update(changes);
  return hf_config(config);
}
void expect_refused(const std::string& name, const json& changes, const char* part) {
  const std::string error = config_error_with(config_of(name), changes);
  EXPECT_TRUE(mentions(error, part)) << error;
}
/// The windows of the layers.
std::vector<int> windows(const ModelConfig& model) {
  std::vector<int> all;
  for (int layer = 0; layer < model.layers; ++layer) all.push_back(model.layer(layer).window);
  return all;
}
using Windows = std::vector<int>;

TEST(DenseConfig, Phi3HasItsMatricesInOneAndAPartOfItsHeadsRotated) {
  const Checkpoint model = Checkpoint::open(kModels / "phi3");
  EXPECT_EQ(windows(model.config()), (Windows{9, 9}));
  EXPECT_EQ(model.config().rope_inverse_frequency.size(), 6u);  // of 8 pairs
  const TensorEntry *const q = model.find("model.layers.1.self_attn.q_proj.weight"),
                           *const v = model.find("model.layers.1.self_attn.v_proj.weight");
  ASSERT_TRUE(q && v);
  EXPECT_EQ(q->shape, (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(v->shape, (std::vector<std::int64_t>{32, 64}));
  EXPECT_EQ(v->offset, q->offset + (64 + 32) * 64 * 2);
  EXPECT_EQ(config_with("phi3", {{"sliding_window", nullptr}}).layer(0).window, 0);
  expect_refused("phi3", {{"attention_bias", true}}, "biases in the attention output");
}

TEST(DenseConfig, OfLongropeShortAndLongTextsHaveFrequenciesOfTheirOwn) {
  const ModelConfig model = config_with("phi3_longrope", json::object());
  EXPECT_EQ(model.max_positions, 256);
  EXPECT_EQ(model.rope_original, 52);
  EXPECT_EQ(model.text_length(52), TextLength::kShort);
  EXPECT_EQ(model.text_length(53), TextLength::kLong);
  EXPECT_FLOAT_EQ(model.rope_magnitude, std::sqrt(1 + std::log(256.0f / 52.0f) / std::log(52.0f)));
  ASSERT_EQ(model.rope_long_frequency.size(), 6u);
  EXPECT_FLOAT_EQ(model.rope_inverse_frequency[5], std::pow(10000.0f, -5.0f / 6) / 1.5f);
  EXPECT_FLOAT_EQ(model.rope_long_frequency[5], std::pow(10000.0f, -5.0f / 6) / 8);
  EXPECT_TRUE(model.notes.empty());
  for (const std::string which : {"short", "long"}) {
    json rope = config_of("phi3_longrope")["rope_scaling"];
    rope[which + "_factor"] = {1, 2};
    expect_refused("phi3_longrope", {{"rope_scaling", rope}},
                   ("2 " + which + " factors for 6 pairs").c_str());
    rope[which + "_factor"] = {1, 2, 3, 4, 5, 0};
    expect_refused("phi3_longrope", {{"rope_scaling", rope}},
                   ("'rope_scaling." + which + "_factor'").c_str());
    expect_refused("mistral_window", {{"rope_scaling", rope}}, "'longrope'");
  }
}

TEST(DenseConfig, Gemma2HasBoundsAndWindowsInEverySecondLayer) {
  const Checkpoint file = Checkpoint::open(kModels / "gemma2");
  const ModelConfig& model = file.config();
  EXPECT_EQ(windows(model), (Windows{8, 0, 8}));
  EXPECT_EQ(model.factors.logit_cap, 3);
  EXPECT_EQ(model.factors.score_cap, 4);
  EXPECT_FLOAT_EQ(model.factors.score, 1 / std::sqrt(30.0f));
  EXPECT_EQ(model.factors.embedding, 6.9375f);  // the root of 48 in BF16
  EXPECT_TRUE(model.tied_head);
  for (const TensorEntry& tensor : file.tensors())
    EXPECT_EQ(tensor.plus, mentions(tensor.name, "norm") ? 1.0f : 0.0f) << tensor.name;
  json by_default = config_of("gemma2");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window",
                          "query_pre_attn_scalar", "tie_word_embeddings"})
    by_default.erase(key);
  by_default["max_position_embeddings"] = 8192;
  const ModelConfig usual = hf_config(by_default);
  EXPECT_EQ(usual.factors.logit_cap, 30);
  EXPECT_EQ(usual.factors.score_cap, 50);
  EXPECT_EQ(usual.factors.score, 0.0625f);
  EXPECT_EQ(usual.layer(0).window, 4096);
  EXPECT_TRUE(usual.tied_head);
  const json none{{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}};
  EXPECT_EQ(config_with("gemma2", none).factors.logit_cap, 0);
  EXPECT_EQ(config_with("gemma2", none).factors.score_cap, 0);
  expect_refused("gemma2", {{"attn_logit_softcapping", -1}}, "'attn_logit_softcapping'");
  expect_refused("gemma2", {{"hidden_activation", "gelu"}}, "activation 'gelu'");
  expect_refused("gemma2", {{"use_bidirectional_attention", true}}, "both directions");
}

TEST(DenseConfig, Gemma3HasFrequenciesByKindOfLayer) {
  const ModelConfig model = config_with("gemma3", json::object());
  EXPECT_EQ(windows(model), (Windows{8, 8, 8, 8, 8, 0, 8}));
  ASSERT_EQ(model.rope_of_kind.size(), 2u);
  EXPECT_FLOAT_EQ(model.rope_of_kind[0][1], std::pow(100.0f, -0.1f));
  EXPECT_FLOAT_EQ(model.rope_of_kind[1][0], 0.125f);
  EXPECT_EQ(model.rope_of_kind[1], model.rope_inverse_frequency);
  // As transformers 5 writes it.
  json newer = config_of("gemma3");
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq"}) newer.erase(key);
  newer["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 100.0}}}};
  EXPECT_EQ(hf_config(newer).rope_of_kind, model.rope_of_kind);
  newer["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_TRUE(mentions(error_of([&] { hf_config(newer); }), "keep one"));
  EXPECT_EQ(windows(config_with("gemma3", {{"sliding_window_pattern", 3}})),
            (Windows{8, 8, 0, 8, 8, 0, 8}));
  expect_refused("gemma3", {{"attn_logit_softcapping", 50.0}}, "soft-capped scores");
}

TEST(DenseConfig, Gemma3InsideAModelThatSeesMayLeaveOutItsSizes) {
  const Checkpoint model = Checkpoint::open(kModels / "gemma3_eyes");
  EXPECT_EQ(model.config().architecture, "gemma3_text");
  EXPECT_EQ(model.find("vision_tower"), nullptr);
  bool left_out = false;
  for (const std::string& note : model.config().notes)
    left_out = left_out || (mentions(note, "vision_tower") && mentions(note, "multi_modal"));
  EXPECT_TRUE(left_out);
  json config = config_of("gemma3_eyes");
  json& text = config["text_config"];
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                          "max_position_embeddings", "query_pre_attn_scalar", "rms_norm_eps"})
    text.erase(key);
  const ModelConfig whole = shape_from_config(config.dump());
  EXPECT_EQ(whole.heads, 8);
  EXPECT_EQ(whole.kv_heads, 4);
  EXPECT_EQ(whole.head_dim, 256);
  EXPECT_EQ(whole.vocab, 262208);
  EXPECT_EQ(whole.factors.score, 0.0625f);
}

TEST(DenseConfig, Gemma4HasLayersOfOtherHeadsThatTakeKeysForValues) {
  const Checkpoint model = Checkpoint::open(kModels / "gemma4"),
                   file = Checkpoint::open(kModels / "gemma4.gguf");
  const ModelConfig& config = model.config();
  EXPECT_EQ(windows(config), (Windows{8, 8, 8, 8, 8, 0, 0}));
  EXPECT_EQ(config.sizes(0), (LayerSizes{4, 2, 12, 40, 0}));
  EXPECT_EQ(config.sizes(6), (LayerSizes{4, 1, 20, 40, 0}));
  EXPECT_EQ(file.config().sizes(4), (LayerSizes{2, 2, 32, 32, 0}));
  EXPECT_EQ(file.config().sizes(5), (LayerSizes{2, 1, 64, 32, 0}));
  for (const Checkpoint* one : {&model, &file}) {
    EXPECT_TRUE(one->find("model.layers.4.self_attn.v_proj.weight"));
    EXPECT_FALSE(one->find("model.layers.5.self_attn.v_proj.weight"));
    EXPECT_EQ(one->find("model.layers.5.layer_scalar")->shape, (std::vector<std::int64_t>{1}));
    EXPECT_EQ(one->config().factors.score, 1.0f);
    const std::vector<float>& full = one->config().rope_of_kind.at(1);
    EXPECT_EQ(std::count(full.begin(), full.end(), 0.0f), one == &model ? 8 : 24);
  }
  // Without keys for values, all have the same number of heads.
  EXPECT_EQ(config_with("gemma4", {{"attention_k_eq_v", false}}).sizes(6).kv_heads, 2);
  // The last layer sees all keys, whatever a file says.
  json types = config_of("gemma4").at("layer_types");
  types.back() = "sliding_attention";
  EXPECT_EQ(windows(config_with("gemma4", {{"layer_types", types}})), windows(config));
}

TEST(DenseConfig, Gemma4AsTransformersSavesItSaysItsHeadsLayerByLayer) {
  json saved = config_of("gemma4");
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) saved.erase(key);
  const json own{{"head_dim", 20}, {"num_key_value_heads", 1}};
  saved["per_layer_config"] = {{"5", own}, {"6", own}};
  EXPECT_TRUE(hf_config(saved).layer_kinds == config_with("gemma4", json::object()).layer_kinds);
  saved["per_layer_config"] = {{"5", own}};
  EXPECT_TRUE(mentions(error_of([&] { hf_config(saved); }), "'per_layer_config.6' is missing"));
  saved["per_layer_config"] = {{"4", own}, {"5", own}, {"6", own}};
  EXPECT_TRUE(mentions(error_of([&] { hf_config(saved); }), "'per_layer_config.4' is"));
  saved["per_layer_config"] = {{"5", own}, {"6", {{"head_dim", 24}}}};
  EXPECT_TRUE(mentions(error_of([&] { hf_config(saved); }), "'per_layer_config.6' is"));
}

TEST(DenseConfig, VariantsOfGemma4AreRefusedByName) {
  expect_refused("gemma4", {{"hidden_size_per_layer_input", 256}}, "embeddings of each layer");
  json usual = config_of("gemma4");
  usual.erase("hidden_size_per_layer_input");
  EXPECT_TRUE(mentions(error_of([&] { hf_config(usual); }), "embeddings of each layer"));
  expect_refused("gemma4", {{"num_kv_shared_layers", 2}}, "layers that share keys and values");
  expect_refused("gemma4", {{"enable_moe_block", true}}, "a mixture of experts");
  expect_refused("gemma4", {{"use_bidirectional_attention", "all"}}, "in both directions");
  EXPECT_EQ(config_with("gemma4", {{"use_bidirectional_attention", "vision"}}).layers, 7);
  expect_refused("gemma4", {{"num_global_key_value_heads", 3}}, "is not a multiple of the 3 heads");
}

TEST(DenseConfig, OlmoNormalisesWhatItsPartsGive) {
  for (const char* name : {"olmo2", "olmo3"}) {
    const Checkpoint model = Checkpoint::open(kModels / name);
    EXPECT_FALSE(model.config().form.norm_inputs);
    EXPECT_TRUE(model.find("model.layers.0.attention_result_norm.weight"));
    EXPECT_TRUE(model.find("model.layers.0.mlp_result_norm.weight"));
    EXPECT_FALSE(model.find("model.layers.0.post_attention_layernorm.weight"));
  }
  const ModelConfig model = config_with("olmo3", json::object());
  EXPECT_EQ(windows(model), (Windows{8, 8, 8, 0, 8}));
  EXPECT_EQ(model.magnitude(0), 1.0f);  // yarn is not of layers with windows
  EXPECT_FLOAT_EQ(model.magnitude(3), 1.2079442f);
  // Windows in the file say which of two families with one architecture in GGUF it is.
  EXPECT_EQ(Checkpoint::open(kModels / "olmo2.gguf").config().architecture, "olmo2");
  EXPECT_EQ(Checkpoint::open(kModels / "olmo3.gguf").config().architecture, "olmo3");
}

TEST(DenseConfig, LayersOfExaoneCohereAndSmolLm3MayBeUnrotated) {
  for (const char* name : {"exaone4", "cohere2", "smollm3"}) {
    const ModelConfig model = config_with(name, json::object());
    for (int layer = 0; layer < model.layers; ++layer)
      EXPECT_EQ(model.layer(layer).rotated, layer % 4 != 3) << name << layer;
  }
  const ModelConfig full = config_with("exaone4_full", json::object());
  EXPECT_EQ(windows(full), (Windows{0, 0}));
  EXPECT_TRUE(full.layer(0).rotated && full.layer(1).rotated);
  json pattern = config_of("exaone4");
  pattern.erase("layer_types");
  pattern["sliding_window_pattern"] = "LG";
  EXPECT_EQ(hf_config(pattern).layer(1).window, 0);
  pattern["sliding_window_pattern"] = "LX";
  EXPECT_TRUE(mentions(error_of([&] { hf_config(pattern); }), "a text of L and G"));
  const json every_second{{"no_rope_layers", {1, 0, 1, 0, 1}}};
  EXPECT_FALSE(config_with("smollm3", every_second).layer(1).rotated);
  expect_refused("smollm3", {{"no_rope_layers", {1, 0}}}, "list of 5 layers");
  expect_refused("smollm3", {{"no_rope_layers", {1, 0, 2, 1, 1}}}, "has 2, not 0 or 1");
  expect_refused("smollm3", {{"use_sliding_window", true}, {"sliding_window", 8}}, "with windows");
}

TEST(DenseConfig, NeighboursAreRotatedInBothContainersOfGlmAndCohere) {
  for (const char* name : {"glm4", "glm4.gguf", "cohere", "cohere.gguf", "cohere2.gguf"})
    EXPECT_TRUE(Checkpoint::open(kModels / name).config().rope_adjacent_pairs) << name;
  for (const char* name : {"granite", "smollm3", "olmo2.gguf", "gemma3.gguf"})
    EXPECT_FALSE(Checkpoint::open(kModels / name).config().rope_adjacent_pairs) << name;
  expect_refused("cohere2", {{"use_qk_norm", true}}, "layer norms of queries and keys");
}

TEST(DenseConfig, ExaoneReadsEitherNameOfAKey) {
  const ModelConfig model = config_with("exaone", json::object());
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.norm_eps, 1e-4f);
  EXPECT_EQ(config_with("exaone", {{"num_hidden_layers", 2}}).layers, 2);
  expect_refused("exaone", {{"num_hidden_layers", 3}}, "keep the one that is meant");
  expect_refused("exaone", {{"activation_function", "relu"}}, "activation 'relu'");
}

TEST(DenseConfig, HunyuansDynamicScalingIsALargerBase) {
  const ModelConfig model = config_with("hunyuan", json::object());
  EXPECT_TRUE(model.form.norm_rotated);
  const double theta = 10000 * std::pow(50.0, 12.0 / 10);
  EXPECT_FLOAT_EQ(model.rope_inverse_frequency.at(1),
                  static_cast<float>(std::pow(theta, -1.0 / 6)));
  expect_refused("hunyuan", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
                 "of type 'dynamic' is not supported");
  expect_refused("hunyuan", {{"use_cla", true}}, "layers that share keys and values");
  expect_refused("hunyuan", {{"use_qk_norm", false}}, "without norms of queries and keys");
}

TEST(DenseConfig, ApertusHasNumbersOfItsActivationInEachLayer) {
  for (const char* name : {"apertus", "apertus.gguf"}) {
    const Checkpoint model = Checkpoint::open(kModels / name);
    ASSERT_EQ(model.config().xielu.size(), 2u);
    EXPECT_FALSE(model.config().xielu[0] == model.config().xielu[1]);
    EXPECT_LT(model.config().xielu[0].eps, 0.0f);
  }
  json config = config_of("apertus");
  for (const char* key : {"rope_scaling", "rope_theta"}) config.erase(key);
  RopeScaling usual;
  usual.type = RopeScaling::Type::kLlama3;
  usual.theta = 12e6;
  usual.factor = 8;
  usual.original_positions = 8192;
  EXPECT_EQ(hf_config(config).rope_inverse_frequency, rope_table(usual, 8).inverse_frequency);
  expect_refused("apertus", {{"hidden_act", "silu"}}, "activation 'silu'");
}

TEST(DenseConfig, CohereMayHaveANormForEachHead) {
  for (const char* name : {"cohere_qk", "cohere_qk.gguf"}) {
    const Checkpoint model = Checkpoint::open(kModels / name);
    EXPECT_TRUE(model.config().layer(0).qk_norm && model.config().layer(0).each_head_norm);
    EXPECT_EQ(model.find("model.layers.0.self_attn.q_norm.weight")->shape,
              (std::vector<std::int64_t>{model.config().heads, model.config().head_dim}));
  }
  EXPECT_FALSE(config_with("cohere", json::object()).layer(0).qk_norm);
  EXPECT_FALSE(Checkpoint::open(kModels / "cohere.gguf").config().layer(0).qk_norm);
}

TEST(DenseConfig, Granite4IsReadWithoutExpertsAndRecurrentLayers) {
  const ModelConfig model = config_with("granite4", json::object());
  EXPECT_EQ(model.hidden_dim, 72);
  EXPECT_TRUE(model.layer(0).rotated);
  EXPECT_FALSE(config_with("granite4", {{"position_embedding_type", nullptr}}).layer(0).rotated);
  expect_refused("granite4", {{"position_embedding_type", "alibi"}}, "positions of type 'alibi'");
  expect_refused("granite4", {{"layer_types", {"mamba", "attention"}}}, "layer of type \"mamba\"");
  expect_refused("granite4", {{"num_local_experts", 4}}, "a mixture of experts");
  json without = config_of("granite4");
  without.erase("layer_types");
  EXPECT_TRUE(mentions(error_of([&] { hf_config(without); }), "'layer_types' is missing"));
}

TEST(DenseConfig, FactorsOfTheTwoContainersAreTheSame) {
  for (const char* name : {"granite", "cohere", "cohere2", "gemma2"}) {
    const DecoderFactors
        of_directory = config_with(name, json::object()).factors,
        of_file = Checkpoint::open(kModels / (std::string(name) + ".gguf")).config().factors;
    EXPECT_FLOAT_EQ(of_file.branch, of_directory.branch) << name;
    EXPECT_FLOAT_EQ(of_file.logit, of_directory.logit) << name;
    EXPECT_EQ(of_file.logit_cap, of_directory.logit_cap) << name;
    EXPECT_EQ(of_file.score_cap, of_directory.score_cap) << name;
  }
  // In GGUF, Granite's divides and Cohere's multiplies.
  EXPECT_FLOAT_EQ(config_with("granite", json::object()).factors.logit, 1 / 0.6f);
  EXPECT_FLOAT_EQ(config_with("cohere", json::object()).factors.logit, 0.8f);
  expect_refused("granite", {{"residual_multiplier", 0}}, "'residual_multiplier'");
}

TEST(DenseConfig, ActivationsAndEpsilonsStandUnderTheFamiliesKeys) {
  EXPECT_EQ(config_with("nemotron", {{"norm_eps", 0.25}}).norm_eps, 0.25f);
  EXPECT_EQ(config_with("starcoder2", {{"norm_epsilon", 0.25}}).norm_eps, 0.25f);
  EXPECT_EQ(config_with("cohere", {{"layer_norm_eps", 0.25}}).norm_eps, 0.25f);
  expect_refused("arcee", {{"hidden_act", "silu"}}, "activation 'silu'");
  expect_refused("nemotron", {{"hidden_act", "silu"}}, "activation 'silu'");
  expect_refused("starcoder2", {{"use_bias", false}}, "without biases");
  expect_refused("granite", {{"hidden_act", "gelu"}}, "activation 'gelu'");
}

TEST(DenseConfig, WhatIsOwnToThemChangesAModelsFingerprint) {
  const Checkpoint model = Checkpoint::open(kModels / "gemma2");
  const auto changed = [&](auto&& change) {
    ModelConfig config = model.config();
    change(config);
    return fingerprint(Checkpoint(model.root(), model.files(), model.tensors(), std::move(config),
                                  model.metadata()));
  };
  const std::string own = changed([](ModelConfig&) {});
  EXPECT_NE(changed([](ModelConfig& c) { c.factors.score_cap = 5; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.factors.embedding = 7; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.form.norm_results = false; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.form.mlp = MlpKind::kSwiglu; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.layer_kinds[1].rotated = false; }), own);
}

}  // namespace
}  // namespace canopy::testing
