// The config of a GGUF file: what its metadata mean, and what is refused by name.
#include <gtest/gtest.h>

#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

/// The error of opening a tiny model with more metadata.
template <class Edit>
std::string error_of_model(Edit&& edit, const TinyModel& model = tiny_model()) {
  const TempDir dir;
  GgufWriter writer = gguf_writer(model);
  edit(writer);
  write_file(dir / "model.gguf", writer.bytes());
  return error_of([&] { Checkpoint::open(dir / "model.gguf"); });
}

TEST(GgufConfig, RefusesByNameWhatTheDecoderCannotExpress) {
  EXPECT_EQ(error_of_model([](auto&) {}), "");
  for (const char* key :
       {"llama.expert_group_count", "llama.expert_shared_count", "llama.attention.kv_lora_rank",
        "llama.attention.q_lora_rank", "llama.ssm.state_size"}) {
    EXPECT_TRUE(mentions(error_of_model([&](auto& w) { w.u32(key, 8); }), key));
    EXPECT_EQ(error_of_model([&](auto& w) { w.u32(key, 0); }), "");
  }
  for (const std::uint32_t window : {64u, 128u})
    EXPECT_EQ(error_of_model([&](auto& w) { w.u32("llama.attention.sliding_window", window); }),
              "");
  for (const char* key : {"llama.attention.scale", "llama.logit_scale", "llama.residual_scale",
                          "llama.embedding_scale"})
    EXPECT_TRUE(mentions(error_of_model([&](auto& w) { w.f32(key, 12); }), key));
  for (const char* type : {"longrope", "dynamic"})
    EXPECT_TRUE(
        mentions(error_of_model([&](auto& w) { w.text("llama.rope.scaling.type", type); }), type));
  EXPECT_TRUE(mentions(error_of_model([](auto& w) {
                         w.text("llama.rope.scaling.type", "yarn");
                         w.f32("llama.rope.scaling.factor", 4);
                         w.f32("llama.rope.scaling.yarn_ext_factor", 0);
                       }),
                       "yarn_ext_factor"));
}

TEST(GgufConfig, RefusesKeysThatChangeTheResultUnlessTheyAreNeutral) {
  for (const std::string family : {"llama", "qwen2", "qwen3"}) {
    TinyOptions options;
    options.family = family;
    const TinyModel model = tiny_model(options);
    const auto error = [&](const auto& edit) { return error_of_model(edit, model); };
    struct Real {
      const char* key;
      float refused, neutral;
    };
    for (const Real& real : {Real{".attn_logit_softcapping", 50, 0},
                             {".final_logit_softcapping", 30, 0},
                             {".router_logit_softcapping", 30, 0},
                             {".attention.max_alibi_bias", 8, 0},
                             {".attention.clamp_kqv", 8, 0},
                             {".attention.temperature_scale", 0.1f, 0},
                             {".attention.output_scale", 0.1f, 1},
                             {".attention.value_scale", 0.5f, 1},
                             {".attention.scale", 1, 0.25f},  // 1 / sqrt(16)
                             {".attention.scale", 1, 0},
                             {".logit_scale", 0.0625f, 1},
                             {".residual_scale", 0.22f, 1},
                             {".embedding_scale", 12, 1},
                             {".rope.scaling.alpha", 1000, 0},
                             {".rope.scaling.yarn_log_multiplier", 1, 0},
                             {".rope.freq_base_swa", 500000, 10000},
                             {".final_logit_softcapping", NAN, 0},
                             {".rope.freq_base_swa", NAN, 10000}}) {
      const std::string key = family + real.key;
      EXPECT_TRUE(mentions(error([&](auto& w) { w.f32(key, real.refused); }), "'" + key + "'"));
      EXPECT_EQ(error([&](auto& w) { w.f32(key, real.neutral); }), "");
    }
    struct Integer {
      const char* key;
      std::uint32_t refused, neutral;
    };
    for (const Integer& integer : {Integer{".attention.temperature_length", 8192, 0},
                                   {".attention.key_length_swa", 8, 16},
                                   {".attention.value_length_swa", 8, 16},
                                   {".rope.dimension_count_swa", 8, 16},
                                   {".attention.shared_kv_layers", 1, 0},
                                   {".attention.indexer.top_k", 64, 0},
                                   {".nextn_predict_layers", 1, 0},
                                   {".embedding_length_per_layer_input", 8, 0},
                                   {".shortconv.l_cache", 3, 0}}) {
      const std::string key = family + integer.key;
      EXPECT_TRUE(mentions(error([&](auto& w) { w.u32(key, integer.refused); }), "'" + key + "'"));
      EXPECT_EQ(error([&](auto& w) { w.u32(key, integer.neutral); }), "");
    }
    for (const auto& [name, neutral] :
         {std::pair(".attention.causal", 1), {".use_parallel_residual", 0}, {".swin_norm", 0}}) {
      const std::string key = family + name;
      for (const int value : {0, 1}) {
        const std::string said =
            error([&](auto& w) { w.boolean(key, static_cast<std::uint8_t>(value)); });
        if (value == neutral)
          EXPECT_EQ(said, "");
        else
          EXPECT_TRUE(mentions(said, "'" + key + "'"));
      }
      EXPECT_TRUE(mentions(error([&](auto& w) { w.text(key, "yes"); }), "neither a number"));
    }
    const std::string clamp = family + ".swiglu_clamp_exp";  // one for each layer
    for (const float last : {0.0f, 7.0f}) {
      const std::string said = error([&](auto& w) {
        w.template numbers<float>(clamp, 6, {0, last});
      });
      EXPECT_EQ(said.find("'" + clamp + "' is 7") != said.npos, last != 0) << said;
    }
  }
}

