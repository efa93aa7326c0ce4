#include "src/text/pipeline/pattern.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/error_of.h"

namespace canopy::text {
namespace {

std::vector<std::string> matches(const Pattern& pattern, std::string_view text) {
  std::vector<Span> spans;
  pattern.find_all(text, spans, Bounds(text.size()));
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}
std::vector<std::string> matches(std::string_view regex, std::string_view text) {
  return matches(Pattern::regex(regex), text);
}
using Strings = std::vector<std::string>;

TEST(Pattern, ReadsClassesAsOnigurumaDoes) {
  EXPECT_EQ(matches(R"(\s+)", "a\u00a0\u2003b\u180ec"), (Strings{"\u00a0\u2003"}));
  EXPECT_EQ(matches(R"(\w+)", "cafe\u0301 a_b a\u203fb ½"),
            (Strings{"cafe\u0301", "a_b", "a\u203fb"}));
  EXPECT_EQ(matches(R"([^\S\n]+)", "a \t\n b"), (Strings{" \t", " "}));
  EXPECT_EQ(matches(R"(\d\b)", "12 3\u0301 4"), (Strings{"2", "4"}));
  EXPECT_EQ(matches(R"(\u0041\x42[\u0043])", "ABC"), (Strings{"ABC"}));
  EXPECT_EQ(matches("[a[b[c]d]e]+", "xabcdex[b]"), (Strings{"abcde", "b"}));
  EXPECT_EQ(matches(R"([^(\s|[.,])]+)", "ab(c|d.e f)g"), (Strings{"ab", "c", "d", "e", "f", "g"}));
  EXPECT_EQ(matches("^a$", "a\nb\na"), (Strings{"a", "a"}));
  EXPECT_EQ(matches("(?i:'s)", "'S '\u017f"), (Strings{"'S", "'\u017f"}));
}

TEST(Pattern, RefusesWhatPcre2WouldReadDifferently) {
  for (const char* regex :
       {"(?m:.)", "(?s).", R"(\h)", R"(\v)", R"(\W+[\W])", R"(\Ba)", "[a[^bc]]", "[a-[bc]]",
        "[a[b]-z]", "[a[]b]]", "[a&&b]", R"(\p{N}{1,3}+)", R"(a\K)", "a\\"})
    EXPECT_THROW(Pattern::regex(regex), Error) << regex;
  EXPECT_EQ(matches(R"(\p{N}+)", "12"), (Strings{"12"}));  // no quantifier before this plus
}

TEST(Pattern, NamesTheBrokenPattern) {
  try {
    Pattern::regex("(a");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'(a'"), std::string::npos) << e.what();
  }
}

TEST(Pattern, AdvancesOverEmptyMatches) {
  std::vector<Span> spans;
  Pattern::regex("x*").find_all("aéxx", spans, Bounds(5));
  EXPECT_EQ(spans, (std::vector<Span>{{0, 0}, {1, 1}, {3, 5}}));
}

TEST(Pattern, LiteralsMatchThemselvesOnly) {
  EXPECT_EQ(Pattern::literal(".").replace_all("a.b.", "--", Bounds(4)), "a--b--");
  EXPECT_THROW(Pattern::literal(""), Error);
}

TEST(Pattern, GivesUpOnCatastrophicBacktrackingByItsName) {
  for (const char* regex : {"(a+)+[bc]", "(a|aa)+[bc]", "(?:a*)*[bc]", "(a+)+[bc]|."}) {
    const std::string error = error_of([&] { matches(regex, std::string(5000, 'a')); });
    EXPECT_NE(error.find(in_quotes(regex)), std::string::npos) << error;
  }
}

TEST(Pattern, GivesUpOnManyMatchesThatEachTakeLong) {
  // A run alone takes some hundred thousand steps, far fewer than are allowed.
  std::string text;
  for (int run = 0; run < 3000; ++run) text += std::string(17, 'a') + " ";
  EXPECT_EQ(matches("(a+)+[bc]|a+", text.substr(0, 18)).size(), 1u);
  const std::string error = error_of([&] { matches("(a+)+[bc]|a+", text); });
  EXPECT_NE(error.find("too many steps"), std::string::npos) << error;
}

TEST(Pattern, IsNamedInOneShortLineHoweverLongItIs) {
  const std::string regex = "\n" + std::string(5000, 'a') + "(";
  const std::string error = error_of([&] { Pattern::regex(regex); });
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_LT(error.size(), 400u);
  EXPECT_NE(error_of([&] { Pattern::regex(std::string(20000, 'a')); }).find("20000 bytes"),
            std::string::npos);
}

TEST(Pattern, MatchesLongRunsWithoutASmallStack) {
  const std::string run(1 << 20, 'a');
  EXPECT_EQ(matches("(?:a|b)+", run).front().size(), run.size());
}

}  // namespace
}  // namespace canopy::text
