// GPT-OSS: what its GGUF files mean, what of config.json is read for a shape, and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

const std::filesystem::path kFile = test_data() / "model" / "gpt_oss.gguf";

/// As the models' config.json, but smaller.
json small_config() {
  return {{"architectures", {"GptOssForCausalLM"}},
          {"model_type", "gpt_oss"},
          {"hidden_act", "silu"},
          {"num_hidden_layers", 3},
          {"hidden_size", 32},
          {"intermediate_size", 24},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 24},
          {"num_local_experts", 5},
          {"num_experts_per_tok", 2},
          {"experts_per_token", 2},
          {"sliding_window", 8},
          {"swiglu_limit", 7.0},
          {"attention_bias", true},
          {"rms_norm_eps", 1e-4},
          {"rope_theta", 10000},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", 4.0},
            {"beta_fast", 4.0},
            {"beta_slow", 1.0},
            {"truncate", false},
            {"original_max_position_embeddings", 64}}},
          {"tie_word_embeddings", false},
          {"vocab_size", 97},
          {"max_position_embeddings", 256},
          {"eos_token_id", 2}};
}
std::string gpt_oss_error(const json& changes) {
  json config = small_config();
  config.update(changes);
  return error_of([&] { hf_config(config); });
}

/// The header of the tiny file with another value of a key.
GgufHeader header_with(const std::string& key, Metadata::Value value) {
  GgufHeader header = read_gguf(kFile);
  header.metadata.set("gpt-oss." + key, std::move(value));
  return header;
}
std::string error_of_file_with(const std::string& key, Metadata::Value value) {
  return error_of([&] { gguf_config(header_with(key, std::move(value)), {}); });
}

TEST(GptOssConfig, HasWindowsInEverySecondLayerAndSinksAndBiasesInAll) {
  const Checkpoint model = Checkpoint::open(kFile);
  const ModelConfig& config = model.config();
  EXPECT_EQ(config.architecture, "gpt_oss");
  ASSERT_EQ(config.layers, 3);
  for (int i = 0; i < config.layers; ++i) {
    const LayerConfig& layer = config.layer(i);
    EXPECT_EQ(layer.window, i % 2 == 0 ? 8 : 0);
    EXPECT_TRUE(layer.sinks && layer.qkv_bias && layer.other_biases && layer.experts);
  }
  EXPECT_TRUE(config.experts == (ExpertsConfig{.count = 5,
                                               .active = 2,
                                               .hidden_dim = 24,
                                               .gating = {GatingKind::kClamped, 7.0f, 1.702f}}));
  const auto shape = [&](const char* name) {
    const TensorEntry* const found = model.find(std::string("model.layers.2.") + name);
    return found ? found->shape : std::vector<std::int64_t>();
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape("self_attn.sinks"), (Shape{4}));
  EXPECT_EQ(shape("self_attn.o_proj.bias"), (Shape{32}));
  EXPECT_EQ(shape("mlp.gate.bias"), (Shape{5}));
  EXPECT_EQ(shape("mlp.experts.gate_proj.bias"), (Shape{5, 24}));
  EXPECT_EQ(shape("mlp.experts.down_proj.bias"), (Shape{5, 32}));
  EXPECT_EQ(shape("mlp.up_proj.bias"), (Shape{}));
}

TEST(GptOssConfig, OfAShapeIsThatOfTheSameFile) {
  const ModelConfig shape = hf_config(small_config()), file = Checkpoint::open(kFile).config();
  EXPECT_TRUE(shape.layer_kinds == file.layer_kinds);
  EXPECT_EQ(shape.kind_of_layer, file.kind_of_layer);
  EXPECT_TRUE(shape.experts == file.experts);
  EXPECT_EQ(shape.rope_inverse_frequency, file.rope_inverse_frequency);
  EXPECT_EQ(shape.rope_magnitude, file.rope_magnitude);
  json config = small_config();
  config["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention"};
  config["swiglu_limit"] = 5;
  config["swiglu_alpha"] = 2;
  const ModelConfig other = hf_config(config);
  EXPECT_EQ(other.layer(0).window, 0);
  EXPECT_EQ(other.layer(1).window, 8);
  EXPECT_EQ(other.layer(2).window, 8);
  EXPECT_TRUE(other.experts.gating == (Gating{GatingKind::kClamped, 5, 2}));
}

