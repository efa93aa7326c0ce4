// Schemas of strangers: what is refused and how, what is too large, and what was mangled.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/error_of.h"
#include "tests/grammar/mask_checks.h"
#include "tests/grammar/toy_tokenizer.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

/// The error has both: a place and what is wrong.
void expect_error(const std::string& schema, const std::string& place, const std::string& cause) {
  const std::string error = error_of([&] { json_grammar(ordered_json::parse(schema)); });
  EXPECT_NE(error.find(place + ": "), std::string::npos) << schema << "\n" << error;
  EXPECT_NE(error.find(cause), std::string::npos) << schema << "\n" << error;
}

std::string numbered(std::string name, int i) { return name.append(std::to_string(i)); }

TEST(HostileSchema, IsRefusedByTheNameOfAKeywordThatIsNotSupported) {
  for (const std::string keyword : {"not",
                                    "patternProperties",
                                    "uniqueItems",
                                    "multipleOf",
                                    "dependencies",
                                    "dependentRequired",
                                    "if",
                                    "unevaluatedItems",
                                    "then",
                                    "else",
                                    "contains",
                                    "minProperties",
                                    "maxProperties",
                                    "propertyNames",
                                    "unevaluatedProperties",
                                    "$anchor",
                                    "$dynamicRef",
                                    "nullable",
                                    "id",
                                    "unknown"})
    expect_error(R"({"properties": {"a/b": {"items": {")" + keyword + R"(": 1}}}})",
                 "#/properties/a~1b/items",
                 std::string("the keyword \"").append(keyword).append("\" is not supported"));
  expect_error(R"({"items": {"$id": "x"}})", "#/items", "\"$id\"");
  expect_error(R"({"anyOf": [true, {"not": true}]})", "#/anyOf/1", "\"not\"");
  expect_error(R"({"$ref": "#/$defs/a", "$defs": {"a": {"format": "x"}}})", "#/$defs/a",
               "the format \"x\" is not supported");
  expect_error(R"({"type": "integer", "format": "x"})", "#", "the format \"x\" is not supported");
  expect_error(R"({"uniqueItems": true})", "#", "\"uniqueItems\" is not supported");
  expect_error(R"({"propertyNames": {"pattern": "x"}})", "#", "\"propertyNames\" is not supported");
  expect_error(R"({"additionalProperties": {"not": true}})", "#/additionalProperties", "\"not\"");
}

TEST(HostileSchema, IsRefusedWhereKeywordsCannotBeJoined) {
  expect_error(R"({"$ref": "#", "type": "object"})", "#", "\"type\" next to \"$ref\"");
  expect_error(R"({"anyOf": [true], "properties": {}})", "#", "\"properties\" next to \"anyOf\"");
  expect_error(R"({"enum": ["a"], "minLength": 2})", "#", "\"minLength\" next to \"enum\"");
  expect_error(R"({"const": "a", "anyOf": [true]})", "#", "\"anyOf\" next to \"const\"");
}

TEST(HostileSchema, IsRefusedWhereMalformed) {
  for (const char* schema : {"1", "[]", "\"object\"", "null"})
    expect_error(schema, "#", "a schema is an object, true or false");
  expect_error(R"({"type": "text"})", "#", "\"type\" is \"text\"");
  expect_error(R"({"type": [1]})", "#", "\"type\" is 1");
  expect_error(R"({"type": []})", "#", "empty list");
  expect_error(R"({"properties": []})", "#", "\"properties\" is not");
  expect_error(R"({"properties": {"a": 1}})", "#/properties/a", "a schema is");
  expect_error(R"({"required": "a"})", "#", "\"required\" is not a list");
  expect_error(R"({"required": [1]})", "#", "\"required\" has");
  expect_error(R"({"minLength": -1})", "#", "\"minLength\" is not a count");
  expect_error(R"({"maxItems": 1.5})", "#", "\"maxItems\" is not a count");
  expect_error(R"({"minItems": 1e300})", "#", "\"minItems\" is more than");
  expect_error(R"({"minimum": "1"})", "#", "\"minimum\" is not a number");
  expect_error(R"({"minimum": 1, "exclusiveMinimum": true})", "#", "\"exclusiveMinimum\" is not");
  expect_error(R"({"enum": 1})", "#", "\"enum\" is not a list");
  expect_error(R"({"anyOf": []})", "#", "\"anyOf\" is not");
  expect_error(R"({"items": [true, 1]})", "#/items/1", "a schema is");
  expect_error(R"({"prefixItems": true})", "#", "\"prefixItems\" is not");
  expect_error(R"({"format": 1})", "#", "\"format\" is not");
  expect_error(R"({"allOf": []})", "#", "\"allOf\" is not");
  expect_error(R"({"oneOf": []})", "#", "\"oneOf\" is not");
  for (const char* open :
       {R"([{"type": "integer"}, {"type": "number"}])", "[true, {}]",
        R"([{"type": "object"}, {"type": "object"}])",
        R"([{"properties": {"k": {"const": 1}}}, {"properties": {"a": true}}])",
        R"([{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"enum": [2, 1]}}}])",
        R"([{"properties": {"k": {"const": 1}}}, {"enum": [{}]}])",
        R"([{"anyOf": [{"type": "null"}]}, {"type": "string"}])"})
    expect_error(std::string("{\"oneOf\": ") + open + "}", "#", "\"oneOf\" is not supported, but");
  expect_error(R"({"pattern": 1})", "#", "\"pattern\" is not a text");
  expect_error(R"({"allOf": [{"type": "string"}, {"minItems": 1}]})", "#/allOf/1",
               "no plain object");
  expect_error(R"({"allOf": [{"minItems": 1}, {"type": "string"}]})", "#/allOf/0",
               "no plain object");
  expect_error(R"({"allOf": [{"properties": {"a": {"type": "string"}}},
                             {"properties": {"a": {"type": "null"}}}]})",
               "#/allOf/1", "two schemas of the property \"a\"");
  expect_error(R"({"allOf": [{"properties": {"a": true}, "additionalProperties": false},
                             {"properties": {"b": true}}]})",
               "#/allOf/0", "\"additionalProperties\" forbids \"b\"");
  expect_error(R"({"$ref": 1})", "#", "\"$ref\" is not a text");
  for (const char* target : {"#/$defs/b", "#/x/~2", "#/$defs/list/01", "#/$defs/list/7"})
    expect_error(std::string(R"({"$defs": {"list": [true]}, "$ref": ")") + target + "\"}", "#",
                 "which is not there");
  for (const char* target : {"http://x/y", "other.json#/a", "#name"})
    expect_error(std::string(R"({"$ref": ")") + target + "\"}", "#", "are supported");
}

