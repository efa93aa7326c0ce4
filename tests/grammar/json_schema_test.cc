// Texts that each keyword allows and refuses, byte by byte and through masks of a toy vocabulary.
#include "src/grammar/schema/json_schema.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"
#include "tests/grammar/mask_checks.h"

namespace canopy::grammar {
namespace {

using Texts = std::vector<std::string>;

/// Reads the text through masks, by the longest token that it goes on with or, for short tokens, by
/// single bytes, and holds every mask against the plain definition.
bool passes_masks(const std::shared_ptr<const Grammar>& grammar, std::string_view text,
                  std::size_t longest_token) {
  const auto constraint = constrain(grammar, kVocabulary);
  ByteReader reader(grammar);
  auto mask = mask_for(*kVocabulary);
  while (true) {
    EXPECT_TRUE(constraint->allow({}, mask));
    expect_plain_mask(mask, reader, *kVocabulary);
    if (::testing::Test::HasFatalFailure()) return false;
    if (text.empty()) return has(mask, kTokenizer.end());
    TokenId next = static_cast<std::uint8_t>(text[0]);
    for (TokenId token = 256; token < kTokenizer.end(); ++token) {
      const std::string_view piece = kTokenizer.piece(token);
      if (piece.size() <= longest_token && piece.size() > kTokenizer.piece(next).size() &&
          text.starts_with(piece) && has(mask, token))
        next = token;
    }
    if (!has(mask, next)) return false;
    constraint->accept(next);
    EXPECT_TRUE(reader.read(kTokenizer.piece(next)));
    text.remove_prefix(kTokenizer.piece(next).size());
  }
}

void expect(std::string_view schema, const Texts& allowed, const Texts& refused) {
  SCOPED_TRACE(schema);
  const auto grammar = grammar_of(schema);
  const auto check = [&](const std::string& text, bool expected) {
    SCOPED_TRACE(text);
    EXPECT_EQ(reads(grammar, text), expected);
    EXPECT_EQ(passes_masks(grammar, text, 1), expected);
    EXPECT_EQ(passes_masks(grammar, text, 100), expected);
  };
  for (const std::string& text : allowed) check(text, true);
  for (const std::string& text : refused) check(text, false);
}

/// A string of `count` letters.
std::string letters(std::size_t count) { return '"' + std::string(count, 'a') + '"'; }

std::string indented(std::size_t spaces) {
  return std::string("[1,\n").append(spaces, ' ').append("2]");
}

const Texts kAnyValues{"null",
                       "true",
                       "false",
                       "0",
                       "-12.50",
                       "1e5",
                       "-0.5E-10",
                       R"("")",
                       R"("a\"\\\/\b\f\n\r\tz")",
                       "[]",
                       "{}",
                       R"([1, [true,{"a": null}], "x"])",
                       R"({"a":{"b": [ ]},"c": "d"})",
                       "{\n  \"a\": [\n    1,\n    2\n  ]\n}"};

TEST(JsonSchema, AllowsAnyValueWithoutKeywords) {
  const Texts refused{"",     "nul",  "01",    "+1",      ".5",         "1.",        "1e",
                      "[1,]", "[,1]", "{a:1}", "{\"a\"}", "{\"a\":1,}", "'a'",       "[1 ,2]",
                      "1 2",  " 1",   "1\n",   "[1}",     "\"a",        "{\"a\" :1}"};
  expect("true", kAnyValues, refused);
  expect("{}", kAnyValues, refused);
  expect(R"({"title": "t", "description": "d", "default": 1, "examples": [1], "$schema": "s",
             "$id": "i", "$defs": {"x": {"pattern": "unused"}}, "$comment": "c"})",
         kAnyValues, refused);
}

TEST(JsonSchema, AllowsNothingForFalse) {
  EXPECT_NE(error_of([] { grammar_of("false"); }).find("#: no text"), std::string::npos);
  expect(R"({"properties": {"a": false}, "additionalProperties": true})", {"{}", R"({"b": 1})"},
         {R"({"a": 1})"});
}