TEST(GptOssConfig, OfADirectoryMeansItsTensorsAsPackReadsThem) {
  const auto directory = test_data() / "model" / "gpt_oss";
  const Checkpoint model = Checkpoint::open(directory, Holes::kRefused, Rows::kToBeMade);
  EXPECT_EQ(model.config().quantization, "MXFP4: 6 stacks of matrices");
  const auto part = [&](const char* name) {
    const TensorEntry* const found = model.find(std::string("model.layers.1.mlp.") + name);
    EXPECT_TRUE(found) << name;
    return *found;
  };
  using Shape = std::vector<std::int64_t>;
  const TensorEntry gate = part("experts.3.gate_proj.weight"),
                    up = part("experts.3.up_proj.weight"),
                    down = part("experts.3.down_proj.weight"), bias = part("experts.up_proj.bias");
  EXPECT_EQ(gate.dtype, DType::kMXFP4);
  EXPECT_EQ(gate.shape, (Shape{96, 64}));
  EXPECT_EQ(down.shape, (Shape{64, 96}));
  EXPECT_EQ(bias.shape, (Shape{5, 96}));
  EXPECT_EQ(bias.dtype, DType::kBF16);
  const auto expect_lies = [](const TensorEntry& tensor, std::int64_t first, std::int64_t step,
                              std::uint64_t row, std::uint64_t bytes) {
    EXPECT_EQ(tensor.parts->first_row, first) << tensor.name;
    EXPECT_EQ(tensor.parts->row_step, step) << tensor.name;
    const ByteRange place = place_in_file(tensor);
    const auto before = static_cast<std::uint64_t>(first) * row;
    EXPECT_EQ(place.offset, tensor.parts->codes.offset + before) << tensor.name;
    EXPECT_EQ(place.bytes, bytes) << tensor.name;
  };
  // Rows of codes have half a byte for each column.
  expect_lies(gate, 3 * 192, 2, 32, 191 * 32);
  expect_lies(up, 3 * 192 + 1, 2, 32, 191 * 32);
  expect_lies(down, 3 * 64, 1, 48, 64 * 48);
  expect_lies(bias, 1, 2, 2, (2 * 5 * 96 - 1) * 2);
  EXPECT_EQ(rows_of(up, 5, 7).parts->first_row, 3 * 192 + 1 + 10);
  EXPECT_EQ(rows_of(bias, 2, 1).parts->first_row, 1 + 2 * 2 * 96);
  EXPECT_EQ(part("gate.weight").shape, (Shape{5, 64}));
  EXPECT_EQ(part("gate.bias").shape, (Shape{5}));
}

TEST(GptOssConfig, RefusesADirectoryWhoseStackedExpertsLieByColumns) {
  const TempDir dir;
  dir.write("config.json", small_config().dump());
  const FileTensor down{"model.layers.1.mlp.experts.down_proj",
                        DType::kBF16,
                        {5, 24, 32},
                        std::string(5 * 24 * 32 * 2, '\0')};
  dir.write("model.safetensors", safetensors_bytes({down}));
  EXPECT_TRUE(mentions(error_of([&] { Checkpoint::open(dir.path()); }),
                       "'model.layers.1.mlp.experts.down_proj' is BF16, in which stacked experts "
                       "lie by columns: take the model in MXFP4"));
}

