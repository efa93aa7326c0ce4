#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/text/tokenizer.h"
#include "tests/error_of.h"
#include "tests/text/gguf_metadata.h"

namespace canopy {
namespace {

std::unique_ptr<Tokenizer> load(const Metadata& metadata) {
  return load_tokenizer("model.gguf", metadata);
}

TEST(GgufTokenizer, GivesIdsThatOnlyTheModelHasNoText) {
  const Metadata metadata = gguf_metadata("smollm", "smollm");
  const int named = load(metadata)->vocab();
  const auto tokenizer = load_tokenizer("model.gguf", metadata, named + 60);
  EXPECT_EQ(tokenizer->vocab(), named + 60);
  EXPECT_EQ(tokenizer->piece(named + 59), "");
}

struct PreTokenizer {
  const char* name;  // tokenizer.ggml.pre
  const char* same_as;
};
class GgufPreTokenizer : public testing::TestWithParam<PreTokenizer> {};

TEST_P(GgufPreTokenizer, EncodesAsTheReferenceLibrary) {
  Metadata metadata = gguf_metadata(GetParam().same_as, GetParam().name);
  metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{1});
  const auto tokenizer = load(metadata);
  const nlohmann::json texts = golden::load("texts.json");
  const nlohmann::json golden = golden::load(std::string(GetParam().same_as) + "/golden.json");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i].dump());
    const std::string text = golden::text_of(texts[i]);
    EXPECT_EQ(tokenizer->encode(text, AddSpecial::kNo), golden::ids_of(golden["plain"][i]));
    EXPECT_EQ(tokenizer->encode(text, AddSpecial::kYes), golden::ids_of(golden["special"][i]));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Names, GgufPreTokenizer,
    testing::Values(PreTokenizer{"gpt-2", "gpt2"}, PreTokenizer{"smollm", "smollm"},
                    PreTokenizer{"command-r", "smollm"}, PreTokenizer{"starcoder", "smollm"},
                    PreTokenizer{"refact", "smollm"}, PreTokenizer{"exaone", "smollm"},
                    PreTokenizer{"olmo", "gpt2"}, PreTokenizer{"exaone4", "gpt2"},
                    PreTokenizer{"phi-2", "gpt2"}, PreTokenizer{"llama-bpe", "llama3"},
                    PreTokenizer{"llama3", "llama3"}, PreTokenizer{"llama-v3", "llama3"},
                    PreTokenizer{"falcon3", "llama3"}, PreTokenizer{"pixtral", "llama3"},
                    PreTokenizer{"smaug-bpe", "smaug"}, PreTokenizer{"dbrx", "smaug"},
                    PreTokenizer{"glm4", "smaug"}, PreTokenizer{"chatglm-bpe", "smaug"},
                    PreTokenizer{"gpt-4o", "o200k"}, PreTokenizer{"minimax-m2", "o200k"},
                    PreTokenizer{"qwen2", "qwen2"}, PreTokenizer{"deepseek-r1-qwen", "qwen2"},
                    PreTokenizer{"qwen35", "qwen35"}, PreTokenizer{"tekken", "tekken"},
                    PreTokenizer{"seed-coder", "seed"}, PreTokenizer{"deepseek-v3", "deepseek3"},
                    PreTokenizer{"hunyuan-dense", "deepseek3"},
                    PreTokenizer{"default", "gguf_default"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(GgufTokenizer, AddsNoBosThatItsFileDoesNotName) {
  for (const auto& [name, pre] : {std::pair("llama3", "falcon3"), {"tekken", "tekken"}}) {
    Metadata metadata = gguf_metadata(name, pre);
    const auto plain = load(metadata);
    EXPECT_EQ(plain->encode("a", AddSpecial::kYes), plain->encode("a", AddSpecial::kNo));
    metadata.set("tokenizer.ggml.bos_token_id", std::int64_t{1});
    EXPECT_EQ(load(metadata)->encode("a", AddSpecial::kYes).front(), 1);
    metadata.set("tokenizer.ggml.add_bos_token", false);
    EXPECT_NE(load(metadata)->encode("a", AddSpecial::kYes).front(), 1);
  }
}

TEST(SentencePiece, EncodesAndDecodesAsTheReferenceLibrary) {
  const auto tokenizer = load(spm_metadata());
  const nlohmann::json spm = golden::load("spm.json");
  for (const auto& golden : spm["cases"]) {
    SCOPED_TRACE(golden["text"].dump());
    const std::vector<TokenId> ids = golden::ids_of(golden["ids"]);
    EXPECT_EQ(tokenizer->encode(golden["text"].get<std::string>(), AddSpecial::kNo), ids);
    EXPECT_EQ(tokenizer->decode(ids, AddSpecial::kNo), golden["decoded"]);
  }
}

TEST(SentencePiece, PutsASpaceBeforeEachTextBetweenSpecialTokens) {
  const auto tokenizer = load(spm_metadata());
  const auto one = tokenizer->encode("the canopy", AddSpecial::kNo);
  std::vector<TokenId> twice{1};
  for (int i = 0; i < 2; ++i) {
    twice.insert(twice.end(), one.begin(), one.end());
    twice.push_back(2);
  }
  EXPECT_EQ(tokenizer->encode("the canopy</s>the canopy</s>", AddSpecial::kYes), twice);
}

TEST(SentencePiece, HonoursItsFlags) {
  Metadata metadata = spm_metadata();
  metadata.set("tokenizer.ggml.add_space_prefix", false);
  metadata.set("tokenizer.ggml.add_bos_token", false);
  metadata.set("tokenizer.ggml.add_eos_token", true);
  const auto plain = load(spm_metadata()), flags = load(metadata);
  std::vector<TokenId> expected = plain->encode(" the", AddSpecial::kNo);
  const auto marked = flags->encode("  the", AddSpecial::kNo);
  EXPECT_EQ(marked, expected);  // the prefix makes "  the" of " the"
  expected.push_back(2);
  EXPECT_EQ(flags->encode("  the", AddSpecial::kYes), expected);
  EXPECT_EQ(flags->decode(marked, AddSpecial::kNo), "  the");
  EXPECT_EQ(plain->decode(marked, AddSpecial::kNo), " the");
}

TEST(SentencePiece, RefusesScoresThatCannotBeOrdered) {
  const Metadata metadata = spm_metadata();
  auto scores = *metadata.find<std::vector<float>>("tokenizer.ggml.scores");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    scores[7] = bad;
    Metadata broken = metadata;
    broken.set("tokenizer.ggml.scores", scores);
    EXPECT_THROW(load(broken), Error);
  }
  scores.pop_back();
  Metadata broken = metadata;
  broken.set("tokenizer.ggml.scores", scores);
  EXPECT_THROW(load(broken), Error);
}

TEST(SentencePiece, RefusesAVocabularyThatCannotSpellEveryByte) {
  Metadata metadata = spm_metadata();
  auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  *std::find(tokens.begin(), tokens.end(), "<0x80>") = "<0x80";
  metadata.set("tokenizer.ggml.tokens", tokens);
  EXPECT_THROW(load(metadata), Error);
}

TEST(SentencePiece, RefusesATokenOfMoreBytesThanItsLimit) {
  for (const std::size_t bytes : {256u, 257u}) {
    Metadata metadata = spm_metadata();
    auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
    tokens.back() = std::string(bytes, 'z');
    metadata.set("tokenizer.ggml.tokens", tokens);
    const std::string error = error_of([&] { load(metadata); });
    EXPECT_EQ(error.find("has 257 bytes; the limit is 256") != std::string::npos, bytes == 257)
        << error;
  }
}

/// Loads SmolLM-like metadata with one key changed, and expects an Error with these words.
void expect_refusal(const char* key, const Metadata::Value& value, std::string_view words) {
  SCOPED_TRACE(key);
  Metadata metadata = gguf_metadata("smollm", "smollm");
  metadata.set(std::string("tokenizer.ggml.") + key, value);
  try {
    load(metadata);
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("model.gguf"), std::string::npos) << e.what();
  }
}