TEST(JsonSchema, BoundsWhiteSpace) {
  expect("{}", {"{ }", "[\n]", "{\"a\": 1}", "{\"a\":1}", indented(32), "[ 1, 2 ]"},
         {"{  }", "[\n\n]", "{\"a\":  1}", "{\"a\":\n1}", indented(33), "[\t1]", "[1\r\n]"});
}

TEST(JsonSchema, KnowsTypes) {
  expect(R"({"type": "null"})", {"null"}, {"true", "\"null\"", "nullnull"});
  expect(R"({"type": "boolean"})", {"true", "false"}, {"null", "0", "True"});
  expect(R"({"type": "integer"})", {"0", "-1", "123456789012345678"},
         {"-0", "01", "1.0", "1e2", "1234567890123456789", "\"1\"", "-"});
  expect(R"({"type": "number"})", {"0", "-1", "0.5", "-0.5", "1e10", "1.5E+10", "0.0"},
         {"00", "1e100", ".5", "-", "-.5", "NaN"});
  expect(R"({"type": "string"})", {R"("")", R"("abc")", R"("null")"}, {"abc", "1", "null"});
  expect(R"({"type": "array"})", {"[]", R"([1, "a", [], {}])"}, {"{}", "1"});
  expect(R"({"type": "object"})", {"{}", R"({"a": [1], "b": {}})"}, {"[]", "1", R"({1: 2})"});
  expect(R"({"type": ["string", "null"]})", {"null", "\"a\""}, {"1", "true"});
  expect(R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"true"});
}

TEST(JsonSchema, KnowsStrings) {
  expect(R"({"type": "string"})",
         {R"("\u0041\u00e9\uFFFF")", R"("\ud83d\ude00")", R"("\uDBFF\uDFFF")", "\"é€😀\"",
          "\"\x7F\"", "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"", R"("\u0000")"},
         {R"("\u004")", R"("\x41")", R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")",
          R"("\ud83dA")", "\"a\nb\"", "\"\t\"", "\"\x80\"", "\"\xC3\"", "\"\xC0\x80\"",
          "\"\xE0\x80\x80\"", "\"\xED\xA0\x80\"", "\"\xF0\x80\x80\x80\"", "\"\xF4\x90\x80\x80\"",
          "\"\xF5\x80\x80\x80\"", "\"\xFF\""});
}

TEST(JsonSchema, CountsCharacters) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("abc")", "\"éé\"", "\"😀😀😀\"", R"("\n\"")", R"("\ud83d\ude00\ud83d\ude00")",
          R"("\u0041\u0042\u0043")"},
         {R"("")", R"("a")", R"("abcd")", "\"é\"", "\"😀😀😀😀\"", R"("\ud83d\ude00")", R"("\u0041")"});
  expect(R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")", R"("\n")"});
  expect(R"({"type": "string", "minLength": 30})", {letters(30)}, {letters(29)});
  expect(R"({"type": "string", "maxLength": 30})", {letters(30)}, {letters(31)});
}