TEST(GgufConfig, RefusesMoreLayersHeadsOrDimensionsThanTheLimits) {
  for (const auto& [key, most] : {std::pair{"block_count", 1u << 14},
                                  {"attention.head_count", 1u << 16},
                                  {"attention.head_count_kv", 1u << 16},
                                  {"embedding_length", 1u << 24},
                                  {"feed_forward_length", 1u << 24}}) {
    const auto error = [key = std::string(key)](std::uint32_t value) {
      GgufHeader header;
      header.metadata.set("general.architecture", std::string("llama"));
      for (const auto& [name, usual] : {std::pair{"context_length", 128},
                                        {"block_count", 1},
                                        {"embedding_length", 64},
                                        {"feed_forward_length", 64},
                                        {"attention.head_count", 1},
                                        {"attention.head_count_kv", 1}})
        header.metadata.set("llama." + std::string(name), std::int64_t{usual});
      header.metadata.set("llama." + key, std::int64_t{value});
      return error_of([&] { gguf_config(header, {}); });
    };
    const std::string outside = std::string(key) + "' is ";
    EXPECT_TRUE(mentions(error(most + 1), outside + std::to_string(most + 1))) << key;
    EXPECT_EQ(error(most).find(outside), std::string::npos) << error(most);
  }
}

