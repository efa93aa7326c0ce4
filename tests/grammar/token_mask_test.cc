// Masks over texts that grow by tokens: paths, clones, ends, and texts drawn under the mask.
#include "src/grammar/token_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "src/grammar/mask_cache.h"
#include "tests/error_of.h"
#include "tests/grammar/mask_checks.h"
#include "tests/grammar/schema_checker.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

std::unique_ptr<TokenConstraint> constrain_to(std::string_view schema) {
  return constrain(grammar_of(schema), kVocabulary);
}

std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<std::uint8_t>(byte));
  return tokens;
}

std::vector<TokenId> allowed_by(TokenConstraint& constraint, std::span<const TokenId> path = {}) {
  auto mask = mask_for(*kVocabulary);
  EXPECT_TRUE(constraint.allow(path, mask));
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < kVocabulary->vocab(); ++token)
    if (has(mask, token)) tokens.push_back(token);
  return tokens;
}

const std::array<const char*, 9> kSchemas{
    "{}",
    R"({"type": "object"})",
    R"({"properties": {"name": {"type": "string", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 130}, "tag": {"enum": ["a", "ab", 1]}},
        "required": ["name", "age"]})",
    R"({"properties": {"a": {"items": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 12}},
        "ab": {"type": "array", "minItems": 2, "maxItems": 3}}, "required": ["a", "ab"],
        "additionalProperties": {"type": "boolean"}})",
    R"({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "array", "items": {"$ref": "#"}},
        {"const": {"k": [1, "long enough"]}}, {"type": "null"}]})",
    R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "required": ["children"],
        "properties": {"v": {"type": "integer"}, "children": {"type": "array", "maxItems": 2,
        "items": {"$ref": "#/$defs/tree"}}}, "additionalProperties": false}}})",
    R"({"type": "array", "items": {"type": "string", "minLength": 12}, "minItems": 3})",
    R"({"type": ["number", "boolean", "null"], "exclusiveMinimum": 0.25, "maximum": 3e4})",
    R"({"additionalProperties": false, "properties": {"a": true, "b": {"type": "integer"},
        "c": {"type": "object", "properties": {"d": {"const": "é"}}, "required": ["d"]}}})"};

/// Draws a token among the allowed ones; late in a text, one that closes something.
TokenId draw(const std::vector<TokenId>& allowed, int step, std::mt19937& random) {
  if (step > 60)
    for (const TokenId wanted : {kTokenizer.end(), TokenId{'"'}, TokenId{'}'}, TokenId{']'}})
      if (std::ranges::find(allowed, wanted) != allowed.end()) return wanted;
  // Single bytes would be strings of control characters and of lone letters.
  if (random() % 4 != 0) {
    const auto longer = std::ranges::lower_bound(allowed, TokenId{256});
    if (longer != allowed.end())
      return longer[static_cast<std::ptrdiff_t>(
          random() % static_cast<std::uint64_t>(allowed.end() - longer))];
  }
  return allowed[random() % allowed.size()];
}

