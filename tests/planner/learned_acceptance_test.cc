#include "planner/learned_acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "planner/acceptance.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

constexpr double kText = LearnedAcceptance::kTextPositions;
constexpr double kBefore = LearnedAcceptance::kBeforePositions;
constexpr double kErrors = LearnedAcceptance::kErrors;
constexpr std::size_t kMost = LearnedAcceptance::kMaxTexts;
const Acceptance kPrior{{0.5, 0.2, 0.1}};

/// A text of `positions` positions, each of which had `children` children, of which this was
/// accepted.
TextAcceptance text(int positions, int children, int accepted) {
  TextAcceptance shown;
  for (int i = 0; i < positions; ++i) shown.observe(0, children, accepted);
  return shown;
}

TEST(LearnedAcceptance, BeginsWithWhatWasThereBefore) {
  for (const Acceptance& prior : {kPrior, default_acceptance(0), default_acceptance(0.6)}) {
    const Acceptance a = LearnedAcceptance().estimate(prior);
    ASSERT_EQ(a.accept.size(), prior.accept.size());
    for (std::size_t k = 0; k < a.accept.size(); ++k)
      EXPECT_NEAR(a.accept[k], prior.accept[k], 1e-12);
  }
  EXPECT_EQ(LearnedAcceptance().texts(), 0);
}

TEST(LearnedAcceptance, ALongTextCountsForNoMorePositionsThanTextsAreAlike) {
  // Texts that all accept half as often as before, in the mean: what is not excluded is the upper
  // end of the interval around the mean, by (B1) to (B3).
  const auto estimate = [](int texts, int half) {
    LearnedAcceptance learned;
    for (int i = 0; i < texts; ++i)
      learned.add(static_cast<std::uint64_t>(i),
                  TextAcceptance({{4 * std::int64_t{half}, std::int64_t{half}}}));
    return learned.estimate(kPrior).accept[0];
  };
  for (const int texts : {1, 10, 60})
    for (const int half : {1, 10, 1000}) {
      const double positions = 4.0 * half;
      const double counts = texts * positions / (1 + (positions - 1) / kText);
      EXPECT_LT(counts, texts * kText);
      const double mean = (kBefore * 0.5 + counts * 0.25) / (kBefore + counts);
      const double most = mean + kErrors * std::sqrt(mean * (1 - mean) / (kBefore + counts + 1));
      EXPECT_NEAR(estimate(texts, half), std::min(0.5, most), 1e-12) << texts << " " << half;
    }
  EXPECT_EQ(estimate(1, 100000), 0.5) << "one text alone excludes nothing";
  EXPECT_LT(estimate(60, 1000), 0.33) << "many do";
}

TEST(LearnedAcceptance, TextsThatAgreeWithWhatWasThereChangeNothing) {
  LearnedAcceptance learned;
  for (std::uint64_t i = 0; i < 30; ++i)
    learned.add(i, TextAcceptance({{100, 55}, {45, 18}, {27, 9}}));
  const Acceptance a = learned.estimate(kPrior);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(a.accept[k], kPrior.accept[k], 1e-12);
}

TEST(LearnedAcceptance, FollowsTextsUpwardsAndDownwards) {
  LearnedAcceptance easy, hard;
  for (std::uint64_t i = 0; i < kMost; ++i) {
    easy.add(i, TextAcceptance({{100, 95}, {5, 1}}));
    hard.add(i, TextAcceptance({{100, 15}, {85, 5}}));
  }
  // 64 texts of nearly 14 positions: the 64 before shift .15 to .17, and three errors are .04.
  EXPECT_NEAR(easy.estimate(kPrior).accept[0], 0.95, 0.07);
  EXPECT_NEAR(hard.estimate(kPrior).accept[0], 0.15, 0.07);
  // Ranks that were not asked for keep their chance among what the first ones leave.
  EXPECT_NEAR(hard.estimate(kPrior).accept[2] /
                  (1 - hard.estimate(kPrior).accept[0] - hard.estimate(kPrior).accept[1]),
              0.1 / 0.3, 1e-12);
}

TEST(LearnedAcceptance, IsAlwaysAVectorThatTreesCanBePlannedWith) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LearnedAcceptance learned;
    for (auto i = random() % 20; i > 0; --i) {
      TextAcceptance shown;
      for (auto position = random() % 50; position > 0; --position) {
        const int children = 1 + static_cast<int>(random() % 6);
        shown.observe(static_cast<int>(random() % 2), children,
                      static_cast<int>(random() % static_cast<unsigned>(children + 1)) - 1);
      }
      learned.add(random(), shown);
    }
    const Acceptance a = learned.estimate(seed % 2 == 0 ? kPrior : default_acceptance(0));
    for (const double p : a.accept) EXPECT_GE(p, 0);
    EXPECT_LE(std::accumulate(a.accept.begin(), a.accept.end(), 0.0), 1 + 1e-12);
    EXPECT_NO_THROW(best_tree(8, 8, a));
  }
}

TEST(LearnedAcceptance, TheSameTextAgainIsNoNewOne) {
  LearnedAcceptance learned;
  learned.add(7, text(40, 2, -1));
  const std::string once = learned.to_json();
  for (int i = 0; i < 5; ++i) learned.add(7, text(40, 2, -1));
  learned.add(7, text(12, 2, 0));  // what ended earlier knows less of it
  EXPECT_EQ(learned.to_json(), once);
  learned.add(7, text(60, 2, -1));  // it went on
  EXPECT_EQ(learned.texts(), 1);
  EXPECT_EQ(learned.positions(), 60);
}

