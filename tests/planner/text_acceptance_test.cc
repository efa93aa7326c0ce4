#include "planner/text_acceptance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/error_of.h"

namespace canopy {
namespace {

std::vector<std::int64_t> asked(const TextAcceptance& text) {
  std::vector<std::int64_t> counts;
  for (const auto& rank : text.ranks()) counts.push_back(rank.asked);
  return counts;
}
std::vector<std::int64_t> accepted(const TextAcceptance& text) {
  std::vector<std::int64_t> counts;
  for (const auto& rank : text.ranks()) counts.push_back(rank.accepted);
  return counts;
}
using Counts = std::vector<std::int64_t>;

TEST(TextAcceptance, ARankIsAskedForWhereThoseBeforeItWereRefused) {
  TextAcceptance text;
  text.observe(0, 3, 0);  // the second and the third were not asked
  text.observe(1, 3, 1);
  text.observe(2, 2, -1);  // there was no third
  EXPECT_EQ(asked(text), (Counts{3, 2}));
  EXPECT_EQ(accepted(text), (Counts{1, 1}));
  text.observe(0, 4, -1);
  EXPECT_EQ(asked(text), (Counts{4, 3, 1, 1}));
  EXPECT_EQ(text.positions(), 4);
}

TEST(TextAcceptance, TheRootAfterALeafCountsForBothPositions) {
  TextAcceptance text;
  text.observe(0, 1, 0);
  text.observe(1, 0, -1);  // a leaf: nothing was asked here
  EXPECT_EQ(asked(text), (Counts{1}));
  text.observe(0, 2, 1);
  EXPECT_EQ(asked(text), (Counts{3, 2}));
  EXPECT_EQ(accepted(text), (Counts{1, 2}));
  text.observe(1, 1, -1);  // asked: nothing is owed
  text.observe(0, 1, -1);
  EXPECT_EQ(asked(text), (Counts{5, 2}));
}

TEST(TextAcceptance, PlainDecodingShowsNothing) {
  TextAcceptance text;
  for (int i = 0; i < 5; ++i) text.observe(0, 0, -1);
  EXPECT_EQ(text.positions(), 0);
  text.observe(0, 1, 0);
  EXPECT_EQ(asked(text), (Counts{1}));
}

TEST(TextAcceptance, CountsNoMoreRanksThanItHasRoomFor) {
  TextAcceptance text;
  text.observe(0, 4000, -1);
  text.observe(0, 4000, 3999);
  ASSERT_EQ(text.ranks().size(), TextAcceptance::kMaxRanks);
  EXPECT_EQ(text.ranks().back().asked, 2);
  EXPECT_EQ(text.ranks().back().accepted, 0);
}

TEST(TextAcceptance, RefusesWhatNoTextShows) {
  EXPECT_NE(error_of([] { TextAcceptance().observe(0, 1, 1); }), "");
  EXPECT_NE(error_of([] { TextAcceptance().observe(0, 1, -2); }), "");
  EXPECT_NE(error_of([] { TextAcceptance().observe(0, 0, 0); }), "");
  EXPECT_EQ(error_of([] { TextAcceptance({{5, 3}, {2, 1}}); }), "");
  EXPECT_NE(error_of([] { TextAcceptance({{5, 6}}); }), "");
  EXPECT_NE(error_of([] { TextAcceptance({{5, -1}}); }), "");
  EXPECT_NE(error_of([] { TextAcceptance({{5, 3}, {3, 1}}); }), "") << "only two were refused";
}

TEST(TextAcceptance, ATextThatGoesOnHasTheSameFingerprint) {
  const std::vector<TokenId> prompt{5, 6, 7};
  std::vector<TokenId> text(kTextBeginning);
  std::iota(text.begin(), text.end(), 100);
  std::vector<TokenId> longer = text, other = text;
  longer.push_back(1);
  other.back() = 1;
  const std::uint64_t fingerprint = text_fingerprint(prompt, text);
  EXPECT_EQ(text_fingerprint(prompt, longer), fingerprint);
  EXPECT_NE(text_fingerprint(prompt, other), fingerprint);
  EXPECT_NE(text_fingerprint(std::vector<TokenId>{5, 6}, text), fingerprint);
  // The same tokens in a row, divided elsewhere.
  EXPECT_NE(text_fingerprint(prompt, std::vector<TokenId>{8}),
            text_fingerprint(std::vector<TokenId>{5, 6, 7, 8}, {}));
}

}  // namespace
}  // namespace canopy
