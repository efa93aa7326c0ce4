// Strings that a pattern leaves: against another engine, character by character, and as Zod has
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>
#include <regex>

#include "tests/error_of.h"
#include "tests/grammar/mask_checks.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

ordered_json with_pattern(const std::string& pattern) {
  return {{"type", "string"}, {"pattern", pattern}};
}

std::shared_ptr<const Grammar> made(const ordered_json& schema) {
  return std::make_shared<const Grammar>(json_grammar(schema));
}

void expect(const ordered_json& schema, const std::vector<std::string>& allowed,
            const std::vector<std::string>& refused) {
  SCOPED_TRACE(schema.dump());
  const auto grammar = made(schema);
  for (const std::string& text : allowed)
    EXPECT_TRUE(reads(grammar, ordered_json(text).dump())) << text;
  for (const std::string& text : refused)
    EXPECT_FALSE(reads(grammar, ordered_json(text).dump())) << text;
}

void expect_error(const ordered_json& schema, const std::string& cause) {
  const std::string error = error_of([&] { json_grammar(schema); });
  EXPECT_NE(error.find("#: "), std::string::npos) << schema << error;
  EXPECT_NE(error.find(cause), std::string::npos) << schema << error;
}

/// A text of the grammar, drawn byte by byte; it ends soon after it may. "" if it does not by
/// `most` bytes.
std::string drawn(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random,
                  std::size_t most) {
  ByteReader reader(grammar);
  std::string text;
  while (!reader.complete() && text.size() < most) {
    std::string allowed;
    for (int byte = 0; byte < 256; ++byte)
      if (reader.may_read(std::string(1, static_cast<char>(byte))))
        allowed += static_cast<char>(byte);
    EXPECT_FALSE(allowed.empty()) << text;
    if (allowed.empty()) return {};
    const bool may_end = !text.empty() && allowed.find('"') != std::string::npos;
    const char next = may_end && random() % 8 == 0 ? '"' : allowed[random() % allowed.size()];
    EXPECT_TRUE(reader.read(std::string(1, next)));
    text += next;
  }
  return reader.complete() ? text : std::string();
}