TEST(JsonSchema, WritesPropertiesInTheirOrder) {
  const char* schema = R"({"type": "object", "additionalProperties": false, "required": ["b"],
      "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "boolean"}}})";
  expect(schema,
         {R"({"b":null})", R"({"a": 1, "b": null})", R"({"b": null, "c": true})",
          R"({"a":1,"b":null,"c":false})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
         {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": 1})", R"({"b": null, "b": null})",
          R"({"b": null, "d": 1})", R"({"a": 1,})", R"({"b": null,})", R"({,"b": null})"});
  expect(R"({"type": "object", "properties": {}, "additionalProperties": false})", {"{}"},
         {R"({"a": 1})", R"({"": 1})"});
}

TEST(JsonSchema, WritesAdditionalPropertiesBehindThem) {
  expect(R"({"properties": {"ab": {"type": "integer"}, "é": true}, "additionalProperties": true})",
         {"{}", R"({"ab": 1})", R"({"ab": 1, "a": "x", "abc": [], "": 1})", R"({"a": 1, "b": 2})",
          "{\"é\": 1, \"è\": 2, \"\xC3\xAA\": 3}"},
         {R"({"ab": "x"})", R"({"a": 1, "ab": 2})", R"({"ab": 1, "ab": 2})",
          R"({"ab": 1, "\u0061b": 2})", R"({"c": 1, "é": 1})", R"({"a\n": 1})"});
  expect(R"({"additionalProperties": {"type": "integer"}, "required": ["x"],
             "properties": {"a": {"type": "string"}}})",
         {R"({"a": "b", "x": 1})", R"({"x": 1, "y": 2})"},
         {"{}", R"({"a": 1, "x": 1})", R"({"x": "1"})", R"({"y": 1, "x": 1})", R"({"y": 1})"});
  expect(R"({"properties": {"q\"t": {"type": "null"}}, "additionalProperties": {}})",
         {R"({"q\"t": null, "q": 1})"}, {R"({"q\"t": 1})"});
}

TEST(JsonSchema, WritesNoOtherPropertiesWhereSomeAreNamed) {
  expect(R"({"type": "object", "properties": {"a": {"type": "null"}}})", {"{}", R"({"a": null})"},
         {R"({"b": 1})", R"({"a": null, "b": 1})"});
  expect(R"({"type": "object", "properties": {}})", {"{}"}, {R"({"b": 1})"});
  // A required property is there, even where the schema has no other word on it.
  expect(R"({"properties": {"a": {"type": "null"}}, "required": ["b", "a"]})",
         {R"({"a": null, "b": [1]})"}, {R"({"a": null})", R"({"a": null, "b": 1, "c": 1})"});
  expect(R"({"type": "object", "required": ["a"]})", {R"({"a": 1, "b": 2})"}, {"{}"});
  for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
    const std::string schema = std::string(R"({"type": "object", ")") + keyword + R"(": )";
    expect(schema + "false}", {"{}"}, {R"({"a": 1})"});
    expect(schema + R"(true, "properties": {"a": true}})", {R"({"b": 1})"}, {});
  }
}

TEST(JsonSchema, PassesOverWhatChangesNothing) {
  expect(R"({"type": "object", "properties": null, "required": null, "description": null,
             "additionalProperties": null, "oneOf": null, "$ref": null, "enum": null,
             "format": null, "minProperties": 0, "propertyNames": {"type": "string"}})",
         {"{}", R"({"a": 1})"}, {"1"});
  expect(R"({"type": "array", "uniqueItems": false, "x-order": 3, "example": [1]})", {"[1,1]"},
         {"1"});
  expect(R"({"type": "string", "contentMediaType": "text/plain", "format": "password"})",
         {R"("a")"}, {"1"});
  expect(R"({"const": null})", {"null"}, {"1"});
}

TEST(JsonSchema, KnowsTuples) {
  const char* pair = R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}],
                         "minItems": 2, "maxItems": 2})";
  expect(pair, {"[1,null]", "[ 1, null ]", "[\n  1,\n  null\n]"},
         {"[]", "[1]", "[null,1]", "[1,null,1]", "[1,null,"});
  expect(R"({"items": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "maxItems": 2})",
         {"[1,null]"}, {"[1]", "[1,null,1]"});
  expect(R"({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "maxItems": 3})",
         {"[]", "[null]", "[null,1]", "[null,1,2]"}, {"[1]", "[null,null]", "[null,1,2,3]"});
  expect(R"({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 3})",
         {"[null,1,2]", "[null,1,2,3]"}, {"[null,1]", "[null]", "[]", "[null,1\n"});
  expect(R"({"prefixItems": [{"type": "null"}, true], "items": false})",
         {"[]", "[null]", "[null,{}]"}, {"[null,1,2]"});
  expect(R"({"prefixItems": [{"type": "null"}, true], "maxItems": 1})", {"[]", "[null]"},
         {"[null,1]"});
  expect(R"({"items": [{"type": "null"}], "additionalItems": {"type": "integer"}})",
         {"[null,1]", "[]"}, {"[null,null]"});
}

