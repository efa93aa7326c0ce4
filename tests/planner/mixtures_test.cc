// Choices for mixtures whose experts are read when rows choose them: rows cost bytes there.
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "tests/planner/made_up.h"

namespace canopy {
namespace {

/// A machine whose link is all that counts, with a draft that costs nothing.
CostModel link_alone() {
  HardwareProfile p = testing::made_up_profile();
  p.layers[0].attention = p.layers[0].mlp = p.head = p.embed = testing::line(1e-6, 1e-9);
  p.drafting = {testing::line(1e-6, 1e-9), testing::line(1e-6, 1e-9), Seconds(0)};
  p.verify = Seconds(0);
  return CostModel(p);
}

/// The second child is accepted in half of the cases where the first is not, and so on.
Acceptance accepts(double first) {
  Acceptance acceptance;
  double left = 1, chance = first;
  for (int i = 0; i < 6; ++i, chance = .5) {
    acceptance.accept.push_back(left * chance);
    left *= 1 - chance;
  }
  return acceptance;
}

Candidate chosen(const ExpertReads& experts, double acceptance) {
  const CostModel cost = link_alone();
  PlannerInput in;
  in.cost = &cost;
  in.acceptance = accepts(acceptance);
  in.lay_out = [&](const TreeRoom&, int, std::uint64_t) {
    WeightPlan weights = testing::made_up_weights(0);  // what every row needs rests
    weights.experts = experts;
    return std::optional(weights);
  };
  return choose(in)->best;
}

ExpertReads many_small(double share) {  // as Qwen3-30B
  ExpertReads reads{48, 128, 8, 9'437'184};
  reads.stay = static_cast<int>(share * 48 * 128);
  return reads;
}

TEST(MixturePlan, PlainDecodingWhereTheCacheHasWhatNeighboursShare) {
  for (const double share : {.1, .2, .4})
    for (const double acceptance : {.5, .6, .7})
      EXPECT_EQ(chosen(many_small(share), acceptance).shape.size(), 1)
          << share << ", " << acceptance;
  EXPECT_EQ(chosen(many_small(.4), .8).shape.size(), 1);
}

TEST(MixturePlan, ADraftThatIsNearlyAlwaysRightPaysWithAColdCache) {
  EXPECT_GT(chosen(many_small(0), .9).shape.size(), 1);
}

TEST(MixturePlan, ATreeWhereARowUsesAQuarterOfTheExperts) {  // as Mixtral
  const Candidate best = chosen({32, 8, 2, 352'000'000}, .8);
  EXPECT_GT(best.shape.size(), best.shape.levels());
  // Every row of a large tree is free once all experts are read: four times what one row reads.
  EXPECT_GT(best.tokens, 4);
}

TEST(MixturePlan, HabitsTurnTheChoice) {
  ExpertReads reads = many_small(.4);
  EXPECT_EQ(chosen(reads, .8).shape.size(), 1);
  reads.habits.growth = -.5;  // rows share most of what they miss
  EXPECT_GT(chosen(reads, .8).shape.size(), 1);
}

TEST(ExpertReads, ReadsNoMoreThanThereAre) {
  for (const double share : {0., .1, .5, 1.})
    for (const double rows : {1., 10., 1000., 1e6})
      EXPECT_LE(many_small(share).misses(rows), many_small(share).absent());
  EXPECT_EQ(many_small(1).misses(64), 0);
  EXPECT_EQ(ExpertReads().misses(64), 0);
}

}  // namespace
}  // namespace canopy
