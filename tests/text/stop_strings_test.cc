#include "src/text/stop_strings.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"
#include "tests/grammar/toy_tokenizer.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

TEST(StopStrings, EndTheTextWhereTheFirstOfThemBeginsHoweverItIsCut) {
  const std::string text = "one two END three STOP";
  for (std::size_t cut = 1; cut <= text.size(); ++cut) {
    StopStrings stops({"STOP", "END", "ND"});
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += cut) shown += stops.push(text.substr(at, cut));
    // "ND" in one piece is there as early as "END": the one that begins first counts.
    EXPECT_EQ(shown, "one two ") << cut;
    EXPECT_TRUE(stops.stopped());
    EXPECT_EQ(stops.which(), 1u);
    EXPECT_EQ(stops.push("more") + stops.flush(), "");
  }
}

TEST(StopStrings, HoldBackWhatMayBeginOneAndShowItOtherwise) {
  StopStrings stops({"\n\nUser:"});
  EXPECT_EQ(stops.push("hello\n"), "hello");
  EXPECT_EQ(stops.push("\n"), "");
  EXPECT_EQ(stops.push("Us"), "");
  EXPECT_EQ(stops.push("ing it\n\n"), "\n\nUsing it");
  EXPECT_EQ(stops.push("\n"), "\n");  // three in a row: the last two may begin it
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.flush(), "\n\n");
}

TEST(StopStrings, WithoutAnyShowAllAtOnce) {
  StopStrings stops({});
  EXPECT_EQ(stops.push("a\n"), "a\n");
  EXPECT_NE(error_of([] { StopStrings empty({"a", ""}); }).find("empty"), std::string::npos);
}

TEST(ShownText, LacksWhatEndsItThoughTheFileDoesNotCallThatSpecial) {
  struct EndsAtOne : ToyTokenizer {
    EndsAtOne() : ToyTokenizer({"a", "</s>", "b"}) {}
    bool ends_text(TokenId token) const override { return token == 1; }
  } tokenizer;
  EXPECT_EQ(shown_text(tokenizer, std::vector<TokenId>{0, 2, 1}, {}, false), "ab");
  EXPECT_EQ(shown_text(tokenizer, std::vector<TokenId>{0, 2, 0}, {"b"}, false), "a");
  // A text that was to go on after such tokens: they are text like any other.
  EXPECT_EQ(shown_text(tokenizer, std::vector<TokenId>{0, 1, 1, 2}, {}, true), "a</s></s>b");
  EXPECT_EQ(shown_text(tokenizer, std::vector<TokenId>{0, 1, 1}, {}, true), "a</s></s>");
  EXPECT_EQ(shown_text(tokenizer, std::vector<TokenId>{0, 1, 1}, {}, false), "a</s>");
}

TEST(ShownText, CountsStopStringsThatBeginAfterTheLeastOfItsTokens) {
  const ToyTokenizer tokenizer({"a", "b", "c"});
  const auto shown = [&](int least, const std::vector<TokenId>& tokens) {
    ShownText text(tokenizer, {"bc"}, {}, least);
    std::string all;
    for (const TokenId token : tokens) all += text.push(token);
    EXPECT_EQ(text.stopping_word(), text.stopped() ? "bc" : "");
    return all + (text.stopped() ? "." : text.end(false));
  };
  const std::vector<TokenId> tokens{0, 1, 2, 0, 1, 2, 0};  // abcabca
  for (const int least : {0, 1}) EXPECT_EQ(shown(least, tokens), "a.");
  for (const int least : {2, 3, 4}) EXPECT_EQ(shown(least, tokens), "abca.");
  for (const int least : {5, 6, 7, 9}) EXPECT_EQ(shown(least, tokens), "abcabca");
}

TEST(ShownText, HasTheNamesOfTheSpecialTokensThatAreAskedFor) {
  const auto tokenizer = load_tokenizer(test_data() / "text" / "smollm", {});
  const std::vector<TokenId> tokens =
      tokenizer->encode("<|im_start|>a<|im_end|>b<|im_start|>", AddSpecial::kNo);
  const std::vector<TokenId> named = tokenizer->encode("<|im_start|>", AddSpecial::kNo);
  ShownText shown(*tokenizer, {}, named);
  std::string text;
  for (const TokenId token : tokens) text += shown.push(token);
  EXPECT_EQ(text + shown.end(false), "<|im_start|>ab<|im_start|>");
}

TEST(ShownText, StopsAtASpecialTokenThatAStopStringNames) {
  const auto tokenizer = load_tokenizer(test_data() / "text" / "smollm", {});
  const std::string text = "a<|im_start|>user\nb<|im_end|><|im_start|>c";
  const std::vector<TokenId> tokens = tokenizer->encode(text, AddSpecial::kNo);
  const auto shown = [&](const std::vector<std::string>& stops) {
    return shown_text(*tokenizer, tokens, stops, true);
  };
  EXPECT_EQ(shown({}), "auser\nbc");
  ShownText named(*tokenizer, {"x", "<|im_end|>"});
  for (const TokenId token : tokens) named.push(token);
  EXPECT_EQ(named.stopping_word(), "<|im_end|>");
  EXPECT_EQ(shown({"bcd", "c<|im_end|>"}), "auser\nbc");  // held back until the end
  EXPECT_EQ(shown({"<|im_start|>"}), "a");
  EXPECT_EQ(shown({"a<|im_start|>"}), "");
  EXPECT_EQ(shown({"<|im_start|>us"}), "a");
  EXPECT_EQ(shown({"<|im_start|>system", "<|im_start|>c"}), "auser\nb");
  EXPECT_EQ(shown({"<|im_end|><|im_start|>"}), "auser\nb");
  EXPECT_EQ(shown({"x", "b<|im_end|><|im_start|>c"}), "auser\n");
  // Not a part of the name, nor what only its neighbours make.
  for (const char* stop : {"<", "<|im_start", "|>", "|>user", "<|im_start|> user", "<|im_end|>c"})
    EXPECT_EQ(shown({stop}), "auser\nbc") << stop;
  // Shown text ends at a stop string though special tokens that others name lie in it.
  EXPECT_EQ(shown({"auser", "<|im_start|>system"}), "");
  // A name in ordinary tokens is text.
  std::vector<TokenId> letters;
  for (const char c : std::string("a<|im_start|>b"))
    letters.push_back(tokenizer->encode(std::string(1, c), AddSpecial::kNo).front());
  EXPECT_EQ(shown_text(*tokenizer, letters, {"<|im_start|>"}, true), "a");
  EXPECT_EQ(shown_text(*tokenizer, letters, {"b"}, true), "a<|im_start|>");
}

}  // namespace
}  // namespace canopy
