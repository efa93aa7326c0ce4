// config.json -> ModelConfig: both generations of keys, and what is refused by name. Rotary tables
// are compared with transformers in tests/model/golden_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/config_errors.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

json tiny_config(const std::string& family = "llama") {
  TinyOptions options;
  options.family = family;
  return tiny_model(options).config;
}

std::string error_with(const json& changes, const std::string& family = "llama") {
  return config_error_with(tiny_config(family), changes);
}
std::string error_without(const char* key, const std::string& family = "llama") {
  return config_error_without(tiny_config(family), key);
}

TEST(HfConfig, ReadsTheShapeOfEveryFamily) {
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"}) {
    const ModelConfig c = hf_config(tiny_config(family));
    EXPECT_EQ(c.architecture, family);
    EXPECT_EQ(c.layers, 2);
    EXPECT_EQ(c.dim, 64);
    EXPECT_EQ(c.hidden_dim, 96);
    EXPECT_EQ(c.heads, 4);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 16);
    EXPECT_EQ(c.vocab, 96);
    EXPECT_EQ(c.max_positions, 128);
    EXPECT_EQ(c.norm_eps, 1e-5f);
    EXPECT_FALSE(c.tied_head);
    EXPECT_FALSE(c.rope_adjacent_pairs);
    EXPECT_EQ(c.layer(0).qkv_bias, family == "qwen2");
    EXPECT_EQ(c.layer(0).qk_norm, family == "qwen3");
    EXPECT_EQ(c.end_tokens, std::vector<TokenId>{2});
    EXPECT_EQ(c.inflated_from, "");
  }
}

TEST(HfConfig, BothGenerationsOfRotaryKeysMeanTheSame) {
  const json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  json v4 = tiny_config(), v4_type = tiny_config(), v5 = tiny_config();
  v4["rope_theta"] = v4_type["rope_theta"] = 500000.0;
  v4["rope_scaling"] = v4_type["rope_scaling"] = v5["rope_parameters"] = scaling;
  v4["rope_scaling"]["rope_type"] = v5["rope_parameters"]["rope_type"] = "llama3";
  v4_type["rope_scaling"]["type"] = "llama3";
  v5.erase("rope_theta");
  v5["rope_parameters"]["rope_theta"] = 500000.0;
  const auto frequencies = hf_config(v4).rope_inverse_frequency;
  EXPECT_EQ(hf_config(v5).rope_inverse_frequency, frequencies);
  EXPECT_EQ(hf_config(v4_type).rope_inverse_frequency, frequencies);
  EXPECT_NE(hf_config(tiny_config()).rope_inverse_frequency, frequencies);
}

TEST(HfConfig, RefusesTwoSetsOfRotaryParametersThatDiffer) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"rope_theta", 1e6},
                     {"original_max_position_embeddings", 32}};
  const json plain = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const auto error = [](const json& older, const json& newer) {
    return error_with(
        {{"rope_scaling", older}, {"rope_parameters", newer}, {"rope_theta", nullptr}});
  };
  // A vendor's yarn, added to what the fifth transformers saved; the other way round; and one
  // whose theta transformers would not look for in the newer key.
  json without_theta = yarn;
  without_theta.erase("rope_theta");
  for (const auto& [older, newer] :
       {std::pair(yarn, plain), {plain, yarn}, {without_theta, yarn}}) {
    EXPECT_TRUE(
        mentions(error(older, newer), "keys 'rope_scaling' (" + older.dump().substr(0, 120)));
    EXPECT_TRUE(
        mentions(error(older, newer), "and 'rope_parameters' (" + newer.dump().substr(0, 120)));
  }
  json other_words = yarn;  // the same, said otherwise
  other_words.erase("rope_type");
  other_words["type"] = "yarn";
  other_words["beta_fast"] = 32.0;
  EXPECT_EQ(error(other_words, yarn), "");
  json config = tiny_config(), both = tiny_config();
  config["rope_parameters"] = both["rope_parameters"] = yarn;
  for (const json& empty : {json::object(), json()}) {
    both["rope_scaling"] = empty;
    EXPECT_EQ(hf_config(both).rope_inverse_frequency, hf_config(config).rope_inverse_frequency);
  }
  both["rope_scaling"] = yarn;
  both["rope_parameters"] = json::object();
  EXPECT_EQ(hf_config(both).rope_inverse_frequency, hf_config(config).rope_inverse_frequency);
}

