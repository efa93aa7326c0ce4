// Properties of every tokenizer, on random texts.
#include "src/text/tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/text/gguf_metadata.h"
#include "tests/text/golden.h"

namespace canopy {
namespace {

using Random = std::mt19937_64;

std::unique_ptr<Tokenizer> load(const std::string& name) {
  return load_tokenizer(golden::data(name), {});
}

/// Characters of all lengths, with more ASCII and white space than chance would give.
std::string random_text(Random& random) {
  std::string text;
  for (auto n = random() % 80; n > 0; --n) {
    switch (random() % 6) {
      case 0:
        append_utf8(text, static_cast<char32_t>(random() % 0x20));
        break;
      case 1:
        text += ' ';
        break;
      case 2:
        append_utf8(text, static_cast<char32_t>(random() % 0xD800));
        break;
      case 3:
        append_utf8(text, static_cast<char32_t>(0xE000 + random() % (0x110000 - 0xE000)));
        break;
      default:
        append_utf8(text, static_cast<char32_t>('a' + random() % 26));
    }
  }
  return text;
}

std::string random_bytes(Random& random) {
  std::string bytes = random_text(random);
  for (char& c : bytes)
    if (random() % 4 == 0) c = static_cast<char>(random());
  return bytes;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_utf8(part));
    text += part;
  }
  return text + stream.flush();
}

TEST(Tokenizer, ByteLevelDecodesToWhatItEncoded) {
  for (const char* name : {"gpt2", "llama3", "smollm", "gguf_default", "mistral"}) {
    const auto tokenizer = load(name);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(seed));
      Random random(seed);
      const std::string text = random_text(random);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, AddSpecial::kYes), AddSpecial::kNo),
                text);
    }
  }
}

TEST(Tokenizer, ByteFallbackDecodesToWhatItEncoded) {
  const auto tokenizer = load("llama2");
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::string text = random_text(random);
    if (text.find("\u2581") != std::string::npos) continue;  // is a space to this tokenizer
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, AddSpecial::kYes), AddSpecial::kNo), text);
  }
}

TEST(Tokenizer, TreatsBytesThatAreNotUtf8AsReplacementCharacters) {
  for (const char* name : {"gpt2", "qwen2", "llama2", "metaspace_unknown", "added"}) {
    const auto tokenizer = load(name);
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(seed));
      Random random(seed);
      const std::string bytes = random_bytes(random);
      EXPECT_EQ(tokenizer->encode(bytes, AddSpecial::kNo),
                tokenizer->encode(to_utf8(bytes), AddSpecial::kNo));
    }
  }
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const auto tokenizer = load("gpt2");
  for (const TokenId id : {-1, tokenizer->vocab(), std::numeric_limits<TokenId>::max()}) {
    EXPECT_THROW(tokenizer->piece(id), Error);
    EXPECT_THROW(tokenizer->token_string(id), Error);
    EXPECT_THROW(tokenizer->decode(std::vector<TokenId>{id}, AddSpecial::kYes), Error);
  }
}

TEST(Tokenizer, GivesIdsThatOnlyTheModelHasNoText) {
  const auto plain = load("gpt2");
  const int named = plain->vocab();
  const auto tokenizer = load_tokenizer(golden::data("gpt2"), {}, named + 60);
  EXPECT_EQ(tokenizer->vocab(), named + 60);
  for (const TokenId id : {named, named + 59}) {
    EXPECT_EQ(tokenizer->piece(id), "");
    EXPECT_EQ(tokenizer->token_string(id), "");
    EXPECT_FALSE(tokenizer->ends_text(id));
    EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{id}, AddSpecial::kYes), "");
  }
  EXPECT_THROW(tokenizer->piece(named + 60), Error);
  EXPECT_EQ(vocabulary_mismatch(*tokenizer, *plain), std::nullopt);
  EXPECT_EQ(load_tokenizer(golden::data("gpt2"), {}, named - 1)->vocab(), named);
}