TEST(GgufTokenizer, RefusesWhatItCannotTrust) {
  using Strings = std::vector<std::string>;
  expect_refusal("model", std::string("bert"), "'bert'");
  expect_refusal("pre", std::string("falcon"), "'falcon'");
  expect_refusal("pre", std::int64_t{3}, "tokenizer.ggml.pre is missing or of another type");
  expect_refusal("tokens", std::int64_t{3}, "tokenizer.ggml.tokens is missing");
  expect_refusal("tokens", Strings{"a", "b"}, "token_type has");
  expect_refusal("token_type", std::vector<std::int32_t>(403, 9), "unknown type 9");
  expect_refusal("merges", Strings{"a nowhere"}, "tokenizer.ggml.merges[0] needs");
  expect_refusal("merges", Strings{"h e", "ab"}, "tokenizer.ggml.merges[1] is not two tokens");
  expect_refusal("add_bos_token", true, "tokenizer.ggml.bos_token_id is missing");
}

TEST(GgufTokenizer, RefusesTokensThatAreTwiceThereOrNotText) {
  for (const char* text : {"a", "\xC3"}) {
    Metadata metadata = gguf_metadata("smollm", "smollm");
    auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
    *std::find(tokens.begin(), tokens.end(), "b") = text;
    metadata.set("tokenizer.ggml.tokens", tokens);
    EXPECT_THROW(load(metadata), Error);
  }
}

