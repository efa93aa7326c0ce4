#include "planner/learned_acceptance.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"

namespace canopy {
namespace {

constexpr double kBefore = LearnedAcceptance::kBefore, kMost = LearnedAcceptance::kMostNodes;
const Acceptance kPrior{{0.5, 0.2, 0.1}};

LearnedAcceptance taught(int nodes, int children, int accepted) {
  LearnedAcceptance learned;
  for (int i = 0; i < nodes; ++i) learned.observe(children, accepted);
  return learned;
}

TEST(LearnedAcceptance, BeginsWithWhatWasThereBefore) {
  const Acceptance a = LearnedAcceptance().estimate(kPrior);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_DOUBLE_EQ(a.accept[k], kPrior.accept[k]);
  EXPECT_EQ(LearnedAcceptance().nodes(), 0);
}

TEST(LearnedAcceptance, MovesToTheSharesThatTextsShow) {
  const LearnedAcceptance learned = taught(52, 2, 0);
  const Acceptance a = learned.estimate(kPrior);
  EXPECT_DOUBLE_EQ(a.accept[0], (52 + 0.5 * kBefore) / (52 + kBefore));
  EXPECT_DOUBLE_EQ(a.accept[1], 0.2 * kBefore / (52 + kBefore));
  EXPECT_DOUBLE_EQ(a.accept[2], 0.1);  // no node had a third child
  EXPECT_EQ(learned.nodes(), 52);
}

TEST(LearnedAcceptance, NeverSumsToMoreThanOne) {
  LearnedAcceptance learned = taught(1000, 1, 0);
  LearnedAcceptance other;
  for (int i = 0; i < 3; ++i) other.observe(2, 1);
  learned.add(other);
  double sum = 0;
  for (const double p : learned.estimate({{0.9, 0.09}}).accept) sum += p;
  EXPECT_LE(sum, 1 + 1e-12);
}

TEST(LearnedAcceptance, OldTextsMakeRoomForNewOnes) {
  LearnedAcceptance learned;
  for (int i = 0; i < 10; ++i) learned.add(taught(1000, 1, 0));
  EXPECT_DOUBLE_EQ(learned.nodes(), kMost);
  for (int i = 0; i < 20; ++i) learned.add(taught(1000, 1, -1));
  EXPECT_DOUBLE_EQ(learned.nodes(), kMost);
  EXPECT_LT(learned.estimate(kPrior).accept[0], 0.01)
      << "it follows within some ten thousand nodes";
}

TEST(LearnedAcceptance, ComesBackFromItsFile) {
  LearnedAcceptance learned = taught(7, 3, 1);
  learned.add(taught(2, 1, 0));
  const LearnedAcceptance back = LearnedAcceptance::from_json(learned.to_json());
  EXPECT_EQ(back.estimate(kPrior).accept, learned.estimate(kPrior).accept);
  EXPECT_EQ(back.nodes(), 9);
}

TEST(LearnedAcceptance, RefusesFilesThatMakeNoSense) {
  const auto error = [](const char* text) {
    return error_of([&] { LearnedAcceptance::from_json(text); });
  };
  EXPECT_NE(error("{"), "");
  EXPECT_NE(error("[]").find("another version"), std::string::npos);
  EXPECT_NE(error(R"({"canopy_learned_acceptance": 2})").find("another version"),
            std::string::npos);
  for (const char* lists :
       {R"("asked": [1])", R"("asked": [1], "accepted": 1)", R"("asked": [1], "accepted": [])",
        R"("asked": [1], "accepted": [2])", R"("asked": [-1], "accepted": [-1])",
        R"("asked": [1e9], "accepted": [0])", R"("asked": ["1"], "accepted": [0])"})
    EXPECT_NE(error((std::string(R"({"canopy_learned_acceptance": 1, )") + lists + "}").c_str()),
              "")
        << lists;
}

TEST(LearnedAcceptance, EachPairDrawingAndSamplingHasAFileOfItsOwn) {
  Sampling greedy{.temperature = 0};
  EXPECT_EQ(learned_file_name("a", "b", "topk", greedy), "learned-topk-a-b-t0.json");
  EXPECT_NE(learned_file_name("a", "b", "sequoia", greedy),
            learned_file_name("a", "b", "topk", greedy));
}

}  // namespace
}  // namespace canopy