TEST(Pattern, LeavesWhatAnotherEngineFinds) {
  const std::vector<std::string> patterns{"",
                                          "a",
                                          "^a",
                                          "a$",
                                          "^a$",
                                          "^$",
                                          "^",
                                          "$",
                                          "ab|b",
                                          "^(ab|b)$",
                                          "^a|b$",
                                          "^(?:a|)b",
                                          "a*",
                                          "^a*$",
                                          "^a+b?$",
                                          "^a{2}$",
                                          "^a{2,}$",
                                          "^a{1,3}b{0,2}$",
                                          "^(ab?){2,3}$",
                                          "^(a*)*$",
                                          "^(a|b*){2}$",
                                          "^(?:a?){3}b$",
                                          "^.$",
                                          "^.*b.$",
                                          "^[ab]+$",
                                          "^[^a]$",
                                          "^[^ab\\d]*$",
                                          "[a-b]1",
                                          "^\\d+$",
                                          "^\\D+$",
                                          "^\\w+$",
                                          "^\\W$",
                                          "^\\s$",
                                          "^\\S+$",
                                          "^[\\s\\d]+$",
                                          "^[\\w-]+$",
                                          "^[a\\-1]+$",
                                          "^[-a]+$",
                                          "^[a-]+$",
                                          "^\\.$",
                                          "^\\\\$",
                                          "^\"+$",
                                          "^\\n$",
                                          "^[\\x00-\\x1f]$",
                                          "^\\x61\\u0062$",
                                          "^(?=a)\\w+$",
                                          "^(?!a)\\w+$",
                                          "^(?!.*aa)[ab]*$",
                                          "^(?=.*1)(?=.*a).{2,4}$",
                                          "a(?=b)",
                                          "a(?!b)",
                                          "^(?:(?!ab).)*b",
                                          "^(a(?=b)b)?$",
                                          "(^a|b)1",
                                          "^a*?b+?$",
                                          "^a(?:b|1)*a$",
                                          "^(?=a$)",
                                          "^(?!$)",
                                          "a.b",
                                          "^(?:ab|a)(?:b1|1)$",
                                          "^[]a",
                                          "^[^]$",
                                          "x{",
                                          "a{,2}",
                                          "^a]$",
                                          "^\\/$",
                                          "^(?:$|a)",
                                          "^\\0$",
                                          "^\\cJ$",
                                          "^[\\b]$"};
  const std::string alphabet = "aaabbb11 -.\"\\\n/]x{,2}_\x1f\x7f";
  int compared = 0, matched = 0;
  for (const std::string& pattern : patterns) {
    SCOPED_TRACE(pattern);
    std::shared_ptr<const Grammar> grammar;
    if (const auto error = error_of([&] { grammar = made(with_pattern(pattern)); });
        !error.empty()) {
      // A look ahead in a repeated group is refused, and so is a pattern that no text fits.
      EXPECT_TRUE(pattern == "^(?:(?!ab).)*b" || pattern == "^[]a") << error;
      continue;
    }
    std::unique_ptr<std::regex> other;
    try {
      other = std::make_unique<std::regex>(pattern);
    } catch (const std::regex_error&) {  // it knows less of ECMA-262's other syntax
      continue;
    }
    for (unsigned seed = 0; seed < 400; ++seed) {
      std::mt19937 random(seed);
      std::string text(random() % 6, ' ');
      for (char& c : text) c = alphabet[random() % alphabet.size()];
      const bool found = std::regex_search(text, *other);
      EXPECT_EQ(reads(grammar, ordered_json(text).dump()), found) << ordered_json(text);
      ++compared, matched += found;
    }
  }
  EXPECT_GT(compared, 20'000);
  EXPECT_GT(matched, 2'000);
}

TEST(Pattern, EscapesWhatJsonAsksFor) {
  const auto grammar = made(with_pattern("^[\\x00-\\x7f]$"));
  for (const char* const text :
       {R"("\"")", R"("\\")", R"("/")", R"("\b")", R"("\f")", R"("\n")", R"("\r")", R"("\t")",
        R"("\u0000")", R"("\u000b")", R"("\u001f")", "\"\x7f\""})
    EXPECT_TRUE(reads(grammar, text)) << text;
  // One spelling each.
  for (const char* const text : {R"("\/")", R"("\u000B")", R"("\u000a")", R"("\u0061")",
                                 R"("\u0020")", "\"\n\"", R"("\x")", R"("é")"})
    EXPECT_FALSE(reads(grammar, text)) << text;
}

TEST(Pattern, CountsCharactersOfAllOfUnicode) {
  expect(with_pattern("^.$"), {"a", "é", "€", "\U0001F600", "\uFFFD", "\U0010FFFF"},
         {"", "aa", "\n", "\u2028", "\u2029"});
  expect(with_pattern("^[α-ω]{2}$"), {"αω", "ςσ"}, {"α", "Αω", "αab"});
  expect(with_pattern("^[\\u{1F600}-\\u{1F64F}]$"), {"\U0001F600", "\U0001F64F"},
         {"\U0001F650", "\U0001F5FF"});
  expect(with_pattern("^\\uD83D\\uDE00$"), {"\U0001F600"}, {"\U0001F601"});
  expect(with_pattern("^\\s$"), {"\u00A0", "\uFEFF", "\u3000", "\u2028"}, {"\u200B", "x"});
  expect(with_pattern("^\\W\\D$"), {"éß", "\U0001F600x"}, {"ab", "é1"});
  // Not UTF-8: an overlong slash, half of a pair, what lies beyond the last character.
  const auto any = made(with_pattern("^.$"));
  for (const char* const text : {"\"\xC0\xAF\"", "\"\xE0\x80\xAF\"", "\"\xED\xA0\x80\"",
                                 "\"\xF4\x90\x80\x80\"", "\"\xF0\x80\x80\x80\"", "\"\x80\""})
    EXPECT_FALSE(reads(any, text)) << text;
}

TEST(Pattern, OfPydanticsDecimalIsKept) {
  expect(with_pattern("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"), {"1", "-0.5", "+12.", ".5", "007"},
         {"", "-", ".", "+.", "1e5", "1.2.3", "a"});
}

TEST(Pattern, GoesOnAsAnyStringWhereAllFollow) {
  const auto open = made(with_pattern("^a"));
  EXPECT_TRUE(reads(open, R"("a\u00e9\ud83d\ude00\n")"));
  EXPECT_LT(open->automaton().size(), 60u);
}

TEST(Pattern, KeepsLengthsTooAndSeveralPatterns) {
  expect({{"type", "string"}, {"pattern", "^(ab)*$"}, {"minLength", 3}, {"maxLength", 5}}, {"abab"},
         {"ab", "ababab", ""});
  expect({{"pattern", "a"}, {"maxLength", 2}}, {"a", "ba", "\U0001F600a"}, {"bba", ""});
  const ordered_json both{{"type", "string"},
                          {"allOf", {with_pattern("^a.*"), {{"pattern", ".*z$"}}}},
                          {"maxLength", 4}};
  expect(both, {"az", "abcz"}, {"a", "z", "abcdz"});
  expect({{"allOf", {{{"format", "date"}}, {{"pattern", "^2024"}}}}}, {"2024-02-29"},
         {"2025-01-01", "2024"});
  expect({{"allOf", {{{"minLength", 2}}, {{"maxLength", 3}, {"type", "string"}}}}}, {"ab", "abc"},
         {"a", "abcd"});
  expect({{"allOf", {{{"format", "hostname"}}, {{"format", "ipv4"}}}}}, {"1.2.3.4"}, {"a.b"});
}

TEST(Pattern, SharesWithItsFormatWhatBothAllow) {
  expect({{"format", "date"}, {"pattern", "-02-29$"}}, {"2024-02-29"},
         {"2023-02-29", "2024-02-28"});
  expect({{"format", "email"}, {"pattern", "@example\\.(com|org)$"}}, {"a.b@example.org"},
         {"a..b@example.org", "a@example.net"});
  expect({{"format", "email"}, {"pattern", "@"}, {"maxLength", 7}}, {"ab@c.de"}, {"abc@c.de"});
  expect({{"format", "ipv6"}, {"pattern", "^2001:"}}, {"2001:db8::1"}, {"2002::", "2001:::1"});
  // A name that JSON Schema does not have says nothing more than the pattern.
  expect({{"format", "ulid"}, {"pattern", "^[0-9A-Z]{2}$"}}, {"0A"}, {"a"});
  expect({{"format", "password"}, {"pattern", "^\\d$"}}, {"1"}, {"a"});
  expect_error({{"format", "iri"}, {"pattern", "^a$"}}, "the format \"iri\" is not supported");
  expect_error({{"format", "ulid"}}, "the format \"ulid\" is not supported");
  expect_error({{"format", "date"}, {"pattern", "^1"}, {"maxLength", 9}}, "no string that");
  expect_error({{"format", "date"}, {"pattern", "^a"}}, "no string that");
}

TEST(Pattern, ThatIsNotSupportedIsRefusedByItsPlace) {
  const std::vector<std::pair<std::string, std::string>> refused{
      {"(a)\\1", "a reference back to a group, which is not supported, at character 4"},
      {"(?<n>a)\\k<n>", "a reference back to a group"},
      {"a\\b", "an edge of a word (\\b), which is not supported, at character 2"},
      {"\\B", "an edge of a word"},
      {"(?<=a)b", "a look behind, which is not supported, at character 1"},
      {"a(?<!a)b", "a look behind, which is not supported, at character 2"},
      {"(?i:a)", "a group with flags"},
      {"\\p{L}", "a property of Unicode"},
      {"[\\P{L}]", "a property of Unicode"},
      {"(?:(?=a).)*",
       "a look ahead in a group that is repeated, which is not supported, at character 1"},
      {"x(?:^a|b){2}", "in a group that is repeated, which is not supported, at character 2"},
      {"a*^b", "\"^\" after something that may be empty"},
      {"(", "a group that is not closed at character 1"},
      {"a)", "closes no group at character 2"},
      {"[a", "\"[\" that is not closed"},
      {"[b-a]", "a range that ends before it begins at character 2"},
      {"*", "nothing to repeat"},
      {"a|+", "nothing to repeat at character 3"},
      {"{2}", "nothing to repeat"},
      {"a**", "nothing to repeat"},
      {"a{3,2}", "a smallest count"},
      {"a{99999999999}", "a count of more than"},
      {"\\", "nothing after it"},
      {"\\q", "no meaning"},
      {"\\u12", "too few hexadecimal digits"},
      {"\\u{}", "too few hexadecimal digits"},
      {"\\u{110000}", "beyond the last character"},
      {"\\ud800", "half of a character"},
      {"[\\ud83d-\\ude00]", "half of a character"},
      {"(?<n", "name that does not end"}};
  for (const auto& [pattern, cause] : refused) expect_error(with_pattern(pattern), cause);
  expect_error(with_pattern("[]"), "no string that");
  expect_error(with_pattern("a^"), "no string that");
  expect_error({{"enum", {"a"}}, {"pattern", "a"}}, "\"pattern\" next to \"enum\"");
}

TEST(Pattern, OfAStrangerTakesNoMoreThanABoundedTime) {
  const auto repeated = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  const std::vector<std::pair<std::string, bool>> hostile{
      {"(a|b)*a(a|b){30}", false},
      {repeated("a?", 2000), true},
      {repeated("(", 70) + repeated(")", 70), false},
      {repeated("(a*)*", 100), true},
      {repeated("a", 5000), false},
      {"^(((a{1,100}){1,100}){1,100}){1,100}$", false},
      {"^(?=.*a.{12})(?=.*b.{13})(?=.*c.{14})", false},
      {"^a{1000000000}$", false},
      {"(?!" + repeated("(?!", 60) + "a" + repeated(")", 60) + ")", true},
      {repeated("[a-c]", 200) + "|" + repeated("[b-d]x?", 200), false}};
  // Many, each of which would do alone.
  ordered_json many;
  for (int i = 0; i < 200; ++i)
    many["properties"][std::string("p").append(std::to_string(i))] = {
        {"format", "hostname"},
        {"pattern", std::string("^(?:.{1,4}){1,60}").append(std::to_string(i))}};
  EXPECT_NE(error_of([&] { json_grammar(many); }).find("too many steps"), std::string::npos);
  for (const auto& [pattern, fits] : hostile) {
    SCOPED_TRACE(pattern.substr(0, 60));
    const auto start = std::chrono::steady_clock::now();
    const std::string error = error_of([&] { json_grammar(with_pattern(pattern)); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(error.empty(), fits) << error;
    EXPECT_LT(took.count(), 20);  // a second where nothing slows it down
  }
}

/// The patterns of a schema of one string.
std::vector<std::string> patterns_of(const ordered_json& schema) {
  std::vector<std::string> out;
  if (schema.contains("pattern")) out.push_back(schema["pattern"]);
  if (schema.contains("allOf"))
    for (const ordered_json& part : schema["allOf"]) out.push_back(part["pattern"]);
  return out;
}

TEST(Pattern, OfZodIsKept) {
  std::ifstream file(CANOPY_TEST_DATA "/grammar/zod_schemas.json");
  const auto schemas = ordered_json::parse(file);
  ASSERT_GT(schemas.size(), 40u);
  int checked = 0;
  for (const auto& [name, schema] : schemas.items()) {
    SCOPED_TRACE(name);
    std::shared_ptr<const Grammar> grammar;
    const std::string error = error_of([&] { grammar = made(schema); });
    if (name == "emoji" || name == "jwt") {
      EXPECT_NE(error.find(name == "emoji" ? "\\p" : "\"jwt\""), std::string::npos) << error;
      continue;
    }
    ASSERT_EQ(error, "");
    std::vector<std::regex> others;
    for (const std::string& pattern : patterns_of(schema)) others.emplace_back(pattern);
    for (unsigned seed = 0; seed < 30 && !others.empty(); ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      const std::string text = drawn(grammar, random, 300);
      if (text.empty()) continue;
      const auto value = ordered_json::parse(text).get<std::string>();
      const bool ascii = std::ranges::all_of(value, [](char c) { return c > 0; });
      if (!ascii || value.find('\0') != std::string::npos) continue;
      for (const std::regex& other : others) EXPECT_TRUE(std::regex_search(value, other)) << text;
      ++checked;
    }
  }
  EXPECT_GT(checked, 900);
}

}  // namespace
}  // namespace canopy::grammar