TEST(HostileSchema, IsRefusedWhereNoTextSatisfiesIt) {
  expect_error(R"({"minLength": 3, "maxLength": 2})", "#", "\"minLength\" is more");
  expect_error(R"({"minItems": 3, "maxItems": 2})", "#", "\"minItems\" is more");
  expect_error(R"({"minimum": 3, "maximum": 2})", "#", "no number lies");
  expect_error(R"({"exclusiveMinimum": 3, "maximum": 3})", "#", "no number lies");
  expect_error(R"({"type": "integer", "minimum": 1.2, "maximum": 1.8})", "#", "no number of");
  expect_error(R"({"type": "integer", "minimum": 1e18})", "#", "no number of");
  expect_error(R"({"type": "string", "enum": [1]})", "#", "no value satisfies");
  expect_error(R"({"enum": []})", "#", "no value satisfies");
  expect_error(R"({"required": ["a"], "additionalProperties": false})", "#", "names \"a\"");
  expect_error(R"({"properties": {"n": {"$ref": "#"}}, "required": ["n"]})", "#/properties/n",
               "no text of");
  expect_error(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})", "#/items",
               "no text of");
  expect_error(R"({"$ref": "#"})", "#", "leads back");
  expect_error(R"({"allOf": [{"$ref": "#"}]})", "#", "leads back");
  expect_error(R"({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a":
                   {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}})",
               "#/$defs/a", "leads back");
  expect_error(R"({"prefixItems": [true], "items": false, "minItems": 2})", "#/items",
               "no text of");
  expect_error(R"({"type": "string", "format": "date", "maxLength": 9})", "#", "\"maxLength\"");
  expect_error(R"({"anyOf": [{"$ref": "#/$defs/a"}, true],
                   "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "array", "items":
                   {"$ref": "#/$defs/b"}}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}})",
               "#/$defs/a", "leads back");
}