TEST(HfConfig, PairITurnsByThetaToMinusTwoIOverHeadDim) {
  const ModelConfig plain = hf_config(tiny_config());
  ASSERT_EQ(plain.rope_inverse_frequency.size(), 8u);
  // f32 rounds the exponent and the power: a few units in the last place.
  for (int i = 0; i < 8; ++i) {
    const double expected = std::pow(10000.0, -2.0 * i / 16);
    EXPECT_NEAR(plain.rope_inverse_frequency[static_cast<std::size_t>(i)], expected,
                4 * 0x1p-23 * expected);
  }
  json linear = tiny_config();
  linear["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  const ModelConfig slow = hf_config(linear);
  for (std::size_t i = 0; i < 8; ++i)  // division by a power of two is exact
    EXPECT_EQ(slow.rope_inverse_frequency[i], plain.rope_inverse_frequency[i] / 4);
}

TEST(HfConfig, NullAndAbsentKeysMeanTransformersDefaults) {
  json config = tiny_config();
  config["num_key_value_heads"] = nullptr;
  config["head_dim"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["quantization_config"] = nullptr;
  config["attention_bias"] = false;
  config.erase("hidden_act");
  config.erase("architectures");
  config.erase("rope_theta");
  config.erase("tie_word_embeddings");
  const ModelConfig c = hf_config(config);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_TRUE(c.end_tokens.empty());
  EXPECT_EQ(c.rope_inverse_frequency, hf_config(tiny_config()).rope_inverse_frequency);
}

TEST(HfConfig, NamesTheKeyThatIsMissing) {
  for (const char* key : {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "max_position_embeddings"})
    EXPECT_TRUE(mentions(error_without(key), std::string("'") + key + "' is missing"));
  EXPECT_TRUE(mentions(error_without("head_dim", "qwen3"), "'head_dim' is missing"));
  EXPECT_TRUE(mentions(error_without("num_key_value_heads", "qwen2"), "'num_key_value_heads'"));
}

TEST(HfConfig, RefusesValuesOfAnotherTypeOrOutsideTheirRange) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
    for (const json& value :
         {json(0), json(-1), json(1.5), json("8"), json(true), json::array({8}), json::object(),
          json(std::int64_t{1} << 31), json(~std::uint64_t{0}), json(INT64_MIN), json(1e300)})
      EXPECT_TRUE(mentions(error_with({{key, value}}), std::string("'") + key + "'")) << value;
  }
  for (const json& value : {json(0), json(-1e-5), json("x"), json(INFINITY), json(NAN)})
    EXPECT_TRUE(mentions(error_with({{"rms_norm_eps", value}}), "'rms_norm_eps'")) << value;
  for (const json& value : {json(0), json(-1), json("x"), json::array()})
    EXPECT_TRUE(mentions(error_with({{"rope_theta", value}}), "'rope_theta'")) << value;
  EXPECT_TRUE(mentions(error_with({{"tie_word_embeddings", 1}}), "'tie_word_embeddings'"));
  EXPECT_TRUE(mentions(error_with({{"model_type", 1}}), "'model_type'"));
  EXPECT_TRUE(mentions(error_with({{"architectures", "LlamaForCausalLM"}}), "'architectures'"));
  EXPECT_TRUE(mentions(error_with({{"rope_scaling", 2}}), "'rope_scaling'"));
  EXPECT_TRUE(mentions(error_with({{"num_key_value_heads", 3}}), "not a multiple"));
  EXPECT_TRUE(mentions(error_with({{"head_dim", nullptr}, {"hidden_size", 66}}), "'hidden_size'"));
  EXPECT_TRUE(mentions(error_with({{"head_dim", 15}}), "15"));
  for (const json& config : {json(), json(1), json("x"), json::array()})
    EXPECT_TRUE(mentions(error_of([&] { hf_config(config); }), "not a JSON object"));
}

TEST(HfConfig, RefusesMoreLayersHeadsOrDimensionsThanTheLimits) {
  for (const auto& [key, most] : {std::pair{"num_hidden_layers", 1 << 14},
                                  {"num_attention_heads", 1 << 16},
                                  {"num_key_value_heads", 1 << 16},
                                  {"hidden_size", 1 << 24},
                                  {"intermediate_size", 1 << 24}}) {
    const std::string outside = '\'' + std::string(key) + "' is ";
    EXPECT_TRUE(mentions(error_with({{key, most + 1}}), outside + std::to_string(most + 1)));
    EXPECT_EQ(error_with({{key, most}}).find(outside), std::string::npos) << key;
  }
}