TEST(JsonSchema, JoinsPlainObjects) {
  const char* both = R"({"allOf": [{"$ref": "#/$defs/base"},
      {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}],
      "properties": {"c": {"type": "null"}}, "title": "t",
      "$defs": {"base": {"type": "object", "properties": {"a": {"type": "integer"}}}}})";
  expect(both, {R"({"b": null})", R"({"a": 1, "b": null, "c": null})"},
         {"{}", R"({"a": 1})", R"({"b": null, "d": 1})", "1"});
  // One schema alone may be of any type: so pydantic gives a reference a default.
  expect(R"({"allOf": [{"$ref": "#/$defs/color"}], "default": "red",
             "$defs": {"color": {"enum": ["red", "blue"]}}})",
         {R"("red")"}, {R"("green")"});
  expect(R"({"allOf": [true, {}, {"type": "integer"}]})", {"1"}, {"null"});
  expect(R"({"allOf": [{"properties": {"a": {"type": "null"}}, "additionalProperties": true},
                       {"required": ["a"], "unevaluatedProperties": true}]})",
         {R"({"a": null, "b": 1})"}, {"{}"});
  expect(R"({"allOf": [{"properties": {"a": {"type": "null"}}}, {"required": ["a"]}],
             "unevaluatedProperties": false})",
         {R"({"a": null})"}, {"{}", R"({"a": null, "b": 1})"});
  // It may lead back to itself through a property.
  const char* node = R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"allOf":
      [{"$ref": "#/$defs/n"}, {"properties": {"v": {"type": "null"}}}]}}}}})";
  expect(node, {"{}", R"({"next":{"next":{"v":null},"v":null}})"}, {R"({"v": null})"});
}

TEST(JsonSchema, KnowsAlternativesThatExcludeEachOther) {
  expect(R"({"oneOf": [{"type": "string"}, {"type": "null"}, {"type": "number"}]})",
         {R"("a")", "null", "1.5"}, {"true", "{}"});
  // As pydantic writes a union by a discriminator, which has a default and so is not required.
  const char* pets = R"({"discriminator": {"propertyName": "kind", "mapping": {}},
      "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}, {"type": "null"}], "$defs": {
      "cat": {"type": "object", "properties": {"kind": {"const": "cat", "default": "cat"},
              "friend": {"$ref": "#"}}},
      "dog": {"type": "object", "properties": {"age": {"type": "integer"},
              "kind": {"enum": ["dog", "wolf"]}}, "required": ["age"]}}})";
  expect(pets,
         {R"({"kind": "cat"})", R"({"age": 1, "kind": "wolf"})", "null",
          R"({"kind": "cat", "friend": {"age": 1, "kind": "dog"}})"},
         {"{}", R"({"kind": "dog"})", R"({"age": 1})", R"({"age": 1, "kind": "cat"})",
          R"({"friend": null})"});
  EXPECT_TRUE(ByteReader(std::make_shared<const Grammar>(
                             json_grammar(parse_ordered_json(pets), Values::kObjects)))
                  .reads(R"({"kind": "cat"})"));
  EXPECT_FALSE(ByteReader(std::make_shared<const Grammar>(
                              json_grammar(parse_ordered_json(pets), Values::kObjects)))
                   .reads("null"));
}