TEST(TokenMask, LeadsEveryDrawnTextToAnEndThatTheSchemaAccepts) {
  for (const char* source : kSchemas) {
    SCOPED_TRACE(source);
    const ordered_json schema = ordered_json::parse(source);
    const auto fresh = constrain_to(source);
    for (unsigned seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      const auto constraint = fresh->clone();
      std::vector<TokenId> text;
      for (int step = 0; text.empty() || text.back() != kTokenizer.end(); ++step) {
        ASSERT_LT(step, 2000) << kTokenizer.decode(text, AddSpecial::kNo);
        const auto allowed = allowed_by(*constraint);
        ASSERT_FALSE(allowed.empty());
        text.push_back(draw(allowed, step, random));
        constraint->accept(text.back());
      }
      const std::string written = kTokenizer.decode(text, AddSpecial::kNo);
      const auto value = ordered_json::parse(written, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << written;
      EXPECT_EQ(violation(schema, value, schema), "") << written;
    }
  }
}

TEST(TokenMask, IsThatOfThePlainDefinitionAlongDrawnTexts) {
  for (const char* source : kSchemas) {
    SCOPED_TRACE(source);
    for (unsigned seed = 100; seed < 103; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      const auto constraint = constrain_to(source);
      ByteReader reader(grammar_of(source));
      for (int step = 0; step < 40; ++step) {
        auto mask = mask_for(*kVocabulary);
        ASSERT_TRUE(constraint->allow({}, mask));
        expect_plain_mask(mask, reader, *kVocabulary);
        if (HasFatalFailure()) return;
        const TokenId token = draw(allowed_by(*constraint), step, random);
        if (token == kTokenizer.end()) break;
        constraint->accept(token);
        ASSERT_TRUE(reader.read(kTokenizer.piece(token)));
      }
    }
  }
}

TEST(TokenMask, OfAPathIsThatOfTheSameTokensAccepted) {
  for (const char* source : kSchemas) {
    SCOPED_TRACE(source);
    std::mt19937 random(7);
    const auto start = constrain_to(source);
    const auto accepted = start->clone();
    std::vector<TokenId> path;
    for (int step = 0; step < 40; ++step) {
      const auto allowed = allowed_by(*accepted);
      EXPECT_EQ(allowed_by(*start, path), allowed);
      path.push_back(draw(allowed, step, random));
      accepted->accept(path.back());
    }
  }
}

TEST(TokenMask, ClearsAllBitsBehindAPathThatIsNotAllowed) {
  const auto constraint = constrain_to(R"({"type": "integer"})");
  std::vector<std::uint32_t> mask(100, ~0u);
  EXPECT_FALSE(constraint->allow(bytes("1x"), mask));
  EXPECT_EQ(mask, std::vector<std::uint32_t>(100, 0u));
  for (const TokenId token : {kTokenizer.end(), kTokenizer.special(), TokenId{-1}, TokenId{100000}})
    EXPECT_FALSE(constraint->allow(std::array{token}, mask)) << token;
  EXPECT_TRUE(constraint->allow(bytes("12"), mask));
  EXPECT_TRUE(has(mask, kTokenizer.end()));
  EXPECT_EQ(mask.back(), 0u);
}

TEST(TokenMask, LeavesOnlyTheEndWhereNothingElseMayFollow) {
  const auto constraint = constrain_to(R"({"const": true})");
  const std::vector<TokenId> end{kTokenizer.end()};
  EXPECT_EQ(allowed_by(*constraint, bytes("true")), end);
  auto path = bytes("true");
  path.push_back(kTokenizer.end());
  EXPECT_EQ(allowed_by(*constraint, path), end);  // a tree may have nodes after the end
  path.push_back(kTokenizer.end());
  EXPECT_EQ(allowed_by(*constraint, path), end);
  path.push_back('t');
  auto mask = mask_for(*kVocabulary);
  EXPECT_FALSE(constraint->allow(path, mask));
}

TEST(TokenMask, NeverAllowsSpecialTokensOrIdsWithoutBytes) {
  const auto constraint = constrain_to(R"({"type": "string"})");
  for (const TokenId token : allowed_by(*constraint, bytes("\"")))
    EXPECT_FALSE(kTokenizer.piece(token).empty() || kTokenizer.is_special(token)) << token;
}

TEST(TokenMask, FollowsACharacterThatTokensSplit) {
  const auto constraint = constrain_to(R"({"type": "string", "maxLength": 1})");
  const auto find = [](std::string_view piece) {
    for (TokenId token = 0; token < kTokenizer.end(); ++token)
      if (kTokenizer.piece(token) == piece) return token;
    return TokenId{-1};
  };
  const TokenId head = find("\xF0\x9F"), tail = find("\x98\x80");
  const auto split = allowed_by(*constraint, std::array{TokenId{'"'}, head});
  EXPECT_TRUE(std::ranges::find(split, tail) != split.end());
  for (const TokenId token : split)
    EXPECT_EQ(static_cast<std::uint8_t>(kTokenizer.piece(token)[0]) & 0xC0, 0x80) << token;
  EXPECT_EQ(allowed_by(*constraint, std::array{TokenId{'"'}, head, tail}),
            std::vector<TokenId>{'"'});
}

TEST(TokenMask, OfOneCloneDoesNotFollowAnother) {
  const auto one = constrain_to(R"({"enum": ["ab", "ac"]})");
  one->accept('"');
  const auto other = one->clone();
  one->accept('a');
  one->accept('b');
  EXPECT_EQ(allowed_by(*one), std::vector<TokenId>{'"'});
  other->accept('a');
  other->accept('c');
  EXPECT_EQ(allowed_by(*other), std::vector<TokenId>{'"'});
}

TEST(TokenMask, RefusesATokenThatItDidNotAllow) {
  const auto constraint = constrain_to("{}");
  EXPECT_NE(error_of([&] { constraint->accept('x'); }).find("does not allow token 120"),
            std::string::npos);
  std::vector<std::uint32_t> small(2);
  EXPECT_NE(error_of([&] { constraint->allow({}, small); }).find("64 bits is too small"),
            std::string::npos);
}

TEST(TokenMask, NeedsTheBytesOfTheGrammarAsTokens) {
  const auto vocabulary = [](std::vector<std::string> pieces) {
    return std::make_shared<const VocabularyTrie>(ToyTokenizer(std::move(pieces)));
  };
  const auto null = grammar_of(R"({"type": "null"})");
  EXPECT_NE(error_of([&] {
              constrain(null, vocabulary({"n", "u", "null"}));
            }).find("108"),
            std::string::npos);
  // Without a digit 7, numbers have no 7 in them; text goes on by what there is.
  auto mask = std::vector<std::uint32_t>(1);
  const auto digits = constrain(grammar_of(R"({"type": "integer", "minimum": 0})"),
                                vocabulary({"0", "1", "17", "10"}));
  EXPECT_TRUE(digits->allow({}, mask));
  EXPECT_EQ(mask[0], 0b1011u);
}

TEST(TokenMask, SpellsLiteralsAroundSchemas) {
  const auto call = [](const char* name, const char* schema) {
    return sequence(
        std::array{literal(std::string("<call>{\"name\": \"") + name + "\", \"args\": "),
                   json_grammar(ordered_json::parse(schema)), literal("}</call>")});
  };
  const auto calls = std::make_shared<const Grammar>(alternatives(
      std::array{call("add", R"({"type": "integer"})"), call("append", R"({"type": "object"})")}));
  EXPECT_TRUE(reads(calls, R"(<call>{"name": "add", "args": 12}</call>)"));
  EXPECT_TRUE(reads(calls, R"(<call>{"name": "append", "args": {"a": [1]}}</call>)"));
  EXPECT_FALSE(reads(calls, R"(<call>{"name": "add", "args": {}}</call>)"));
  EXPECT_FALSE(reads(calls, R"(<call>{"name": "append", "args": {}})"));
  EXPECT_NE(error_of([] { literal(""); }), "");
  EXPECT_NE(error_of([] { sequence({}); }), "");
  EXPECT_NE(error_of([] { alternatives({}); }), "");
}

TEST(MaskCache, DropsWhatWasNotUsedForLongest) {
  MaskCache cache(3 * (1 + 4));
  for (const char* key : {"a", "b", "c"}) cache.insert(key, {static_cast<std::uint8_t>(*key)});
  EXPECT_NE(cache.find("a"), nullptr);
  cache.insert("d", {4});
  EXPECT_EQ(cache.find("b"), nullptr);
  ASSERT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(*cache.find("a"), MaskCache::Mask{'a'});
  EXPECT_LE(cache.bytes(), 15u);
}

}  // namespace
}  // namespace canopy::grammar