TEST(GptOssConfig, RefusesByKeyWhatIsMissingOrMeansAnotherModel) {
  EXPECT_EQ(gpt_oss_error(json::object()), "");
  const auto refused = [](const json& changes, const char* part) {
    EXPECT_TRUE(mentions(gpt_oss_error(changes), part)) << part << ": " << gpt_oss_error(changes);
  };
  for (const char* const key : {"sliding_window", "head_dim", "rms_norm_eps", "num_local_experts",
                                "num_experts_per_tok", "intermediate_size"})
    refused({{key, nullptr}}, key);
  refused({{"sliding_window", 0}}, "sliding_window");
  refused({{"rope_scaling", nullptr}}, "rope_parameters");
  refused({{"hidden_act", "gelu"}}, "activation 'gelu'");
  refused({{"attention_bias", false}}, "attention_bias");
  refused({{"layer_types", {"full_attention", "sliding_attention"}}}, "list of 3 layers");
  refused({{"layer_types", {"full_attention", "sliding_attention", "chunked_attention"}}},
          "chunked_attention");
  for (const char* const key : {"swiglu_limit", "swiglu_alpha"})
    for (const json& value : {json(0), json(-1), json("7"), json(1e39)})
      refused({{key, value}}, key);
}

TEST(GptOssConfig, OfAGgufFileNeedsItsWindowAndMayHaveAnotherPattern) {
  GgufHeader header = read_gguf(kFile);
  Metadata without;
  for (const char* key : {"context_length", "block_count", "expert_count", "expert_used_count"})
    without.set(std::string("gpt-oss.") + key,
                *header.metadata.find<std::int64_t>(std::string("gpt-oss.") + key));
  without.set("general.architecture", std::string("gpt-oss"));
  header.metadata = without;
  EXPECT_TRUE(mentions(error_of([&] { gguf_config(header, {}); }),
                       "'gpt-oss.attention.sliding_window' is missing"));
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{-1}})
    EXPECT_TRUE(
        mentions(error_of_file_with("attention.sliding_window", window), "sliding_window'"));
  EXPECT_EQ(error_of_file_with("attention.sliding_window_pattern", std::int64_t{2}), "");
  const auto window_of = [](Metadata::Value pattern, int layer) {
    return gguf_config(header_with("attention.sliding_window_pattern", std::move(pattern)), {})
        .layer(layer)
        .window;
  };
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(window_of(std::int64_t{3}, layer), layer == 2 ? 0 : 8);
    EXPECT_EQ(window_of(std::vector<std::int32_t>{0, 1, 1}, layer), layer == 0 ? 0 : 8);
  }
  EXPECT_TRUE(mentions(
      error_of_file_with("attention.sliding_window_pattern", std::vector<std::int32_t>{0, 1}),
      "2 numbers for 3 layers"));
  EXPECT_EQ(
      gguf_config(header_with("attention.sliding_window", std::int64_t{17}), {}).layer(2).window,
      17);
}

TEST(GptOssConfig, TakesTheSoftmaxOfTheChosenByEitherName) {
  for (const std::int64_t function : {0, 1, 3})
    EXPECT_EQ(error_of_file_with("expert_gating_func", function), "");
  EXPECT_TRUE(mentions(error_of_file_with("expert_gating_func", std::int64_t{2}), "is 2, not 1"));
}

TEST(GptOssConfig, ChangesAModelsFingerprint) {
  const Checkpoint model = Checkpoint::open(kFile);
  const auto changed = [&](auto&& change) {
    ModelConfig config = model.config();
    change(config);
    return fingerprint(Checkpoint(model.root(), model.files(), model.tensors(), std::move(config),
                                  model.metadata()));
  };
  const std::string own = changed([](ModelConfig&) {});
  EXPECT_NE(changed([](ModelConfig& c) { c.set_window(9); }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.layer_kinds[1].window = 8; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.layer_kinds[1].sinks = false; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.experts.gating = {}; }), own);
  EXPECT_NE(changed([](ModelConfig& c) { c.experts.gating.limit = 6; }), own);
}

}  // namespace
}  // namespace canopy::testing