// The test's time limit is its assertion: 2^38 steps take longer.
TEST(Tokenizer, EncodesLongRunsWithoutAQuadraticStep) {
  constexpr std::size_t kBytes = 1 << 19;
  std::string letters, marks;
  Random random(1);
  while (letters.size() < kBytes) letters += static_cast<char>('a' + random() % 26);
  while (marks.size() < kBytes) marks += random() % 2 ? "\u0301" : "\u0323";
  for (const char* name : {"qwen2", "llama2", "added"}) {
    const auto tokenizer = load(name);
    for (const std::string& text :
         {std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kBytes, '\n'), letters,
          marks, std::string(kBytes, '<')}) {
      EXPECT_FALSE(tokenizer->encode(text, AddSpecial::kNo).empty());
    }
  }
}

TEST(TextStream, GivesTheWholeTextInWholeCharacters) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm", "added"}) {
    const auto tokenizer = load(name);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(seed));
      Random random(seed);
      std::vector<TokenId> ids(random() % 60);  // any tokens: most of their bytes are not UTF-8
      for (TokenId& id : ids)
        id = static_cast<TokenId>(random() % static_cast<unsigned>(tokenizer->vocab()));
      EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids, AddSpecial::kNo));
    }
  }
}

TEST(TextStream, KeepsTheSpaceThatDecodeTakesFromTheStartOfAText) {
  const auto tokenizer = load("llama2");
  const auto ids = tokenizer->encode("the canopy", AddSpecial::kNo);
  EXPECT_EQ(tokenizer->decode(ids, AddSpecial::kNo), "the canopy");
  EXPECT_EQ(streamed(*tokenizer, ids), " the canopy");  // a stream continues what stood before
}

TEST(TextStream, HoldsBackTheBeginningOfACharacter) {
  const auto tokenizer = load("gpt2");  // byte tokens are the 256 after <|endoftext|>
  const auto byte = [&](const char* visible) {
    for (TokenId id = 0; id < tokenizer->vocab(); ++id)
      if (tokenizer->token_string(id) == visible) return id;
    return TokenId{-1};
  };
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.push(byte("\u00F0")), "");
  EXPECT_EQ(stream.push(byte("\u0141")), "");        // 9F
  EXPECT_EQ(stream.push(byte("a")), "\uFFFDa");      // F0 9F was no character after all
  EXPECT_EQ(stream.push(byte("\u00C3")), "");        // C3
  EXPECT_EQ(stream.push(byte("\u00A9")), "\u00E9");  // A9
  EXPECT_EQ(stream.push(byte("\u00C3")), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(VocabularyMismatch, NamesTheFirstIdThatDiffersAndBothStrings) {
  const Metadata metadata = gguf_metadata("smollm", "smollm");
  const auto target = load_tokenizer("target.gguf", metadata);
  EXPECT_EQ(vocabulary_mismatch(*target, *load("smollm")), std::nullopt);
  Metadata other = metadata;
  auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  tokens[2] = "<|end|>";
  other.set("tokenizer.ggml.tokens", tokens);
  EXPECT_EQ(vocabulary_mismatch(*target, *load_tokenizer("draft.gguf", other)),
            "token 2 is '<|im_end|>' in the target and '<|end|>' in the draft");
}

TEST(VocabularyMismatch, SeesATokenThatOneSideLacks) {
  Metadata metadata = gguf_metadata("smollm", "smollm");
  const auto draft = load_tokenizer("draft.gguf", metadata);
  auto tokens = *metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  auto types = *metadata.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  const std::size_t size = tokens.size();
  tokens.push_back("<|new|>");
  types.push_back(3);
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  EXPECT_EQ(
      vocabulary_mismatch(*load_tokenizer("target.gguf", metadata), *draft),
      "token " + std::to_string(size) + " is '<|new|>' in the target and unused in the draft");
}

TEST(Utf8, ReplacesEachMaximalPrefixOnce) {  // Unicode 15, table 3-8 and its neighbours
  EXPECT_EQ(to_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                    "b\x80"
                    "c\x80\xBF"
                    "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(to_utf8("\xC0\xAF\xE0\x80\xBF\xED\xA0\x80\xF4\x90\x80\x80"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_utf8("\xF0\x9F\x8C"), "\uFFFD");
}

}  // namespace
}  // namespace canopy