TEST(GgufConfig, RefusesOtherArchitecturesAndPartialRotaryByName) {
  for (const char* architecture : {"apertus", "mamba", "qwen2moe", "", "llama\n"}) {
    GgufWriter w;
    w.text("general.architecture", architecture);
    const TempDir dir;
    write_file(dir / "model.gguf", w.bytes());
    EXPECT_TRUE(mentions(error_of([&] { Checkpoint::open(dir / "model.gguf"); }),
                         std::string(architecture) == "llama\n" ? R"('llama\x0a')" : architecture));
  }
  GgufHeader header;
  EXPECT_TRUE(mentions(error_of([&] { gguf_config(header, {}); }), "'general.architecture'"));
  header.metadata.set("general.architecture", std::string("llama"));
  const auto set = [&](const char* key, std::int64_t value) {
    header.metadata.set(std::string("llama.") + key, value);
  };
  const auto error = [&](const std::vector<float>& factors = {}) {
    return error_of([&] { gguf_config(header, {factors, {}, {}}); });
  };
  for (const char* key : {"context_length", "block_count", "embedding_length",
                          "feed_forward_length", "attention.head_count"}) {
    EXPECT_TRUE(mentions(error(), std::string("'llama.") + key + "' is missing"));
    for (const std::int64_t outside : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      set(key, outside);
      EXPECT_TRUE(mentions(error(), std::to_string(outside) + ", outside 1 to"));
    }
    set(key, 4);
  }
  EXPECT_TRUE(mentions(error(), "layer_norm_rms_epsilon"));
  header.metadata.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
  set("rope.dimension_count", 2);
  set("embedding_length", 16);
  EXPECT_TRUE(mentions(error(), "a partial rotary embedding"));
  set("rope.dimension_count", 4);
  set("attention.value_length", 8);
  EXPECT_TRUE(mentions(error(), "differ"));
  set("attention.value_length", 4);
  set("attention.head_count_kv", 3);
  EXPECT_TRUE(mentions(error(), "is not a multiple of 'llama.attention.head_count_kv'"));
  header.metadata.set("llama.attention.head_count_kv", std::vector<std::int32_t>{4, 2, 4, 4});
  EXPECT_TRUE(mentions(error(), "has 4 and 2; layers that differ are not supported"));
  header.metadata.set("llama.attention.head_count_kv", std::vector<std::int32_t>{2, 2});
  EXPECT_TRUE(mentions(error(), "has 2 numbers for 4 layers"));
  header.metadata.set("llama.attention.head_count_kv", std::vector<std::int32_t>{0, 0, 0, 0});
  EXPECT_TRUE(mentions(error(), "is 0, outside 1 to"));
  set("attention.head_count_kv", 2);
  EXPECT_TRUE(mentions(error(), "'token_embd.weight' is missing"));
  header.tensors.push_back({"token_embd.weight", DType::kF32, {32, 16}, 0, 0, 2048});
  EXPECT_EQ(error(), "");
  EXPECT_TRUE(mentions(error({1}), "1 values for 2 pairs"));
  EXPECT_TRUE(mentions(error({1, 0}), "not positive"));
  EXPECT_TRUE(mentions(error({1, NAN}), "not positive"));
  EXPECT_TRUE(mentions(error({1, INFINITY}), "not positive"));
}

TEST(GgufConfig, TakesSizesThatAreGivenForEachLayerWhereTheyAreEqual) {
  const TempDir dir;
  write_file(dir / "model.gguf", gguf_writer(tiny_model()).bytes());
  GgufHeader header = read_gguf(dir / "model.gguf");
  const ModelConfig plain = gguf_config(header, {});
  for (const auto& [key, value] : {std::pair("feed_forward_length", plain.hidden_dim),
                                   std::pair("attention.head_count", plain.heads),
                                   std::pair("attention.head_count_kv", plain.kv_heads)})
    header.metadata.set(std::string("llama.") + key,
                        std::vector<std::int32_t>(static_cast<std::size_t>(plain.layers), value));
  const ModelConfig each = gguf_config(header, {});
  EXPECT_EQ(each.hidden_dim, plain.hidden_dim);
  EXPECT_EQ(each.heads, plain.heads);
  EXPECT_EQ(each.kv_heads, plain.kv_heads);
}

TEST(GgufConfig, IgnoresEndTokensBeyondTheVocabularyWithANote) {
  const TempDir dir;
  write_file(dir / "model.gguf", gguf_writer(tiny_model()).bytes());
  GgufHeader header = read_gguf(dir / "model.gguf");
  header.metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{5});
  header.metadata.set("tokenizer.ggml.eot_token_id", std::int64_t{4294967295});
  const ModelConfig config = gguf_config(header, {});
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{5}));
  ASSERT_EQ(config.notes.size(), 1u);
  EXPECT_TRUE(mentions(config.notes[0],
                       "'tokenizer.ggml.eot_token_id' is 4294967295, which is no "
                       "token of a vocabulary of 96, and is ignored"));
}

/// The config of a tiny file with these keys about rotary positions.
template <class Edit>
ModelConfig config_of_rope(Edit&& edit) {
  const TempDir dir;
  GgufWriter writer = gguf_writer(tiny_model());
  edit(writer);
  write_file(dir / "model.gguf", writer.bytes());
  return gguf_config(read_gguf(dir / "model.gguf"), {});
}

