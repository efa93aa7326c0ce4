#include "src/speculation/growers/copy_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/speculation/copies.h"

namespace canopy::testing {
namespace {

using Tokens = std::vector<TokenId>;

Tokens random_tokens(std::mt19937& random, std::size_t count, unsigned vocab) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % vocab));
  return tokens;
}

TEST(CopyIndex, FindsWhatFollowedTheLongestMatchOfEqualOnesTheLatest) {
  CopyIndex index;
  EXPECT_FALSE(index.find({}).has_value());
  EXPECT_FALSE(index.find(Tokens{1, 2, 3}).has_value());
  index.follow(Tokens{1, 2, 3, 9, 2, 3, 4, 5, 2, 3, 6, 1, 2});
  EXPECT_EQ(index.find({}), (CopyIndex::Match{3, 2}));
  EXPECT_EQ(index.find(Tokens{3}), (CopyIndex::Match{9, 3}));  // after 1 2 3, not after 2 3
  EXPECT_EQ(index.find(Tokens{8, 2, 3}), (CopyIndex::Match{6, 2}));
  EXPECT_FALSE(index.find(Tokens{8, 3}).has_value());
}

TEST(CopyIndex, IsTheSearchOfTheWholeTextHoweverTheTextGrew) {
  int found = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto vocab = static_cast<unsigned>(2 + random() % 6);
    // The last two tokens of fewer than 64 stood in fewer places than a search looks at.
    Tokens text = random_tokens(random, 1 + random() % 60, vocab);
    CopyIndex index;
    for (int step = 0; step < 6 && text.size() < 64; ++step) {
      index.follow(text);
      for (int i = 0; i < 10; ++i) {
        const Tokens path = random_tokens(random, random() % 12, vocab);
        const auto match = index.find(path);
        EXPECT_EQ(match, copied_in(text, path));
        found += match.has_value() ? 1 : 0;
      }
      if (step == 3)  // another text
        text = random_tokens(random, 1 + random() % text.size(), vocab);
      else
        for (const TokenId token : random_tokens(random, 1 + random() % 5, vocab))
          text.push_back(token);
    }
  }
  EXPECT_GT(found, 1000);
}

TEST(CopyIndex, LooksAtTheLatestPlacesOfAPairThatStandsOften) {
  Tokens text{5, 1, 2, 7};
  for (int i = 0; i < 1000; ++i) text.insert(text.end(), {1, 2, 3});
  CopyIndex index;
  index.follow(text);
  EXPECT_EQ(index.find(Tokens{5, 1, 2}), (CopyIndex::Match{3, 2}));
}

}  // namespace
}  // namespace canopy::testing
