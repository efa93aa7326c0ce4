#include "src/base/json.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

using nlohmann::json;

bool mentions(const std::string& message, std::string_view words) {
  return message.find(words) != std::string::npos;
}
std::string refusal(const std::string& text) {
  return error_of([&] { parse_json(text); });
}
std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Json, IsReadAsTheLibraryReadsIt) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "0.5", "1e300", R"("a\u0000é")", "[]", "{}",
        R"([1,[2,[3,{"a":[4]}],5],{}])", R"({"b":{"c":[{"d":null}]},"a":"x"})", " [ 1 , 2 ] "}) {
    EXPECT_EQ(parse_json(text), json::parse(text)) << text;
    EXPECT_EQ(parse_ordered_json(text).dump(), nlohmann::ordered_json::parse(text).dump()) << text;
  }
}

TEST(Json, AnOrderedObjectKeepsItsOrder) {
  const std::string text = R"({"z":1,"a":{"y":2,"b":3},"m":[]})";
  EXPECT_EQ(parse_ordered_json(text).dump(), text);
}

TEST(Json, IntegersOfAnySizeKeepTheirDigitsWhereTheyAreAskedFor) {
  const std::string text =
      R"([12345678901234567890,-9223372036854775809,{"é\"":[1000000000000000000000]},1,-1,1.5,[],{}])";
  const auto kept = parse_ordered_json(text, LargeIntegers::kKept);
  EXPECT_EQ(exact_json_text(kept), text);
  EXPECT_EQ(large_integer(kept[0]), "12345678901234567890");
  EXPECT_EQ(large_integer(kept[1]), "-9223372036854775809");
  for (const std::size_t i : {2, 3, 4, 5, 6}) EXPECT_FALSE(large_integer(kept[i])) << i;
  EXPECT_FALSE(parse_ordered_json("1e300", LargeIntegers::kKept).is_binary());
  EXPECT_TRUE(parse_ordered_json(text)[1].is_number_float());
}

TEST(Json, ThatIsNestedAMillionDeepIsRefused) {
  for (const char* open : {"[", R"({"a":)", R"([{"a":)"})
    EXPECT_TRUE(mentions(refusal(repeated(open, 1'000'000)), "nested deeper than 64 levels"));
  const int most = kMostJsonDepth;
  EXPECT_EQ(refusal(repeated("[", most) + repeated("]", most)), "");
  EXPECT_TRUE(mentions(refusal(repeated("[", most + 1) + repeated("]", most + 1)), "64 levels"));
}

TEST(Json, OfTooManyValuesIsRefused) {
  const int most = static_cast<int>(kMostJsonValues) - 1;  // besides the outermost
  const auto list = [](std::string_view value, int times) {
    return repeated("[", 1).append(repeated(value, times)).append("0]");
  };
  EXPECT_EQ(refusal(list("0,", most - 1)), "");
  for (const char* value : {"0,", "[],", "{},"})
    EXPECT_TRUE(mentions(refusal(list(value, most)), "more than 4000000 values")) << value;
}

TEST(Json, ThatIsMalformedIsRefusedAtItsByteInOneLineOfText) {
  for (const auto& [text, says] : {std::pair{std::string(), "at byte 1"},
                                   {"[1,", "at byte 4"},
                                   {"[1] 2", "at byte 5"},
                                   {"{\"a\" 1}", "at byte 6"},
                                   {"[\"\xff\"]", "at byte 3"},
                                   {"[1e999]", "number overflow"},
                                   {std::string(1, '\0'), "at byte 1"},
                                   {"[\"" + std::string(1'000'000, 'x') + "\n\"]", "not JSON"}}) {
    const std::string message = refusal(text);
    EXPECT_TRUE(mentions(message, says)) << message;
    EXPECT_TRUE(mentions(message, "not JSON")) << message;
    EXPECT_FALSE(mentions(message, "\n")) << message;
    EXPECT_LT(message.size(), 300u);
  }
}

TEST(Json, AKeyThatIsGivenTwiceIsRefused) {
  EXPECT_TRUE(mentions(refusal(R"([{"a":1,"b":2,"a":1}])"), "'a' is given twice"));
  EXPECT_EQ(refusal(R"([{"a":1},{"a":{"a":1}}])"), "");
  const std::string twice = R"([{"b":{"a":1,"c":[{"a":2}],"a":1}}])";
  EXPECT_TRUE(mentions(error_of([&] { parse_ordered_json(twice); }), "'a' is given twice"));
}

TEST(Json, AnOrderedObjectOfSoManyMembersThatSearchesAreLongIsRefused) {
  const auto members = [](std::size_t count) {
    std::ostringstream text;
    for (std::size_t i = 0; i < count; ++i) text << (i == 0 ? "{\"" : ",\"") << i << "\":0";
    text << "}";
    return text.str();
  };
  EXPECT_EQ(parse_ordered_json(members(kMostOrderedMembers)).size(), kMostOrderedMembers);
  const std::string more = members(kMostOrderedMembers + 1);
  EXPECT_TRUE(mentions(error_of([&] { parse_ordered_json(more); }), "more than 10000 members"));
  EXPECT_EQ(refusal(more), "");  // others find keys in a tree
}

TEST(Json, AnIntegerIsTakenOnlyWhereItsTypeHoldsIt) {
  const auto number = [](const char* text) { return parse_json(text); };
  EXPECT_EQ(integer_in<int>(number("-7")), -7);
  EXPECT_EQ(integer_in<int>(number("2147483647")), 2147483647);
  EXPECT_EQ(integer_in<std::uint64_t>(number("18446744073709551615")), UINT64_MAX);
  for (const char* text : {"2147483648", "-2147483649", "18446744073709551615", "9.2e19", "1.0",
                           "true", "\"1\"", "null", "[1]"})
    EXPECT_EQ(integer_in<int>(number(text)), std::nullopt) << text;
  EXPECT_EQ(integer_in<std::uint64_t>(number("-1")), std::nullopt);
}

TEST(Json, AFileIsNamedInWhatIsWrongWithIt) {
  const TempDir dir;
  dir.write("x.json", "[1,");
  const std::string message = error_of([&] { read_json(dir / "x.json", 100, FileKind::kOfModel); });
  EXPECT_TRUE(mentions(message, "not JSON") && mentions(message, (dir / "x.json").string()))
      << message;
}

}  // namespace
}  // namespace canopy
