#include "planner/acceptance_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "planner/acceptance.h"
#include "src/base/error.h"

namespace canopy {
namespace {

/// The rank of the child that is accepted, by the vector; -1 if it is none of the first `children`.
int draw(const std::vector<double>& p, int children, std::mt19937& random) {
  double left = std::uniform_real_distribution<double>(0, 1)(random);
  for (int k = 0; k < children; ++k)
    if ((left -= p[static_cast<std::size_t>(k)]) < 0) return k;
  return -1;
}

TEST(AcceptanceTracker, BeginsWithWhatItIsGiven) {
  const Acceptance before = default_acceptance(0.6);
  const Acceptance now = AcceptanceTracker(before).estimate();
  ASSERT_EQ(now.accept.size(), before.accept.size());
  for (std::size_t k = 0; k < now.accept.size(); ++k)
    EXPECT_NEAR(now.accept[k], before.accept[k], 1e-12);
}

TEST(AcceptanceTracker, FollowsATextWhoseAcceptanceChanges) {
  std::mt19937 random(1);
  AcceptanceTracker tracker({{0.3, 0.3, 0.1, 0.05}});
  const std::vector<double> easy{0.9, 0.05, 0.01, 0.0}, hard{0.2, 0.15, 0.1, 0.05};
  const auto distance = [&](const std::vector<double>& p) {
    const Acceptance now = tracker.estimate();
    double sum = 0;
    for (std::size_t k = 0; k < p.size(); ++k) sum += std::abs(now.accept[k] - p[k]);
    return sum;
  };
  // 256 nodes of weight: a share of .9 is then known to .02, one of .2 to .03 (standard error).
  for (int i = 0; i < 1500; ++i) tracker.observe(0, 4, draw(easy, 4, random));
  EXPECT_LT(distance(easy), 0.1);
  for (int i = 0; i < 1500; ++i) tracker.observe(0, 4, draw(hard, 4, random));
  EXPECT_LT(distance(hard), 0.2);
}

TEST(AcceptanceTracker, NodesOfFewChildrenSayNothingOfLaterRanks) {
  AcceptanceTracker tracker({{0.5, 0.2, 0.1}});
  for (int i = 0; i < 300; ++i) tracker.observe(0, 1, -1);
  EXPECT_LT(tracker.estimate().accept[0], 0.2);
  EXPECT_DOUBLE_EQ(tracker.estimate().accept[1], 0.2);
}

TEST(AcceptanceTracker, AnEstimateIsAlwaysAVectorThatTreesCanBePlannedWith) {
  std::mt19937 random(2);
  AcceptanceTracker tracker({{0.5, 0.3, 0.2}});
  for (int i = 0; i < 2000; ++i) {
    const int children = 1 + static_cast<int>(random() % 3);
    tracker.observe(0, children,
                    children - 1);  // each rank is always the accepted one of its nodes
    const Acceptance now = tracker.estimate();
    EXPECT_LE(std::accumulate(now.accept.begin(), now.accept.end(), 0.0), 1 + 1e-12);
    EXPECT_NO_THROW(best_tree(8, 8, now));
  }
}

TEST(AcceptanceTracker, FollowsEachLevelOfAVectorThatDependsOnThem) {
  AcceptanceTracker tracker({{0.5, 0.2}, {{0.6, 0.1}, {0.9, 0.0}}});
  for (int i = 0; i < 300; ++i) tracker.observe(1, 2, -1);
  for (int i = 0; i < 300; ++i) tracker.observe(7, 2, 1);  // the last vector is of all below
  const Acceptance now = tracker.estimate();
  ASSERT_EQ(now.deeper.size(), 2u);
  EXPECT_DOUBLE_EQ(now.accept[0], 0.5);
  EXPECT_LT(now.deeper[0][0], 0.1);
  EXPECT_GT(now.deeper[1][1], 0.8);
}

TEST(AcceptanceTracker, RefusesAChildThatIsNotThere) {
  AcceptanceTracker tracker({{0.5}});
  EXPECT_THROW(tracker.observe(0, 1, 1), Error);
  EXPECT_THROW(tracker.observe(0, 1, -2), Error);
}

}  // namespace
}  // namespace canopy