TEST(JsonSchema, WritesFormats) {
  const auto format = [](const char* name) {
    return std::string(R"({"type": "string", "format": ")") + name + "\"}";
  };
  expect(format("date"),
         {R"("2024-02-29")", R"("2000-02-29")", R"("2023-12-31")", R"("1999-04-30")"},
         {R"("2023-02-29")", R"("1900-02-29")", R"("2023-13-01")", R"("2023-00-10")",
          R"("2023-04-31")", R"("2023-01-32")", R"("2023-01-00")", R"("23-01-01")",
          R"("0000-01-01")", R"("2023-1-1")", R"("")", "20230101"});
  expect(format("time"), {R"("00:00:00Z")", R"("23:59:59.123456+23:59")", R"("12:30:00.5-08:00")"},
         {R"("24:00:00Z")", R"("12:60:00Z")", R"("12:00:60Z")", R"("12:00:00")", R"("12:00Z")",
          R"("12:00:00.Z")", R"("12:00:00+24:00")", R"("12:00:00.1234567Z")"});
  expect(format("date-time"), {R"("2024-02-29T23:59:59Z")", R"("2026-11-26T03:00:00.25+01:00")"},
         {R"("2023-02-29T23:59:59Z")", R"("2024-02-29 23:59:59Z")", R"("2024-02-29")"});
  expect(format("duration"),
         {R"("P3D")", R"("PT36H")", R"("P1DT12H30M5S")", R"("P2W")", R"("PT5S")"},
         {R"("P")", R"("PT")", R"("P1DT")", R"("1D")", R"("P5S")", R"("PT1H5S")", R"("P1W2D")"});
  expect(format("uuid"), {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567-e89b-92d3-a456-426614174000")", R"("123e4567-e89b-12d3-c456-426614174000")",
          R"("123e4567e89b12d3a456426614174000")", R"("123g4567-e89b-12d3-a456-426614174000")"});
  expect(format("uuid4"), {R"("123e4567-e89b-42d3-a456-426614174000")"},
         {R"("123e4567-e89b-12d3-a456-426614174000")"});
  expect(format("ipv4"), {R"("0.0.0.0")", R"("255.10.9.199")"},
         {R"("256.1.1.1")", R"("01.1.1.1")", R"("1.1.1")", R"("1.1.1.1.1")"});
  expect(format("ipv6"),
         {R"("::")", R"("::1")", R"("1::")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7:8")",
          R"("1:2:3:4:5:6:7::")", R"("::2:3:4:5:6:7:8")", R"("2001:DB8::ff00:42:8329")"},
         {R"(":")", R"(":::")", R"("1:2:3:4:5:6:7")", R"("1:2:3:4:5:6:7:8:9")",
          R"("1::2:3:4:5:6:7:8")", R"("1::2::3")", R"("12345::")", R"("g::")", R"("1:")"});
  expect(format("hostname"), {R"("a")", R"("example.com")", R"("a-1.b2")"},
         {R"("-a")", R"("a-")", R"("a..b")", R"("a_b")", R"("")"});
  expect(format("email"), {R"("a@b.cc")", R"("first.last+tag@mail.example-1.org")"},
         {R"("a@b")", R"("a@b.c")", R"("@b.cc")", R"(".a@b.cc")", R"("a.@b.cc")", R"("a..b@c.dd")",
          R"("a@-b.cc")", R"("a@b-.cc")", R"("a@b.c1")", R"("a b@c.dd")"});
  expect(format("uri"),
         {R"("https://example.com")", R"("http://a:8080/b/c%20d?e=f&g=h#i")", R"("ftp://a.b/")"},
         {R"("example.com")", R"("http://")", R"("http://a b")", R"("http://a/%2")", R"("a,b://c")",
          R"("://a")", R"("http://a:/")", R"("http://-a")"});
  const std::string longest(32, 'a');
  EXPECT_TRUE(reads(grammar_of(format("hostname")), '"' + longest + '"'));
  EXPECT_FALSE(reads(grammar_of(format("hostname")), '"' + longest + "a\""));
  expect(R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 60})",
         {R"("http://a/bcd")"}, {'"' + std::string("http://a/") + std::string(52, 'b') + '"'});
  expect(R"({"type": "string", "format": "email", "minLength": 5, "maxLength": 10})",
         {R"("ab@c.de")"}, {R"("abcdef@c.de")"});
  expect(R"({"type": "string", "format": "date", "minLength": 10, "maxLength": 10})",
         {R"("2024-02-29")"}, {});
  expect(R"({"type": ["string", "null"], "format": "date"})", {"null", R"("2024-02-29")"},
         {R"("a")"});
  expect(R"({"type": "integer", "format": "uint8"})", {"0", "255"}, {"256", "-1"});
  expect(R"({"type": "integer", "format": "int32", "minimum": 2147483640})", {"2147483647"},
         {"2147483648"});
  expect(R"({"type": "number", "format": "double"})", {"-1.5e3"}, {"null"});
  expect(R"({"type": "boolean", "format": "anything"})", {"true"}, {"1"});
}

TEST(JsonSchema, KnowsPatterns) {
  expect(R"({"type": "string", "pattern": "^a\"?[b-z]*\\n$"})", {R"("a\n")", R"("a\"bc\n")"},
         {R"("a")", R"("")", R"("an")", R"("a\"")", R"("a\u000a")"});
  expect(R"({"pattern": "ab"})", {R"("abc")", R"("xab\ud83d\ude00")", R"("aaaab")"},
         {R"("a")", R"("\u0061b")", "null"});
  expect(R"({"type": ["string", "null"], "pattern": "^.{1,2}$"})", {R"("é")", R"("ab")", "null"},
         {R"("")", R"("abc")", "1"});
  expect(R"({"type": "string", "format": "email", "pattern": "^a"})", {R"("ab@c.de")"},
         {R"("b@c.de")", R"("ab@c")"});
  expect(R"({"type": "integer", "pattern": "^a"})", {"1"}, {R"("a")"});
}

TEST(JsonSchema, LeavesObjectsAloneWhereOnlyTheyAreAskedFor) {
  const auto objects = [](const char* schema, const Texts& allowed, const Texts& refused) {
    SCOPED_TRACE(schema);
    ByteReader reader(std::make_shared<const Grammar>(
        json_grammar(parse_ordered_json(schema), Values::kObjects)));
    for (const std::string& text : allowed) EXPECT_TRUE(reader.reads(text)) << text;
    for (const std::string& text : refused) EXPECT_FALSE(reader.reads(text)) << text;
  };
  const Texts others{"null", "1", "true", "[]", "\"a\""};
  for (const char* schema :
       {"true", "{}", R"({"title": "t"})", R"({"type": ["object", "null"]})",
        R"({"anyOf": [{"type": "object"}, {"type": "null"}]})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "array"]}}})",
        R"({"allOf": [{"type": ["object", "array"]}]})"})
    objects(schema, {"{}", R"({"a": [1, null]})"}, others);
  objects(R"({"enum": [1, {"a": 1}, null]})", {R"({"a": 1})"}, {"1", "null", "{}"});
  // Inside of it all types are what they were; so is the schema where another place refers to it.
  objects(R"({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}})",
          {R"({"a": null})", R"({"a": {"a": null}})"}, {"null"});
  for (const char* schema : {"false", R"({"type": "array"})", R"({"enum": [1]})",
                             R"({"anyOf": [{"type": "null"}, {"type": "string"}]})"})
    EXPECT_NE(error_of([&] {
                json_grammar(parse_ordered_json(schema), Values::kObjects);
              }).find("and is an object"),
              std::string::npos)
        << schema;
}

TEST(JsonSchema, CountsItems) {
  expect(R"({"items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
         {"[]", "[1,2,3,4]", "[\"a\"]", "[\n]", "[1,\n2,\n3,\n"});
  expect(R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"});
  expect(R"({"items": {"type": "null"}, "minItems": 3})", {"[null,null,null]"},
         {"[null,null]", "[null,null\n", "[null,null "});
  expect(R"({"items": {"items": {"type": "null"}, "maxItems": 1}, "minItems": 2, "maxItems": 2})",
         {"[[],[null]]"}, {"[[]]", "[[],[],[]]", "[[],[null,null]]"});
  expect(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, KnowsListedValues) {
  expect(R"({"enum": ["a", "ab", "é\"", 1, 12, 1.5, null, true]})",
         {R"("a")", R"("ab")", R"("é\"")", "1", "12", "1.5", "null", "true"},
         {R"("b")", "2", "13", "false", R"("\u0061")", "1.0"});
  expect(R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"});
  expect(R"({"const": {"a": [1, {"b": []}], "c": {}}})",
         {R"({"a":[1,{"b":[]}],"c":{}})", R"({"a": [1, {"b": []}], "c": {}})"},
         {R"({"a":[1]})", R"({"c":{},"a":[1,{"b":[]}]})"});
  expect(R"({"enum": [1, 2, 3], "const": 2})", {"2"}, {"1", "3"});
  expect(R"({"type": "integer", "enum": [1.0, 1.5]})", {"1.0"}, {"1.5"});
}

TEST(JsonSchema, KnowsIntegersOfAnySize) {
  const char* large = R"({"enum": [18446744073709551615, 1000000000000000000000000]})";
  expect(large, {"18446744073709551615", "1000000000000000000000000"}, {"1.8446744073709552e+19"});
  expect(R"({"type": "integer", "maximum": 1000000000000000000000000})", {"123456789012345678"},
         {});
  expect(R"({"type": "integer", "minimum": -1000000000000000000000000})", {"-123456789012345678"},
         {});
}

TEST(JsonSchema, KnowsAlternatives) {
  expect(R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}, {"const": "long"}],
             "description": "d", "default": null})",
         {"1", R"("ab")", R"("long")"}, {R"("abc")", "1.5", R"("lon")"});
  expect(R"({"anyOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"],
                        "additionalProperties": false},
                       {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
                        "required": ["a", "b"], "additionalProperties": false}]})",
         {R"({"a": null})", R"({"a": 1, "b": null})"},
         {R"({"a": 1})", R"({"a": null, "b": null})"});
}

