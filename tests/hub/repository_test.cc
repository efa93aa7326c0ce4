#include "src/hub/repository.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"

namespace canopy::hub {
namespace {

TEST(Repository, HasARevisionAndAQuantIfTheyAreNamed) {
  const Repository plain = parse_repository("Qwen/Qwen2.5-7B_x");
  EXPECT_EQ(plain.id, "Qwen/Qwen2.5-7B_x");
  EXPECT_EQ(plain.revision, "main");
  EXPECT_EQ(plain.quant, "");
  EXPECT_EQ(parse_repository("gpt2").id, "gpt2");
  const Repository all = parse_repository("a/b@refs/pr/1:UD-Q4_K_XL");
  EXPECT_EQ(all.id, "a/b");
  EXPECT_EQ(all.revision, "refs/pr/1");
  EXPECT_EQ(all.quant, "UD-Q4_K_XL");
  for (const char* text : {"a/b", "a/b:Q8_0", "a/b@v1", "a/b@v1:q4_0"})
    EXPECT_EQ(parse_repository(text).in_words(), text);
}

TEST(Repository, OfAWrongNameIsRefused) {
  for (const char* text : {"", "/", "a/", "/b", "a/b/c", "../b", "a/..", "a/b--c", "-a/b", "a/b.",
                           "a b/c", "a/b%2f", "a/b\n", "./a", "a/\xc3\xa9"})
    EXPECT_NE(error_of([&] { parse_repository(text); }).find("not a repository"), std::string::npos)
        << text;
  EXPECT_NE(error_of([] { parse_repository(std::string(200, 'a')); }), "");
  for (const char* text : {"a/b@", "a/b@../../x", "a/b@/etc", "a/b@x//y", "a/b@a\\b"})
    EXPECT_NE(error_of([&] { parse_repository(text); }).find("a branch"), std::string::npos)
        << text;
  for (const char* text : {"a/b:", "a/b:Q4 K", "a/b:*", "a/b:x:y"})
    EXPECT_NE(error_of([&] { parse_repository(text); }).find("colon"), std::string::npos) << text;
}

TEST(Repository, CommitsHaveFortyDigits) {
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789abcdef"));
}

TEST(Repository, PathsThatLeadOutAreKnown) {
  for (const char* path : {"a", "a/b.json", "..a/b", ".a", "a..b", "\xc3\xa9"})
    EXPECT_TRUE(stays_inside(path)) << path;
  for (const char* path :
       {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\\b", "a\nb", "\xff"})
    EXPECT_FALSE(stays_inside(path)) << path;
  EXPECT_FALSE(stays_inside(std::string_view("a\0b", 3)));
  EXPECT_FALSE(stays_inside(std::string(300, 'a')));
}

TEST(Repository, PartsOfUrlsAreEncoded) {
  EXPECT_EQ(url_part("a b/c?#%\xc3\xa9", Slashes::kKept), "a%20b/c%3F%23%25%C3%A9");
  EXPECT_EQ(url_part("refs/pr/1", Slashes::kEncoded), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace canopy::hub
