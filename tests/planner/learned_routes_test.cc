// A mixture's routes, learned from sweeps of plain decoding and of trees, for other budgets too.
#include "planner/experts/learned_routes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/error_of.h"

namespace canopy {
namespace {

ExpertReads reads(double share) {
  ExpertReads reads{48, 128, 8, 1000};
  reads.stay = static_cast<int>(share * 48 * 128);
  return reads;
}

/// Sweeps that read `misses` each, after those which fill the cache.
void show(LearnedRoutes& routes, const ExpertReads& now, int sweeps, std::int64_t rows,
          double misses) {
  routes.add(now, rows, static_cast<std::uint64_t>(now.stay));
  double owed = 0;  // whole experts, `misses` in the mean
  for (int i = 0; i < sweeps; ++i) {
    owed += misses;
    const double whole = std::floor(owed);
    owed -= whole;
    routes.add(now, rows, static_cast<std::uint64_t>(whole));
  }
}

double expected(const LearnedRoutes& routes, ExpertReads now, double rows) {
  now.habits = routes.habits(now);
  return now.misses(rows);
}

TEST(LearnedRoutes, BeginsWithWhatWasThereBefore) {
  for (const RouteHabits before : {RouteHabits{}, RouteHabits{.3, .1}, RouteHabits{5, -.2}}) {
    const LearnedRoutes routes(before, 100);
    for (const double share : {.02, .1, .25, .6}) {
      ExpertReads now = reads(share);
      now.habits = before;
      for (const double rows : {1., 8., 64.})
        EXPECT_NEAR(expected(routes, now, rows), now.misses(rows), 1e-6 * now.misses(rows));
    }
    EXPECT_FALSE(routes.grown());
    EXPECT_EQ(routes.sweeps(), 100);
  }
}

TEST(LearnedRoutes, ARouterWithoutHabitsIsKnownAtOtherSharesToo) {
  // Uniform and independent: a share of s finds s. The table expects far more.
  const double asked = 48 * 8;
  LearnedRoutes routes;
  show(routes, reads(.1), 100, 1, asked * .9);
  EXPECT_NEAR(expected(routes, reads(.1), 1), asked * .9, asked * .02);
  for (const double share : {.05, .2, .4}) {
    ExpertReads other = reads(share);
    other.habits = routes.habits(reads(.1));
    EXPECT_NEAR(other.misses(1), asked * (1 - share), .15 * asked * (1 - share));
  }
}

TEST(LearnedRoutes, TreesShowHowMissesGrow) {
  // Twelve for a row, and rows^.95 times as many.
  const ExpertReads now = reads(.4);
  LearnedRoutes routes;
  show(routes, now, 60, 1, 12);
  show(routes, now, 60, 16, 12 * std::pow(16, .95));
  for (const double rows : {1., 4., 16., 32.})
    EXPECT_NEAR(expected(routes, now, rows), 12 * std::pow(rows, .95),
                .1 * 12 * std::pow(rows, .95))
        << rows;
}

TEST(LearnedRoutes, TreesAloneSayWhatTreesRead) {
  const ExpertReads now = reads(.4);
  LearnedRoutes routes;
  show(routes, now, 60, 16, 400);
  EXPECT_NEAR(expected(routes, now, 16), 400, 40);
}

TEST(LearnedRoutes, WhatFillsTheCacheIsNoEvidence) {
  const ExpertReads now = reads(.4);
  LearnedRoutes routes;
  for (int i = 0; i < 6; ++i) routes.add(now, 1, 384);  // 2304 of 2457
  EXPECT_FALSE(routes.grown());
  routes.add(now, 1, 384);
  EXPECT_FALSE(routes.grown());
  routes.add(now, 1, 100);
  EXPECT_TRUE(routes.grown());
}

TEST(LearnedRoutes, NorAreSweepsThatReadNearlyAll) {
  const ExpertReads now = reads(.4);
  LearnedRoutes routes;
  show(routes, now, 10, 512, 3500);  // of 3687 that do not stay
  EXPECT_FALSE(routes.grown());
}

TEST(LearnedRoutes, NothingMissedIsNoInfinity) {
  LearnedRoutes routes;
  show(routes, reads(.9), 600, 1, 0);
  const RouteHabits habits = routes.habits(reads(.9));
  EXPECT_GE(habits.odds, 1);
  EXPECT_LE(habits.odds, RouteHabits::kMostOdds);
  EXPECT_LT(routes.sweeps(), LearnedRoutes::kMostSweeps);  // the older half fades
}

TEST(LearnedRoutes, TheNextRunGoesOnFromThere) {
  LearnedRoutes first;
  show(first, reads(.1), 100, 1, 380);
  const LearnedRoutes next = LearnedRoutes::from_json(first.to_json(reads(.1)));
  EXPECT_EQ(next.sweeps(), 100);
  EXPECT_NEAR(expected(next, reads(.1), 1), expected(first, reads(.1), 1), 1e-6);
}

TEST(LearnedRoutes, AFileThatIsNoneIsRefused) {
  for (const char* const text :
       {"", "[]", "{}", R"({"canopy_learned_routes": 2, "odds": 1, "growth": 0, "sweeps": 3})",
        R"({"canopy_learned_routes": 1, "odds": 0, "growth": 0, "sweeps": 3})",
        R"({"canopy_learned_routes": 1, "odds": 1, "growth": 2, "sweeps": 3})",
        R"({"canopy_learned_routes": 1, "odds": 1, "growth": 0, "sweeps": -1})",
        R"({"canopy_learned_routes": 1, "odds": "1", "growth": 0, "sweeps": 3})",
        R"({"canopy_learned_routes": 1, "odds": 1e999, "growth": 0, "sweeps": 3})"})
    EXPECT_NE(error_of([&] { LearnedRoutes::from_json(text); }), "") << text;
}

}  // namespace
}  // namespace canopy