TEST(JsonSchema, BoundsIntegers) {
  const auto check = [](const std::string& keywords, int least, int most) {
    ByteReader reader(grammar_of("{\"type\": \"integer\", " + keywords + "}"));
    for (int i = -1250; i <= 1250; ++i)
      EXPECT_EQ(reader.reads(std::to_string(i)), least <= i && i <= most) << keywords << i;
  };
  for (const int least : {-1201, -100, -99, -10, -9, -1, 0, 1, 5, 10, 99, 100, 123, 1000})
    for (const int most : {-1200, -100, -7, 0, 3, 9, 10, 11, 99, 100, 456, 999, 1000, 1234}) {
      if (least > most) continue;
      check("\"minimum\": " + std::to_string(least) + ", \"maximum\": " + std::to_string(most),
            least, most);
    }
  check(R"("minimum": 7)", 7, 100000);
  check(R"("maximum": 7)", -100000, 7);
  check(R"("exclusiveMinimum": 7, "exclusiveMaximum": 100)", 8, 99);
  check(R"("minimum": 0.5, "maximum": 12.5)", 1, 12);
  check(R"("exclusiveMinimum": -12.5)", -12, 100000);
  check(R"("minimum": 5, "exclusiveMinimum": 5, "maximum": 1e300)", 6, 100000);
  check(R"("minimum": 3, "exclusiveMinimum": 2)", 3, 100000);
  expect(R"({"type": "integer", "minimum": 0, "maximum": 255})", {"0", "9", "25", "255"},
         {"-1", "-0", "00", "256", "300", "1000", "1.5"});
  expect(R"({"type": "integer", "minimum": 99999999999999999})",
         {"99999999999999999", "100000000000000000", "999999999999999999"},
         {"99999999999999998", "1000000000000000000"});
}