TEST(GgufTokenizer, EndsTextAtItsNamedTokensAndAtTheUsualOnes) {
  Metadata metadata = gguf_metadata("smollm", "smollm");
  metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{7});
  const auto tokenizer = load(metadata);
  EXPECT_TRUE(tokenizer->ends_text(7));
  EXPECT_TRUE(tokenizer->ends_text(0));   // <|endoftext|>
  EXPECT_FALSE(tokenizer->ends_text(1));  // <|im_start|>
  EXPECT_TRUE(tokenizer->ends_text(2));   // <|im_end|>
  EXPECT_FALSE(tokenizer->ends_text(8));
}

/// The texts at which a tokenizer ends that has these as special tokens, and no others named.
std::vector<std::string> ends_among(const std::vector<std::string>& texts, int type = 3) {
  Metadata metadata = gguf_metadata("gpt2", "gpt-2");
  auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  auto types = *metadata.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  const std::size_t first = tokens.size();
  tokens.insert(tokens.end(), texts.begin(), texts.end());
  types.resize(tokens.size(), type);
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  const auto tokenizer = load(metadata);
  std::vector<std::string> ends;
  for (std::size_t i = first; i < tokens.size(); ++i)
    if (tokenizer->ends_text(static_cast<TokenId>(i))) ends.push_back(tokens[i]);
  return ends;
}

TEST(GgufTokenizer, EndsTextWhereChatModelsDo) {
  using Texts = std::vector<std::string>;
  for (const std::string text :
       {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<turn|>",
        "<|tool_response>", "<|eot|>", "<|eom|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>",
        "</s>", "<|end|>", "<|return|>", "<|call|>", "<EOT>", "<end_of_utterance>", "<seed:eos>"}) {
    EXPECT_EQ(ends_among({text}), Texts{text});
    EXPECT_EQ(ends_among({text}, 1), Texts{}) << text;  // of ordinary text
  }
  EXPECT_EQ(ends_among({"<|im_start|>", "<|user|>", "<|observation|>", "<s>", "<|message|>"}),
            Texts{});
  EXPECT_EQ(ends_among({"[gMASK]", "<|user|>", "<|assistant|>", "<|observation|>"}),
            (Texts{"<|user|>", "<|observation|>"}));
  EXPECT_EQ(ends_among({"<|end|>", "<|return|>", "<|call|>"}), (Texts{"<|return|>", "<|call|>"}));
  EXPECT_EQ(ends_among({"<|end|>", "<|return|>"}), (Texts{"<|end|>", "<|return|>"}));
  EXPECT_EQ(ends_among({"</s>", "<|tool_response>"}), Texts{"<|tool_response>"});
}

TEST(GgufTokenizer, IgnoresEndTokensOutsideTheVocabularyButNotTokensToAdd) {
  Metadata metadata = gguf_metadata("smollm", "smollm");
  metadata.set("tokenizer.ggml.eos_token_id", std::int64_t{7});
  metadata.set("tokenizer.ggml.eot_token_id", std::int64_t{4294967295});
  metadata.set("tokenizer.ggml.eom_token_id", std::int64_t{-1});
  EXPECT_TRUE(load(metadata)->ends_text(7));
  for (const auto& [flag, key] :
       {std::pair("add_bos_token", "bos_token_id"), std::pair("add_eos_token", "eos_token_id")})
    for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{100000}}) {
      Metadata added = metadata;
      added.set(std::string("tokenizer.ggml.") + flag, true);
      added.set(std::string("tokenizer.ggml.") + key, id);
      const std::string error = error_of([&] { load(added); });
      EXPECT_NE(error.find("outside the vocabulary"), std::string::npos) << error;
      EXPECT_NE(error.find(key), std::string::npos) << error;
    }
}

TEST(GgufTokenizer, CountsUnusedIdsAtTheEndOfTheVocabulary) {
  Metadata metadata = gguf_metadata("smollm", "smollm");
  auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  auto types = *metadata.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  const auto plain = load(metadata);
  for (int i = 0; i < 5; ++i) {
    tokens.push_back("[PAD" + std::to_string(i) + "]");
    types.push_back(5);
  }
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  const auto padded = load(metadata);
  EXPECT_EQ(padded->vocab(), plain->vocab() + 5);
  EXPECT_EQ(vocabulary_mismatch(*padded, *plain), std::nullopt);
  EXPECT_EQ(vocabulary_mismatch(*plain, *padded), std::nullopt);
}

}  // namespace
}  // namespace canopy
