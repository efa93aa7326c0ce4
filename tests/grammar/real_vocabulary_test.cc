// Masks over the vocabulary of a real model, of 49152 tokens, where scripts/get_model has fetched
// it: right, and how long they take.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "src/checkpoint/checkpoint.h"
#include "tests/grammar/mask_checks.h"

namespace canopy::grammar {
namespace {

class RealVocabulary : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model =
        std::filesystem::path(CANOPY_TEST_DATA) / "../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(model)) GTEST_SKIP() << "there is no " << model;
    tokenizer_ = load_tokenizer(model, Checkpoint::open(model).metadata());
    vocabulary_ = std::make_shared<const VocabularyTrie>(*tokenizer_);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const VocabularyTrie> vocabulary_;
};

constexpr const char* kSchema = R"({"type": "object", "required": ["name", "age", "tags"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0,
    "maximum": 130}, "score": {"type": "number"}, "kind": {"enum": ["person", "company"]},
    "code": {"type": "string", "maxLength": 8}, "tags": {"type": "array",
    "items": {"type": "string"}}}, "additionalProperties": true})";
constexpr const char* kText = R"({"name": "Ada \"A\" Lovelace ☃ 😀", "age": 36, "score": -1.5e3,
  "kind": "person", "code": "a1b2", "tags": ["math", "poetry"], "more": {"born": [1815, 12, 10],
  "alive": false, "na": null}})";

double seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

TEST_F(RealVocabulary, HasMasksOfThePlainDefinition) {
  const auto grammar = grammar_of(kSchema);
  const auto constraint = constrain(grammar, vocabulary_);
  ByteReader reader(grammar, vocabulary_->single_bytes());
  auto mask = mask_for(*vocabulary_);
  for (const TokenId token : tokenizer_->encode(kText, AddSpecial::kNo)) {
    ASSERT_TRUE(constraint->allow({}, mask));
    expect_plain_mask(mask, reader, *vocabulary_);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(has(mask, token)) << tokenizer_->piece(token);
    constraint->accept(token);
    ASSERT_TRUE(reader.read(tokenizer_->piece(token)));
  }
  EXPECT_TRUE(reader.complete());
}

TEST_F(RealVocabulary, PrintsTheTimeOfItsMasks) {
  const auto began = std::chrono::steady_clock::now();
  const VocabularyTrie again(*tokenizer_);
  std::printf("trie of %d tokens: %.1f ms\n", again.vocab(), 1e3 * seconds(began));
  const auto grammar = grammar_of(kSchema);
  const auto tokens = tokenizer_->encode(kText, AddSpecial::kNo);
  const auto fresh = constrain(grammar, vocabulary_);
  auto mask = mask_for(*vocabulary_);
  for (const char* round : {"first", "cached"}) {
    const auto constraint = fresh->clone();
    double sum = 0, most = 0;
    std::string slowest;
    for (const TokenId token : tokens) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(constraint->allow({}, mask));
      const double took = seconds(start);
      sum += took;
      if (took > most) slowest = tokenizer_->piece(token);
      most = std::max(most, took);
      constraint->accept(token);
    }
    std::printf("%s: mean %.1f us, at most %.1f us (before \"%s\"), %zu masks\n", round,
                1e6 * sum / static_cast<double>(tokens.size()), 1e6 * most, slowest.c_str(),
                tokens.size());
  }
}

}  // namespace
}  // namespace canopy::grammar