TEST(LearnedAcceptance, ATextInWhichNothingWasAskedIsNone) {
  LearnedAcceptance learned;
  learned.add(7, TextAcceptance());
  EXPECT_EQ(learned.texts(), 0);
}

TEST(LearnedAcceptance, OldTextsMakeRoomForNewOnes) {
  LearnedAcceptance learned, later;
  for (std::uint64_t i = 0; i < kMost; ++i) learned.add(i, text(100, 1, 0));
  for (std::uint64_t i = 0; i < kMost; ++i) later.add(1000 + i, text(100, 1, -1));
  learned.add(later);
  EXPECT_EQ(learned.texts(), static_cast<int>(kMost));
  EXPECT_EQ(learned.to_json(), later.to_json());
  EXPECT_LT(learned.estimate(kPrior).accept[0], 0.1);
}

TEST(LearnedAcceptance, MovesEachLevelsVectorAndKeepsThoseThatTextsAllow) {
  LearnedAcceptance learned;
  Acceptance before = kPrior;
  before.deeper = {kPrior.accept, {0.999}};
  learned.add(1, text(40, 2, -1));
  const Acceptance after = learned.estimate(before);
  ASSERT_EQ(after.deeper.size(), 2u);
  EXPECT_EQ(after.deeper[0], after.accept);
  for (std::uint64_t i = 0; i < kMost; ++i) learned.add(10 + i, text(100, 1, -1));
  EXPECT_LT(learned.estimate(before).deeper[1][0], 0.1);  // nothing was ever accepted
}

TEST(LearnedAcceptance, TheOrderOfTextsDoesNotMatter) {
  LearnedAcceptance one, other;
  const std::vector<TextAcceptance> texts{text(40, 2, -1), text(90, 3, 0), text(20, 1, 0)};
  for (std::size_t i : {0, 1, 2}) one.add(i, texts[i]);
  for (std::size_t i : {2, 0, 1}) other.add(i, texts[i]);
  for (std::size_t k = 0; k < 3; ++k)
    EXPECT_NEAR(one.estimate(kPrior).accept[k], other.estimate(kPrior).accept[k], 1e-15);
}

TEST(LearnedAcceptance, ComesBackFromItsFile) {
  LearnedAcceptance learned;
  learned.add(0xfedcba9876543210, text(7, 3, 1));
  learned.add(1, text(2, 1, 0));
  const LearnedAcceptance back = LearnedAcceptance::from_json(learned.to_json());
  EXPECT_EQ(back.to_json(), learned.to_json());
  EXPECT_EQ(back.estimate(kPrior).accept, learned.estimate(kPrior).accept);
  EXPECT_EQ(back.texts(), 2);
  EXPECT_NE(learned.to_json().find("\"fedcba9876543210\""), std::string::npos);
}

TEST(LearnedAcceptance, RefusesFilesThatMakeNoSense) {
  const auto error = [](const std::string& json) {
    return error_of([&] { LearnedAcceptance::from_json(json); });
  };
  EXPECT_NE(error("{"), "");
  for (const char* other :
       {"[]", "3", R"({"canopy_learned_acceptance": 3, "texts": []})",
        R"({"canopy_learned_acceptance": 1, "asked": [4.0], "accepted": [3.0]})"})
    EXPECT_NE(error(other).find("another version"), std::string::npos) << other;
  const auto file = [](const std::string& texts) {
    return R"({"canopy_learned_acceptance": 2, "texts": )" + texts + "}";
  };
  const std::string id = R"("text": "0123456789abcdef")";
  EXPECT_EQ(error(file("[{" + id + R"(, "asked": [3, 1], "accepted": [2, 0]}])")), "");
  for (const std::string& texts :
       {std::string("3"), std::string("[3]"), std::string("[{}]"),
        std::string(R"([{"text": "0123", "asked": [1], "accepted": [1]}])"),
        std::string(R"([{"text": "0123456789abcdeg", "asked": [1], "accepted": [1]}])"),
        "[{" + id + R"(, "asked": [1]}])", "[{" + id + R"(, "asked": [1], "accepted": []}])",
        "[{" + id + R"(, "asked": [1], "accepted": [2]}])",
        "[{" + id + R"(, "asked": [3, 2], "accepted": [2, 0]}])",
        "[{" + id + R"(, "asked": [-1], "accepted": [-1]}])",
        "[{" + id + R"(, "asked": [1.5], "accepted": [0]}])",
        "[{" + id + R"(, "asked": [1e300], "accepted": [0]}])"})
    EXPECT_NE(error(file(texts)), "") << texts;
  std::string many = "[";
  for (std::size_t i = 0; i <= kMost; ++i)
    many += (i == 0 ? "{" : ", {") + id + R"(, "asked": [1], "accepted": [1]})";
  EXPECT_NE(error(file(many + "]")).find("at most 64"), std::string::npos);
}

TEST(LearnedAcceptance, EachPairDrawingAndSamplingHasAFileOfItsOwn) {
  Sampling greedy{.temperature = 0};
  EXPECT_EQ(learned_file_name("a", "b", "topk", greedy), "learned-topk-a-b-t0.json");
  EXPECT_NE(learned_file_name("a", "b", "sequoia", greedy),
            learned_file_name("a", "b", "topk", greedy));
}

}  // namespace
}  // namespace canopy