TEST(JsonSchema, BoundsNumbers) {
  const auto check = [](const std::string& keywords, double least, double most) {
    ByteReader reader(grammar_of("{\"type\": \"number\", " + keywords + "}"));
    for (int i = -4000; i <= 4000; ++i) {
      const std::string sign = i < 0 ? "-" : "";
      const std::string fraction = std::to_string(1000 + std::abs(i) % 1000).substr(1);
      const std::string text = sign + std::to_string(std::abs(i) / 1000) + "." + fraction;
      EXPECT_EQ(reader.reads(text), least <= i && i <= most) << keywords << " " << text;
    }
  };
  check(R"("minimum": 1.25)", 1250, 1e9);
  check(R"("exclusiveMinimum": 1.25)", 1251, 1e9);
  check(R"("maximum": 1.25)", -1e9, 1250);
  check(R"("exclusiveMaximum": 1.25)", -1e9, 1249);
  check(R"("minimum": -1.25, "maximum": 2.5)", -1250, 2500);
  check(R"("exclusiveMinimum": -1, "exclusiveMaximum": 1)", -999, 999);
  check(R"("minimum": 1.1, "maximum": 1.2)", 1100, 1200);
  check(R"("minimum": -2.125, "exclusiveMaximum": -1)", -2125, -1001);
  check(R"("minimum": 0, "maximum": 1)", 0, 1000);
  check(R"("minimum": 1e-3)", 1, 1e9);
  check(R"("minimum": 2, "maximum": 2)", 2000, 2000);
  expect(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
         {"1", "1.0", "0.5", "0.000000000000000001"},
         {"0", "0.0", "1.000000000000000001", "-0.5", "0.000000000000000000", "1e-1",
          "0.0000000000000000001"});
  expect(R"({"type": "number", "minimum": -0.5})", {"-0.5", "-0.50", "-0.4", "0", "12.5"},
         {"-0.51", "-1", "-0.500000000000000001", "-0.0", "-0"});
}