TEST(HostileSchema, IsRefusedWhereTooLarge) {
  ordered_json deep = true;
  for (int i = 0; i < 40; ++i) deep = ordered_json{{"items", {{"anyOf", {deep}}}}};
  EXPECT_NE(error_of([&] { json_grammar(deep); }).find("levels"), std::string::npos);
  ordered_json wide;
  for (int i = 0; i < 257; ++i) wide["properties"][numbered("p", i)] = true;
  EXPECT_NE(error_of([&] { json_grammar(wide); }).find("256 named"), std::string::npos);
  ordered_json many;
  for (int i = 0; i < 100'000; ++i)
    many["enum"].push_back(numbered("", i) + " of a hundred thousand");
  EXPECT_NE(error_of([&] { json_grammar(many); }).find("states"), std::string::npos);
  ordered_json references;
  for (int i = 0; i < 1100; ++i) {
    references["$defs"].push_back(true);
    references["anyOf"].push_back({{"$ref", numbered("#/$defs/", i)}});
  }
  EXPECT_NE(error_of([&] { json_grammar(references); }).find("1024"), std::string::npos);
}

TEST(HostileSchema, MayCountFarWithoutCost) {
  const auto grammar = grammar_of(
      R"({"items": {"type": "string", "maxLength": 1000000000}, "maxItems": 1000000000})");
  EXPECT_LT(grammar->automaton().size(), 200u);
  EXPECT_TRUE(reads(grammar, R"(["a", "b"])"));
}

TEST(HostileSchema, HasBoundedReadings) {
  // Every level doubles the ways to read the text so far.
  const auto grammar = grammar_of(R"({"anyOf": [{"type": "null"},
      {"type": "array", "items": {"$ref": "#"}, "maxItems": 5},
      {"type": "array", "items": {"$ref": "#"}, "maxItems": 6}]})");
  ByteReader reader(grammar);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(reader.read("["));
    ASSERT_LE(reader.readings(), 600u);
  }
  EXPECT_TRUE(reader.read("null"));
  EXPECT_TRUE(reader.read(std::string(64, ']')));
  EXPECT_TRUE(reader.complete());
}

/// Changes a schema at a random place: removes, repeats, or replaces what is there.
void mutate(ordered_json& value, std::mt19937& random) {
  static const std::vector<ordered_json> kPieces{nullptr,
                                                 true,
                                                 false,
                                                 0,
                                                 -1,
                                                 3.5,
                                                 1e300,
                                                 "",
                                                 "a",
                                                 "#",
                                                 "#/properties/a",
                                                 "string",
                                                 "date-time",
                                                 "email",
                                                 "^a+[^b]$",
                                                 "(?!x)\\w{2,}",
                                                 "(",
                                                 "array",
                                                 ordered_json::array(),
                                                 ordered_json::object(),
                                                 {{"$ref", "#"}},
                                                 {{"type", "object"}},
                                                 {{"minimum", -1e-300}},
                                                 {{"enum", {1, "a", {{"b", 2}}}}}};
  static const std::vector<std::string> kKeys{
      "type",    "properties", "required",         "additionalProperties",
      "items",   "minItems",   "maxItems",         "enum",
      "const",   "anyOf",      "minLength",        "maxLength",
      "minimum", "maximum",    "exclusiveMinimum", "exclusiveMaximum",
      "$ref",    "$defs",      "pattern",          "a",
      "allOf",   "format",     "prefixItems",      "unevaluatedProperties"};
  const auto piece = [&] { return kPieces[random() % kPieces.size()]; };
  if (value.is_structured() && !value.empty() && random() % 4 != 0) {
    auto item = value.begin();
    std::advance(item, static_cast<std::ptrdiff_t>(random() % value.size()));
    if (random() % 8 == 0)
      value.erase(item);
    else
      mutate(*item, random);
  } else if (value.is_object()) {
    value[kKeys[random() % kKeys.size()]] = piece();
  } else if (value.is_array()) {
    value.push_back(piece());
  } else {
    value = piece();
  }
}

TEST(HostileSchema, IsReadOrRefusedHoweverMangled) {
  const ToyTokenizer tokenizer(ToyTokenizer::json_pieces());
  const auto vocabulary = std::make_shared<const VocabularyTrie>(tokenizer);
  const std::array seeds{
      R"({"type": "object", "properties": {"a": {"type": "string", "minLength": 1},
          "b": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}}},
          "required": ["a"], "additionalProperties": false})",
      R"({"anyOf": [{"$ref": "#/$defs/x"}, {"enum": ["a", 1, null]}],
          "$defs": {"x": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3}}})"};
  int read = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ordered_json schema = ordered_json::parse(seeds[seed % seeds.size()]);
    for (unsigned i = 0; i <= seed % 4; ++i) mutate(schema, random);
    SCOPED_TRACE(schema.dump());
    std::shared_ptr<const Grammar> grammar;
    const std::string error =
        error_of([&] { grammar = std::make_shared<const Grammar>(json_grammar(schema)); });
    if (!error.empty()) continue;
    ++read;
    const auto constraint = constrain(grammar, vocabulary);
    auto mask = mask_for(*vocabulary);
    for (int step = 0; step < 12; ++step) {
      ASSERT_TRUE(constraint->allow({}, mask));
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary->vocab(); ++token)
        if (has(mask, token)) allowed.push_back(token);
      ASSERT_FALSE(allowed.empty());
      constraint->accept(allowed[random() % allowed.size()]);
    }
  }
  EXPECT_GT(read, 100);  // else the loop would show little
}

}  // namespace
}  // namespace canopy::grammar