TEST(HfConfig, RefusesEndTokensThatAreNoIntegers) {
  for (const json& ids :
       {json("2"), json(2.0), json::array({json::array({2})}), json::array({2, "x"})})
    EXPECT_TRUE(mentions(error_with({{"eos_token_id", ids}}), "'eos_token_id'")) << ids;
}

TEST(HfConfig, IgnoresEndTokensOutsideTheVocabularyWithANote) {
  json config = tiny_config();
  for (const json& id : {json(96), json(-1), json(~std::uint64_t{0})}) {
    config["eos_token_id"] = json::array({2, id});
    const ModelConfig model = hf_config(config);
    EXPECT_EQ(model.end_tokens, (std::vector<TokenId>{2}));
    ASSERT_EQ(model.notes.size(), 1u);
    EXPECT_TRUE(mentions(model.notes[0], "config.json: key 'eos_token_id' has " + id.dump()));
  }
  config["eos_token_id"] = {95, 0};
  EXPECT_EQ(hf_config(config).end_tokens, (std::vector<TokenId>{95, 0}));
}

TEST(HfConfig, RefusesByNameWhatTheDecoderCannotExpress) {
  struct Case {
    json changes;
    const char* error;
  };
  for (const Case& c : {
           Case{{{"num_experts", 8}}, "a mixture of experts (key 'num_experts')"},
           Case{{{"num_local_experts", 8}}, "a mixture of experts"},
           Case{{{"n_routed_experts", 64}}, "a mixture of experts"},
           Case{{{"moe_intermediate_size", 64}}, "a mixture of experts"},
           Case{{{"kv_lora_rank", 512}}, "latent attention"},
           Case{{{"q_lora_rank", 1536}}, "latent attention"},
           Case{{{"linear_num_key_heads", 16}}, "gated-delta"},
           Case{{{"linear_conv_kernel_dim", 4}}, "gated-delta"},
           Case{{{"vision_config", json::object()}}, "an image encoder"},
           Case{{{"audio_config", json::object()}}, "an audio encoder"},
           Case{{{"text_config", json::object()}}, "a text model inside another"},
           Case{{{"attention_bias", true}}, "biases in the attention output"},
           Case{{{"mlp_bias", true}}, "biases in the MLP"},
           Case{{{"hidden_act", "gelu"}}, "the activation 'gelu'"},
           Case{{{"model_type", "mamba"}}, "model type 'mamba'"},
           Case{{{"model_type", "granitemoeshared"}}, "model type 'granitemoeshared'"},
           Case{{{"model_type", "llama\n"}}, R"(model type 'llama\x0a')"},
           Case{{{"architectures", {"LlamaForSequenceClassification"}}},
                "\"LlamaForSequenceClassification\""},
           Case{{{"architectures", {"MambaForCausalLM"}}}, "\"MambaForCausalLM\""},
           Case{{{"layer_types", {"full_attention", "sliding_attention"}}}, "sliding_attention"},
           Case{{{"layer_types", {"linear_attention"}}}, "linear_attention"},
           Case{{{"layer_types", 3}}, "'layer_types' is not a list"},
           Case{{{"partial_rotary_factor", 0.5}}, "a partial rotary embedding"},
           Case{{{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, "a partial rotary"},
           Case{{{"rope_parameters", {{"full_attention", json::object()}}}}, "differ by layer"},
           Case{{{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}, "'dynamic'"},
           Case{{{"rope_scaling", {{"rope_type", "longrope"}}}}, "'longrope'"},
           Case{{{"rope_scaling", {{"type", "su"}}}}, "'su'"},
           Case{{{"rope_scaling", {{"rope_type", "linear"}}}}, "'rope_scaling.factor'"},
           Case{{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}}},
                "'rope_scaling.factor'"},
           Case{{{"rope_scaling",
                  {{"rope_type", "llama3"},
                   {"factor", 8},
                   {"low_freq_factor", 4},
                   {"high_freq_factor", 4}}}},
                "does not exceed 'low_freq_factor'"},
           Case{{{"canopy_inflated", 3}}, "'canopy_inflated'"},
           Case{{{"canopy_inflated", {{"widen", 3}}}}, "not a multiple of 'canopy_inflated.widen'"},
           Case{{{"canopy_inflated", {{"widen", 0}}}}, "'canopy_inflated.widen'"},
           Case{{{"canopy_inflated", {{"source", 7}}}}, "'canopy_inflated.source'"},
       })
    EXPECT_TRUE(mentions(error_with(c.changes), c.error)) << c.changes;
}

TEST(HfConfig, NamesTheSchemeOfQuantisedWeights) {
  struct Case {
    const char* key;
    json value;
    const char* error;
  };
  constexpr const char* kMethod = "quantization_config";
  for (const Case& c : {
           Case{kMethod, {{"quant_method", "fbgemm_fp8"}}, "by FP8 (FBGEMM) (key"},
           Case{kMethod,
                {{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}},
                "by compressed-tensors (\"marlin-24\") (key"},
           Case{kMethod,
                {{"format", "int-quantized"}, {"config_groups", json::object()}},
                "by compressed-tensors (\"int-quantized\") (key"},
           Case{kMethod,
                {{"quant_method", "bitsandbytes"},
                 {"load_in_8bit", true},
                 {"load_in_4bit", false},
                 {"bnb_4bit_quant_type", "fp4"}},
                "by bitsandbytes (int8) (key"},
           Case{kMethod, {{"load_in_8bit", true}}, "by bitsandbytes (int8) (key"},
           Case{kMethod,
                {{"quant_method", "modelopt"}, {"quant_algo", "W4A8"}},
                "by ModelOpt (\"W4A8\") (key"},
           Case{kMethod, {{"quant_method", "hqq"}}, "by 'hqq' (key"},
           Case{kMethod, {{"quant_method", 4}}, "by '4' (key"},
           Case{kMethod, {{"bits", 4}, {"group_size", 64}}, "by MLX (4 bits) (key"},
           Case{kMethod, json::object(), "by a scheme without a name (key"},
           Case{kMethod, true, "by 'true' (key"},
           Case{"quantization", {{"group_size", 64}, {"bits", 4}}, "by MLX (4 bits) (key"},
           Case{"compression_config",
                {{"format", "float-quantized"}, {"config_groups", json::object()}},
                "by compressed-tensors (\"float-quantized\") (key"},
           Case{"compression_config", json::object(), "by compressed-tensors (key"},
       })
    EXPECT_TRUE(
        mentions(error_with({{c.key, c.value}}),
                 c.error + (" '" + std::string(c.key)) +
                     "') is not supported: take the model in BF16 or F16, or as a GGUF file in Q"))
        << c.value;
  for (const auto& [method, type] : {std::pair("fbgemm_fp8", "Q8_0;"), {"new", "Q8_0 or Q4_K;"}})
    EXPECT_TRUE(mentions(error_with({{kMethod, {{"quant_method", method}}}}),
                         std::string("GGUF file in ") + type));
  for (const char* key : {kMethod, "quantization", "compression_config"})
    EXPECT_EQ(error_with({{key, nullptr}}), "");
}

TEST(HfConfig, AFamilySaysWhatItsAttentionBiasIsOf) {
  json config = tiny_config();
  config.update({{"model_type", "seed_oss"},
                 {"architectures", {"SeedOssForCausalLM"}},
                 {"head_dim", 16},
                 {"attention_bias", true},
                 {"num_key_value_heads", 2}});
  EXPECT_TRUE(hf_config(config).layer(0).qkv_bias);
  EXPECT_FALSE(hf_config(config).layer(0).other_biases);
  config["attention_bias"] = false;
  EXPECT_FALSE(hf_config(config).layer(0).qkv_bias);
  config["attention_out_bias"] = true;
  EXPECT_TRUE(mentions(error_of([&] { hf_config(config); }), "attention_out_bias"));
  EXPECT_TRUE(mentions(error_with({{"attention_bias", true}}), "biases in the attention output"));
}

TEST(HfConfig, RefusesOtherFamiliesByTheirNames) {
  // Their keys may mean something else: glm has no bias in its output.
  for (const char* family : {"glm", "bamba", "exaone_moe", "gemma3n_text", "phi", "olmo",
                             "apertus1p5_text", "nemotron-nas"})
    for (const json& key : {json{{"attention_bias", true}}, json{{"logit_scale", 0.0625}},
                            json{{"attn_logit_softcapping", 50.0}}, json{{"no_rope_layers", {0}}},
                            json{{"quantization_config", {{"quant_method", "fp8"}}}}}) {
      json changes = key;
      changes["model_type"] = family;
      EXPECT_EQ(error_with(changes).find("model type '" + std::string(family) +
                                         "' is not supported; Canopy runs " + family_names() +
                                         " decoders"),
                0u);
    }
  EXPECT_TRUE(mentions(error_with({{"model_type", "deepseek_v3"}, {"n_routed_experts", 256}}),
                       "model type 'deepseek_v3' has a mixture of experts"));
}

TEST(HfConfig, RefusesKeysThatChangeTheResultUnlessTheyAreNeutral) {
  struct Case {
    const char* key;
    std::vector<json> refused, neutral;
  };
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"})
    for (const Case& c : {
             Case{"is_causal", {false, 0, "no"}, {true, nullptr}},
             Case{"use_bidirectional_attention", {true, "all"}, {false, nullptr}},
             Case{"attn_logit_softcapping", {50.0, 30}, {nullptr, 0.0}},
             Case{"final_logit_softcapping", {30.0}, {nullptr, 0}},
             Case{"clip_qkv", {8.0}, {nullptr}},
             Case{"logit_scale", {0.0625, 0}, {1.0, 1, nullptr}},
             Case{"logits_scaling", {16}, {1.0}},
             Case{"embedding_multiplier", {12.0}, {1.0}},
             Case{"scale_emb", {12}, {1}},
             Case{"residual_multiplier", {0.22}, {1.0}},
             Case{"scale_depth", {1.4}, {nullptr}},
             Case{"attention_multiplier", {0.0078125, 1.0}, {0.25, nullptr}},
             Case{"query_pre_attn_scalar", {168, 256.0}, {16, 16.0, nullptr}},
             Case{"use_parallel_residual", {true}, {false}},
             Case{"parallel_attn", {true}, {false}},
             Case{"attention_chunk_size", {8192}, {nullptr}},
             Case{"attn_temperature_tuning", {true, 4}, {false}},
             Case{"no_rope_layers", {{1, 1, 1, 0}, {0}}, {{1, 1}, json::array()}},
             Case{"rope_interleave", {true}, {false}},
             Case{"rope_interleaved", {true}, {false}},
             Case{"rope_local_base_freq", {10000.0}, {nullptr}},
             Case{"rotary_pct", {0.25}, {1.0}},
         }) {
      for (const json& value : c.refused) {
        const std::string error = error_with({{c.key, value}}, family);
        EXPECT_TRUE(mentions(error, std::string("key '") + c.key + "'")) << value;
        EXPECT_TRUE(mentions(error, "is not supported"));
      }
      for (const json& value : c.neutral)
        EXPECT_EQ(error_with({{c.key, value}}, family), "") << c.key << ' ' << value;
    }
  const auto beta = [](double value) -> json {
    return {{"rope_parameters", {{"rope_type", "default"}, {"llama_4_scaling_beta", value}}}};
  };
  EXPECT_TRUE(mentions(error_with(beta(0.1), "mistral"), "'rope_parameters.llama_4_scaling_beta'"));
  EXPECT_EQ(error_with(beta(0), "mistral"), "");
}

TEST(HfConfig, TakesTheOtherNameOfItsActivation) {
  for (const std::string family : {"llama", "mistral", "qwen2", "qwen3"})
    for (const char* name : {"silu", "swish"})
      EXPECT_EQ(error_with({{"hidden_act", name}}, family), "");
}

TEST(HfConfig, ReadsSlidingWindowsWhereTheyAreInUse) {
  /// The windows of the layers.
  const auto windows = [](const json& changes, const std::string& family) {
    json config = tiny_config(family);
    config.update(changes);
    const ModelConfig model = hf_config(config);
    std::vector<int> all;
    for (int layer = 0; layer < model.layers; ++layer) all.push_back(model.layer(layer).window);
    return all;
  };
  using Windows = std::vector<int>;
  EXPECT_EQ(windows({{"sliding_window", 64}}, "mistral"), (Windows{64, 64}));
  for (const json& none : {json(128), json()})
    EXPECT_EQ(windows({{"sliding_window", none}}, "mistral"), (Windows{0, 0}));
  json by_default = tiny_config("mistral");
  by_default.erase("sliding_window");
  EXPECT_EQ(hf_config(by_default).layer(0).window, 0);  // 4096 by default, 128 positions
  by_default["max_position_embeddings"] = 32768;
  EXPECT_EQ(hf_config(by_default).layer(1).window, 4096);
  for (const std::string family : {"qwen2", "qwen3"}) {
    json used = {{"use_sliding_window", true}, {"sliding_window", 64}, {"max_window_layers", 1}};
    EXPECT_EQ(windows(used, family), (Windows{0, 64}));
    used["max_window_layers"] = 0;
    EXPECT_EQ(windows(used, family), (Windows{64, 64}));
    used["layer_types"] = {"sliding_attention", "full_attention"};
    EXPECT_EQ(windows(used, family), (Windows{64, 0}));
    used["use_sliding_window"] = false;
    EXPECT_TRUE(mentions(error_with(used, family), "'use_sliding_window'"));
    used["layer_types"] = {"full_attention"};
    EXPECT_TRUE(mentions(error_with(used, family), "list of 2 layers"));
  }
}

TEST(HfConfig, RefusesSlidingWindowsOnlyWhereTheyAreInUse) {
  constexpr const char* kWindow = "a sliding attention window";
  // The class of this family has none, but the key asks for one.
  EXPECT_TRUE(mentions(error_with({{"sliding_window", 64}}), kWindow));
  for (const json& window : {json(), json(128)})
    EXPECT_EQ(error_with({{"sliding_window", window}}), "");
  EXPECT_EQ(error_with({{"sliding_window", 64}, {"use_sliding_window", false}}), "");
  for (const std::string family : {"qwen2", "qwen3"}) {
    const json used = {
        {"use_sliding_window", true}, {"sliding_window", 64}, {"max_window_layers", 1}};
    json unused = used;
    unused["max_window_layers"] = 2;
    EXPECT_EQ(error_with(unused, family), "");
    EXPECT_EQ(error_with({{"use_sliding_window", false}, {"sliding_window", 64}}, family), "");
    EXPECT_EQ(error_with({{"sliding_window", 64}}, family), "");  // off unless said
    for (const json& window : {json(), json(128), json(4096)}) {
      unused = used;
      unused["sliding_window"] = window;
      EXPECT_EQ(error_with(unused, family), "") << window;
    }
    unused = used;
    unused["layer_types"] = {"full_attention", "full_attention"};
    EXPECT_EQ(error_with(unused, family), "");
    json by_default = used;
    by_default.erase("sliding_window");  // 4096
    EXPECT_EQ(error_with(by_default, family), "");
  }
}

TEST(HfConfig, CarriesTheLabelOfAnEnlargement) {
  json config = tiny_config();
  config["canopy_inflated"] = {{"from", "small"}};
  EXPECT_EQ(hf_config(config).inflated_from, "small");
  config["canopy_inflated"] = json::object();
  EXPECT_EQ(hf_config(config).inflated_from, "an unnamed model");
  EXPECT_EQ(hf_config(config).inflated_source, "");
  EXPECT_EQ(hf_config(config).widen, 1);
}

TEST(HfConfig, FlattensIntoMetadataWithDots) {
  const Metadata m = flatten_config(json::parse(R"({
      "a": {"b": {"c": "text"}, "flag": true}, "whole": -3, "real": 0.5, "huge": 18446744073709551615,
      "none": null, "empty": [], "mixed": [1, "x"], "ints": [1, -2], "reals": [1, 0.5],
      "wide": [4294967296], "unsigned": [18446744073709551615], "texts": ["x", "y"]})"));
  EXPECT_EQ(*m.find<std::string>("a.b.c"), "text");
  EXPECT_EQ(*m.find<bool>("a.flag"), true);
  EXPECT_EQ(*m.find<std::int64_t>("whole"), -3);
  EXPECT_EQ(*m.find<double>("real"), 0.5);
  EXPECT_EQ(*m.find<double>("huge"), 0x1p64);
  EXPECT_EQ(*m.find<std::vector<std::int32_t>>("ints"), (std::vector<std::int32_t>{1, -2}));
  EXPECT_EQ(*m.find<std::vector<float>>("reals"), (std::vector<float>{1, 0.5f}));
  EXPECT_EQ(*m.find<std::vector<float>>("unsigned"), (std::vector<float>{0x1p64f}));
  EXPECT_EQ(*m.find<std::vector<float>>("wide"), (std::vector<float>{0x1p32f}));
  EXPECT_EQ(*m.find<std::vector<std::string>>("texts"), (std::vector<std::string>{"x", "y"}));
  for (const char* key : {"none", "empty", "mixed", "a", "a.b"}) EXPECT_FALSE(m.contains(key));
}

}  // namespace
}  // namespace canopy::testing
