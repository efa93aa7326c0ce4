// Models of text inside models that also see.
#include "src/checkpoint/families/wrapper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "src/checkpoint/checkpoint.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/error_of.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

/// The prefixes that files of one version of the libraries put before the names of the decoder's
/// tensors, the head's, and those of the other parts.
struct Spelling {
  const char *decoder, *head, *others;
};
constexpr Spelling kOlder{"language_model.model.", "language_model.lm_head.", ""};
constexpr Spelling kNewer{"model.language_model.", "lm_head.", "model."};

json wrapper_of(json text) {
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  text.erase("eos_token_id");
  return {{"architectures", {"Mistral3ForConditionalGeneration"}},
          {"model_type", "mistral3"},
          {"eos_token_id", 5},
          {"text_config", std::move(text)},
          {"vision_config", {{"model_type", "pixtral"}, {"hidden_size", 8}}}};
}

TinyModel wrapped(const Spelling& spelling, bool tied = false) {
  TinyOptions options;
  options.family = "mistral";
  options.tied = tied;
  TinyModel model = tiny_model(options);
  model.config = wrapper_of(model.config);
  for (FileTensor& tensor : model.tensors) {
    const bool head = tensor.name.starts_with("lm_head.");
    tensor.name = (head ? spelling.head : spelling.decoder) + tensor.name.substr(head ? 8 : 6);
  }
  std::mt19937_64 random(7);
  for (const char* other : {"vision_tower.patch_conv.weight", "vision_tower.ln_pre.weight",
                            "multi_modal_projector.linear_1.weight"})
    model.tensors.push_back(
        random_tensor(std::string(spelling.others) + other, DType::kBF16, {4, 8}, random, 0, 1));
  return model;
}

class Wrapped : public ::testing::Test {
 protected:
  Wrapped() { setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }
  Checkpoint open(const TinyModel& model) const {
    write_hugging_face(dir_ / "model", model);
    return Checkpoint::open(dir_ / "model");
  }
  const TempDir dir_;
};

TEST_F(Wrapped, TextIsReadUnderTheNamesOfEitherVersion) {
  for (const Spelling& spelling : {kOlder, kNewer}) {
    const Checkpoint model = open(wrapped(spelling));
    EXPECT_EQ(model.config().architecture, "mistral");
    EXPECT_EQ(model.config().end_tokens, std::vector<TokenId>{5});  // said outside
    EXPECT_NE(model.find("model.layers.1.self_attn.q_proj.weight"), nullptr);
    EXPECT_NE(model.find("lm_head.weight"), nullptr);
    EXPECT_EQ(model.find("vision_tower.ln_pre.weight"), nullptr);
    EXPECT_EQ(*model.metadata().find<std::int64_t>("num_hidden_layers"), 2);
  }
}

TEST_F(Wrapped, ANoteSaysWhatIsLeftOut) {
  for (const Spelling& spelling : {kOlder, kNewer}) {
    const Notes notes = open(wrapped(spelling)).config().notes;
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_EQ(notes[0],
              "the model is run for text alone; of its files is left out: multi_modal_projector (1 "
              "tensor, 64 B), vision_tower (2 tensors, 128 B)");
  }
}

TEST_F(Wrapped, OtherTensorsAreNoPartOfIt) {
  TinyModel model = wrapped(kNewer);
  model.tensors.back().name = "model.memory.weight";
  EXPECT_NE(error_of([&] { open(model); }).find("tensor 'model.memory.weight' is not part"),
            std::string::npos);
  // The same tensor under both names.
  model.tensors.back() = model.tensors.front();
  model.tensors.back().name = "language_model.model.embed_tokens.weight";
  EXPECT_NE(error_of([&] { open(model); }).find("model.embed_tokens.weight' is not part"),
            std::string::npos);
}

/// Flags of config.json outside and inside of text_config, and what is stored.
struct Tie {
  std::optional<bool> outside, inside;
  bool stored;
  bool tied;  // wanted
};