TEST(GgufConfig, TakesAFactorOfRotaryPositionsWithoutATypeForALinearOne) {
  const std::vector<float> plain = config_of_rope([](auto&) {}).rope_inverse_frequency;
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"})
    for (const bool typed : {false, true}) {
      const ModelConfig config = config_of_rope([&](GgufWriter& w) {
        w.f32(key, 4);
        if (typed) w.text("llama.rope.scaling.type", "linear");
      });
      ASSERT_EQ(config.rope_inverse_frequency.size(), plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_EQ(config.rope_inverse_frequency[i], plain[i] / 4) << key;
    }
  const auto none = config_of_rope([](GgufWriter& w) {
    w.f32("llama.rope.scaling.factor", 4);
    w.text("llama.rope.scaling.type", "none");
  });
  EXPECT_EQ(none.rope_inverse_frequency, plain);
}

TEST(GgufConfig, TakesYarnsAttnFactorForTheWholeMagnitudeAsADirectoryDoes) {
  TinyModel directory = tiny_model();
  nlohmann::json& rope = directory.config["rope_scaling"];
  rope = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const auto yarn = [](GgufWriter& w) {
    w.text("llama.rope.scaling.type", "yarn");
    w.f32("llama.rope.scaling.factor", 4);
    w.u32("llama.rope.scaling.original_context_length", 32);
  };
  const ModelConfig usual = config_of_rope(yarn);
  EXPECT_EQ(usual.rope_magnitude, hf_config(directory.config).rope_magnitude);
  EXPECT_TRUE(usual.notes.empty());
  for (const float factor : {1.0f, 1.2f, usual.rope_magnitude}) {
    rope["attention_factor"] = factor;
    const ModelConfig config = config_of_rope([&](GgufWriter& w) {
      yarn(w);
      w.f32("llama.rope.scaling.yarn_attn_factor", factor);
    });
    EXPECT_EQ(config.rope_magnitude, hf_config(directory.config).rope_magnitude);
    EXPECT_EQ(config.rope_inverse_frequency, usual.rope_inverse_frequency);
    EXPECT_EQ(config.notes.empty(), factor == usual.rope_magnitude);
    for (const std::string& note : config.notes)
      EXPECT_TRUE(mentions(note, "'llama.rope.scaling.yarn_attn_factor' is 1."));
  }
  // The other key is a factor of the usual magnitude.
  const ModelConfig scaled = config_of_rope([&](GgufWriter& w) {
    yarn(w);
    w.f32("llama.rope.scaling.attn_factor", 2);
  });
  EXPECT_EQ(scaled.rope_magnitude, 2 * usual.rope_magnitude);
  EXPECT_TRUE(mentions(error_of_model([&](auto& w) {
                         yarn(w);
                         w.f32("llama.rope.scaling.attn_factor", 2);
                         w.f32("llama.rope.scaling.yarn_attn_factor", 2);
                       }),
                       "both set the magnitude of yarn"));
}

TEST(GgufConfig, RefusesAMagnitudeOfRotaryPositionsThatAreNotYarns) {
  for (const char* type : {"none", "linear"})
    EXPECT_TRUE(mentions(error_of_model([&](auto& w) {
                           w.text("llama.rope.scaling.type", type);
                           w.f32("llama.rope.scaling.attn_factor", 1.5f);
                         }),
                         "'llama.rope.scaling.attn_factor'"));
  EXPECT_EQ(error_of_model([](auto& w) { w.f32("llama.rope.scaling.attn_factor", 1); }), "");
}

TEST(GgufConfig, DividesFrequenciesByTheFactorsOfRopeFreqs) {
  GgufHeader header;
  const auto set = [&](const char* key, Metadata::Value value) {
    header.metadata.set(key, std::move(value));
  };
  set("general.architecture", std::string("llama"));
  for (const char* key : {"context_length", "block_count", "feed_forward_length"})
    set((std::string("llama.") + key).c_str(), std::int64_t{8});
  set("llama.embedding_length", std::int64_t{16});
  set("llama.attention.head_count", std::int64_t{4});
  set("llama.attention.layer_norm_rms_epsilon", 1e-5);
  header.tensors.push_back({"token_embd.weight", DType::kF32, {32, 16}, 0, 0, 2048});
  const ModelConfig plain = gguf_config(header, {}), scaled = gguf_config(header, {{1, 8}, {}, {}});
  EXPECT_EQ(plain.kv_heads, 4);
  EXPECT_TRUE(plain.tied_head);
  EXPECT_TRUE(plain.rope_adjacent_pairs);
  ASSERT_EQ(scaled.rope_inverse_frequency.size(), 2u);
  EXPECT_EQ(scaled.rope_inverse_frequency[0], plain.rope_inverse_frequency[0]);
  EXPECT_EQ(scaled.rope_inverse_frequency[1], plain.rope_inverse_frequency[1] / 8);
}

}  // namespace
}  // namespace canopy::testing