TEST(JsonSchema, FollowsReferences) {
  const char* tree = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
      "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
      "required": ["v"], "additionalProperties": false}}})";
  expect(tree, {R"({"v": 1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
         {"{}", R"({"v":1,"next":{}})", R"({"v":1,"next":1})"});
  expect(R"({"items": {"$ref": "#"}, "maxItems": 2})", {"[]", "[[],[[]]]"}, {"[1]", "[[],[],[]]"});
  expect(R"({"items": {"$ref": "#/definitions/a~1b%20c"}, "type": "array",
             "definitions": {"a/b c": {"type": "null"}}})",
         {"[null]"}, {"[1]"});
}

TEST(JsonSchema, BoundsTheDepthOfTexts) {
  const auto any = grammar_of("{}");
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  EXPECT_TRUE(reads(any, nested(64)));
  EXPECT_FALSE(ByteReader(any).read(nested(65)));
  // A branch that needs three levels more is not begun where there are but two.
  const auto deep = grammar_of(R"({"anyOf": [{"type": "null"}, {"type": "array", "minItems": 1,
      "items": {"type": "array", "minItems": 1, "items": {"$ref": "#"}}}]})");
  const std::string opened(64, '[');
  ByteReader reader(deep);
  EXPECT_TRUE(reader.read(opened));
  EXPECT_FALSE(reader.may_read("["));
  EXPECT_TRUE(reader.read("null" + std::string(64, ']')));
  EXPECT_TRUE(reader.complete());
}

TEST(JsonSchema, SpeaksOfTheTypesOfItsKeywordsWithoutType) {
  expect(R"({"properties": {"a": true}})", {"{}"}, {"1", "null"});
  expect(R"({"minLength": 1, "maximum": 3})", {"\"a\"", "3"}, {"\"\"", "4", "null"});
  expect(R"({"type": "string", "minimum": 3})", {"\"a\""}, {"4"});
}

}  // namespace
}  // namespace canopy::grammar