TEST_F(Wrapped, AStoredHeadWinsOverADefaultAndAFlagOutsideOverOneInside) {
  for (const Tie& tie :
       {Tie{{}, {}, true, false}, Tie{{}, {}, false, true}, Tie{{}, false, true, false},
        Tie{{}, false, false, true}, Tie{{}, true, false, true}, Tie{true, false, false, true},
        Tie{false, true, true, false}}) {
    TinyModel model = wrapped(kNewer, !tie.stored);
    if (tie.outside) model.config["tie_word_embeddings"] = *tie.outside;
    if (tie.inside) model.config["text_config"]["tie_word_embeddings"] = *tie.inside;
    EXPECT_EQ(open(model).config().tied_head, tie.tied);
  }
  TinyModel model = wrapped(kNewer, true);
  model.config["tie_word_embeddings"] = false;
  EXPECT_NE(error_of([&] { open(model); }).find("tensor 'lm_head.weight' [96, 64] is missing"),
            std::string::npos);
}

TEST_F(Wrapped, AHeadThatIsStoredAndDiffersIsTheHeadWhateverTheFlagSays) {
  TinyModel model = wrapped(kNewer);
  model.config["tie_word_embeddings"] = true;
  EXPECT_FALSE(open(model).config().tied_head);
}

TEST(TextConfig, TakesWhatStandsOutsideWhereItSaysNothing) {
  json config = wrapper_of(tiny_model().config);
  config["quantization_config"] = {{"quant_method", "awq"}};
  const json text = text_config(config);
  EXPECT_EQ(text["quantization_config"]["quant_method"], "awq");
  EXPECT_EQ(text["eos_token_id"], 5);
  config["text_config"]["eos_token_id"] = 7;
  EXPECT_EQ(text_config(config)["eos_token_id"], 7);
}

TEST(TextConfig, OfAnotherModelIsRefused) {
  json config = wrapper_of(tiny_model().config);
  EXPECT_EQ(error_of([&] { text_config(config); }), "");
  for (const json& change : {json{{"text_config", nullptr}}, json{{"text_config", 1}},
                             json{{"architectures", {"Mistral4ForConditionalGeneration"}}}}) {
    json damaged = config;
    damaged.update(change);
    EXPECT_NE(error_of([&] { text_config(damaged); }), "") << change;
  }
  config["model_type"] = "mistral4";
  EXPECT_NE(error_of([&] { hf_config(text_config(config)); }).find("key 'vision_config'"),
            std::string::npos);
}

TEST(TextConfig, IsReadForAShapeToo) {
  const json config = wrapper_of(tiny_model().config);
  EXPECT_EQ(shape_from_config(config.dump()).layers, 2);
}

/// As Devstral and Mistral Medium are published: FP8, with the modules that are left out under the
/// wrapper's names.
TEST_F(Wrapped, Fp8WeightsAreJoinedAndTheirListNamesModulesAsTheFilesDo) {
  for (const Spelling& spelling : {kOlder, kNewer}) {
    const std::string decoder = spelling.decoder;
    TinyOptions options;
    options.family = "mistral";
    TinyModel model = fp8_models(kFp8Forms.front(), options).fp8;
    const std::string kept = "layers.1.mlp.down_proj";
    // One matrix is plain, and the list says so.
    std::erase_if(model.tensors, [&](const FileTensor& tensor) {
      return tensor.name.starts_with("model." + kept + ".");
    });
    std::mt19937_64 random(9);
    model.tensors.push_back(
        random_tensor("model." + kept + ".weight", DType::kBF16, {160, 200}, random, 0, 1));
    json scheme = model.config["quantization_config"];
    model.config.erase("quantization_config");
    model.config = wrapper_of(model.config);
    for (FileTensor& tensor : model.tensors) {
      const bool head = tensor.name.starts_with("lm_head.");
      tensor.name = (head ? spelling.head : decoder) + tensor.name.substr(head ? 8 : 6);
    }
    const auto opened = [&](const std::string& list_has) {
      scheme["modules_to_not_convert"] = {list_has, "model.vision_tower", "lm_head"};
      model.config["quantization_config"] = scheme;
      return open(model);
    };
    const Checkpoint read = opened(decoder + kept);
    EXPECT_EQ(read.find("model." + kept + ".weight")->dtype, DType::kBF16);
    EXPECT_EQ(read.find("model.layers.0.mlp.down_proj.weight")->dtype, DType::kE4M3Blocks);
    const std::string refused = error_of([&] { opened(decoder + "layers.0.mlp.up_proj"); });
    EXPECT_NE(refused.find("up_proj"), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace canopy::testing
