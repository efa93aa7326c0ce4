// A JSON schema, and the masks of a text that follows it.
#include <random>

#include "src/base/json.h"
#include "src/grammar/schema/json_schema.h"
#include "src/grammar/token_mask.h"
#include "tests/fuzz/fuzz.h"
#include "tests/grammar/toy_tokenizer.h"

namespace canopy::fuzz {
namespace {

/// Accepts some tokens: each the first allowed one from a random id on.
void follow(TokenConstraint& constraint, const grammar::VocabularyTrie& vocabulary) {
  constexpr int kTokens = 24;
  std::minstd_rand random(1);
  std::vector<std::uint32_t> allowed((static_cast<std::size_t>(vocabulary.vocab()) + 31) / 32);
  for (int step = 0; step < kTokens; ++step) {
    expect(constraint.allow({}, allowed), "the place itself to be allowed");
    TokenId token = static_cast<TokenId>(random() % static_cast<unsigned>(vocabulary.vocab()));
    int tried = 0;
    const auto is_allowed = [&](TokenId t) {
      return (allowed[static_cast<std::size_t>(t) / 32] >> (t % 32) & 1) != 0;
    };
    while (!is_allowed(token) && ++tried <= vocabulary.vocab())
      token = (token + 1) % vocabulary.vocab();
    expect(is_allowed(token), "a way on");
    if (vocabulary.ends_text(token)) return;
    constraint.accept(token);
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  static const auto kVocabulary =
      std::make_shared<const grammar::VocabularyTrie>(ToyTokenizer(ToyTokenizer::json_pieces()));
  reads([&] {
    const auto schema = parse_ordered_json(input);
    const auto grammar = std::make_shared<const grammar::Grammar>(grammar::json_grammar(schema));
    follow(*grammar::constrain(grammar, kVocabulary), *kVocabulary);
  });
}

}  // namespace canopy::fuzz
