#include "planner/acceptance_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/tree_shape.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

using Position = AcceptanceRun::Position;

/// The child that the text goes on with, by its chances.
int take(const std::vector<double>& accept, std::mt19937_64& random) {
  double left = std::uniform_real_distribution<double>()(random);
  for (std::size_t k = 0; k < accept.size(); ++k)
    if ((left -= accept[k]) < 0) return static_cast<int>(k);
  return -1;
}

/// Texts of runs whose positions have chances given by `at(text, random)`, each for itself.
template <class At>
std::vector<AcceptanceRun> runs_of(int texts, int runs, int positions, std::mt19937_64& random,
                                   const At& at) {
  std::vector<AcceptanceRun> out;
  for (int i = 0; i < texts * runs; ++i) {
    AcceptanceRun run{i % texts, {}};
    for (int j = 0; j < positions; ++j) {
      std::vector<double> accept = at(run.text, random);
      const int taken = take(accept, random);
      run.positions.push_back({std::move(accept), taken, false});
    }
    out.push_back(std::move(run));
  }
  return out;
}

/// p(1..n) with r(k) = scale * k^-b.
std::vector<double> power_law(double scale, double b, int n) {
  std::vector<double> accept;
  for (int k = 1; k <= n; ++k)
    accept.push_back((k == 1 ? 1 : scale * std::pow(k - 1, -b)) - scale * std::pow(k, -b));
  return accept;
}

TEST(AcceptanceSample, MeansArePerPositionWhateverTheRunsLengths) {
  const std::vector<AcceptanceRun> runs{
      {7, {{{1, 0}, 0, false}, {{0.5, 0.25}, 1, false}, {{0, 0.5}, -1, true}}},
      {9, {{{0.25, 0.25}, -1, false}}}};
  const AcceptanceEstimate all = estimate_acceptance(runs, Loops::kWith);
  EXPECT_EQ(all.positions, 4);
  EXPECT_EQ(all.texts, 2);
  EXPECT_EQ(all.runs, 2);
  EXPECT_DOUBLE_EQ(all.accept[0].mean, 1.75 / 4);
  EXPECT_DOUBLE_EQ(all.accept[1].mean, 1.0 / 4);
  EXPECT_DOUBLE_EQ(all.reject[0].mean, 2.25 / 4);
  EXPECT_DOUBLE_EQ(all.reject[1].mean, 1.25 / 4);
  EXPECT_EQ(all.taken, (std::vector<std::int64_t>{1, 1}));
  // Two texts: the pulls are +-(1.5 - .4375 * 3) / 4, so the error is sqrt(2 * 2 * pull^2).
  EXPECT_DOUBLE_EQ(all.accept[0].error, 2 * (1.5 - 1.75 / 4 * 3) / 4);
  EXPECT_EQ(all.after_any[1].positions, 2);  // after (1, 0) and (.5, .25), in a row
  EXPECT_EQ(all.after_any[2].positions, 1);
  EXPECT_EQ(all.after_first[1].positions, 1);
  EXPECT_EQ(all.after_first[2].positions, 0);
  EXPECT_DOUBLE_EQ(all.after_any[1].first.mean, 0.25);
  EXPECT_DOUBLE_EQ(all.after_any[1].any.mean, 0.625);

  const AcceptanceEstimate without = estimate_acceptance(runs, Loops::kWithout);
  EXPECT_EQ(without.positions, 3);
  EXPECT_DOUBLE_EQ(without.accept[0].mean, 1.75 / 3);
}

TEST(AcceptanceSample, IntervalsCoverTheTruthAsOftenAsTheySayWhereTextsDiffer) {
  std::mt19937_64 random(1);
  constexpr int kTrials = 400, kTexts = 12;
  int covered = 0, covered_if_positions_were_independent = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> of_text;  // uniform in [.4, .9]: .65 on average
    for (int t = 0; t < kTexts; ++t)
      of_text.push_back(std::uniform_real_distribution<double>(0.4, 0.9)(random));
    const auto runs = runs_of(kTexts, 2, 30, random, [&](int text, auto&) {
      return std::vector<double>{of_text[static_cast<std::size_t>(text)]};
    });
    const AcceptanceEstimate estimate = estimate_acceptance(runs, Loops::kWith);
    const double off = std::abs(estimate.accept[0].mean - 0.65);
    covered += off <= estimate.accept[0].half_width();
    covered_if_positions_were_independent += off <= 1.96 * (0.5 / std::sqrt(12 * 12 * 60.0));
  }
  const double deviation = std::sqrt(0.95 * 0.05 / kTrials);
  EXPECT_NEAR(covered / double{kTrials}, 0.95, 4 * deviation);
  EXPECT_LT(covered_if_positions_were_independent / double{kTrials}, 0.5);
}

TEST(AcceptanceSample, HalfWidthIsStudentsFactorTimesTheError) {
  const auto factor = [](int groups) { return Estimate{0, 1, groups}.half_width(); };
  EXPECT_EQ(factor(1), INFINITY);
  const std::pair<int, double> table[] = {{2, 12.706}, {3, 4.303},  {4, 3.182},  {6, 2.571},
                                          {11, 2.228}, {31, 2.042}, {201, 1.972}};
  for (const auto& [groups, t] : table) EXPECT_NEAR(factor(groups), t, 0.01 * t) << groups;
}

TEST(AcceptanceSample, FindsThePowerLawOfItsRejections) {
  std::mt19937_64 random(2);
  const auto runs = runs_of(10, 1, 100, random, [](int, auto&) { return power_law(0.3, 0.8, 32); });
  const auto law = estimate_acceptance(runs, Loops::kWith).power_law;
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 0.8, 1e-12);
  EXPECT_NEAR(law->error, 0, 1e-12);
  EXPECT_NEAR(law->misfit, 0, 1e-12);
  // 1000 * .3 * k^-.8 refusals fall below ten at k = 71: all 32 serve.
  EXPECT_EQ(law->children, 32);
}

TEST(AcceptanceSample, GivesThePowerLawAnErrorThatHolds) {
  std::mt19937_64 random(3);
  const auto runs = runs_of(30, 1, 40, random, [](int text, auto&) {
    return power_law(0.2 + 0.01 * text, 0.9, 16);  // a mixture of scales is a law of the same b
  });
  const auto law = estimate_acceptance(runs, Loops::kWith).power_law;
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 0.9, 1e-9);
  const auto mixed = runs_of(30, 1, 40, random, [](int, auto& r) {
    return power_law(0.3, std::uniform_real_distribution<double>(0.6, 1.2)(r), 16);
  });
  const auto noisy = estimate_acceptance(mixed, Loops::kWith).power_law;
  ASSERT_TRUE(noisy);
  EXPECT_GT(noisy->error, 0);
  // The slope of ln E[k^-b], b uniform in [.6, 1.2], at 16 points.
  std::vector<double> x, y;
  double mx = 0, my = 0, xx = 0, xy = 0;
  for (int k = 1; k <= 16; ++k) {
    double mean = 0;
    for (int i = 0; i < 600; ++i) mean += std::pow(k, -(0.6 + (i + 0.5) / 1000)) / 600;
    x.push_back(std::log(k));
    y.push_back(std::log(mean));
    mx += x.back() / 16;
    my += y.back() / 16;
  }
  for (std::size_t i = 0; i < 16; ++i)
    xx += (x[i] - mx) * (x[i] - mx), xy += (x[i] - mx) * (y[i] - my);
  EXPECT_NEAR(noisy->exponent, -xy / xx, 4 * noisy->error);
}

TEST(AcceptanceSample, HasNoPowerLawWithoutRefusals) {
  std::mt19937_64 random(4);
  const auto runs = runs_of(10, 1, 10, random, [](int, auto&) {
    return std::vector<double>{0.9, 0.05, 0.04};
  });
  EXPECT_FALSE(estimate_acceptance(runs, Loops::kWith).power_law);  // 100 * .01 refusals at k = 3
}

TEST(AcceptanceSample, ReportsIndependenceWhereItHoldsAndNotWhereItDoesNot) {
  std::mt19937_64 random(5);
  const std::vector<double> easy{0.9, 0.05}, hard{0.3, 0.2};
  int off = 0;
  constexpr int kTrials = 100;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto runs = runs_of(20, 1, 60, random, [&](int, auto& r) {
      return r() % 2 ? easy : hard;  // each position for itself
    });
    off += estimate_acceptance(runs, Loops::kWith).after_any[1].first_is_off;
  }
  EXPECT_NEAR(off / double{kTrials}, 0.05, 4 * std::sqrt(0.05 * 0.95 / kTrials));

  std::vector<AcceptanceRun> runs;  // easy stretches, hard stretches
  for (int i = 0; i < 20; ++i) {
    AcceptanceRun run{i, {}};
    for (int j = 0; j < 60; ++j) {
      const std::vector<double>& accept = j / 10 % 2 ? easy : hard;
      run.positions.push_back({accept, take(accept, random), false});
    }
    runs.push_back(run);
  }
  const AcceptanceEstimate estimate = estimate_acceptance(runs, Loops::kWith);
  for (const auto* after : {&estimate.after_any, &estimate.after_first}) {
    EXPECT_FALSE((*after)[0].first_is_off);
    for (int d : {1, 2, 4}) {
      EXPECT_TRUE((*after)[static_cast<std::size_t>(d)].first_is_off) << d;
      EXPECT_TRUE((*after)[static_cast<std::size_t>(d)].any_is_off) << d;
      EXPECT_GT((*after)[static_cast<std::size_t>(d)].first.mean, (*after)[0].first.mean);
    }
  }
}

TEST(AcceptanceSample, PredictsTheTokensPerStepOfATree) {
  std::mt19937_64 random(6);
  // Chances that vary from position to position, but independently: only their mean counts.
  const auto chances = [](int, auto& r) {
    const double p = std::uniform_real_distribution<double>(0.3, 0.9)(r);
    return std::vector<double>{p, 0.5 * (1 - p), 0.1 * (1 - p)};
  };
  const AcceptanceEstimate estimate =
      estimate_acceptance(runs_of(40, 1, 100, random, chances), Loops::kWith);
  Acceptance acceptance;
  for (const Estimate& p : estimate.accept) acceptance.accept.push_back(p.mean);
  const TreeShape tree = best_tree(24, 7, acceptance);
  const double predicted = expected_tokens(tree, acceptance);

  constexpr int kSteps = 20000;
  double sum = 0, squares = 0;
  for (int step = 0; step < kSteps; ++step) {
    int tokens = 1;
    for (NodeId node = 0;;) {
      const int taken = take(chances(0, random), random);
      if (taken < 0 || taken >= tree.child_count(node)) break;
      NodeId child = node + 1;
      while (tree.parent(child) != node) ++child;
      node = child + taken;
      ++tokens;
    }
    sum += tokens;
    squares += tokens * tokens;
  }
  const double mean = sum / kSteps,
               walk_error = std::sqrt((squares / kSteps - mean * mean) / kSteps);
  // d E[tokens] / d p(k), by finite differences, times the errors of p(k): they may all be one way.
  double estimate_error = 0;
  for (std::size_t k = 0; k < acceptance.accept.size(); ++k) {
    Acceptance more = acceptance;
    more.accept[k] += 1e-6;
    estimate_error += (expected_tokens(tree, more) - predicted) / 1e-6 * estimate.accept[k].error;
  }
  EXPECT_NEAR(mean, predicted, 4 * (walk_error + estimate_error));
  EXPECT_LT(estimate_error, 0.05 * predicted);  // or the check above says little
}

TEST(AcceptanceSample, RefusesWhatItCannotJudge) {
  const std::vector<Position> two{{{0.5}, 0, true}, {{0.5}, 0, false}};
  const std::vector<AcceptanceRun> one{{3, two}, {3, two}};
  EXPECT_NE(error_of([&] { estimate_acceptance(one, Loops::kWith); }).find("two texts"),
            std::string::npos);
  const std::vector<AcceptanceRun> looping{{3, two}, {4, {{{0.5}, 0, true}}}};
  EXPECT_EQ(error_of([&] { estimate_acceptance(looping, Loops::kWith); }), "");
  EXPECT_NE(error_of([&] { estimate_acceptance(looping, Loops::kWithout); }), "");
  const std::vector<AcceptanceRun> uneven{{3, two}, {4, {{{0.5, 0.1}, 0, true}}}};
  EXPECT_NE(error_of([&] { estimate_acceptance(uneven, Loops::kWith); }).find("equally many"),
            std::string::npos);
}

/// The definition, slowly: some period fits the last kLoopRounds rounds.
bool ends_in_loop(std::span<const TokenId> text) {
  for (std::size_t period = 1; period <= kLoopPeriod; ++period) {
    if (text.size() < kLoopRounds * period) continue;
    const auto tail = text.last(kLoopRounds * period);
    bool repeats = true;
    for (std::size_t i = period; i < tail.size(); ++i) repeats &= tail[i] == tail[i - period];
    if (repeats) return true;
  }
  return false;
}

TEST(FindLoops, MarksWhatFollowsThreeRoundsOfAShortPeriod) {
  std::mt19937_64 random(7);
  int found = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<TokenId> text;
    while (text.size() < 120) {  // stretches of noise and of loops, whose periods go beyond 16
      std::vector<TokenId> round(1 + random() % 18);
      for (TokenId& token : round) token = static_cast<TokenId>(random() % 3);
      for (auto rounds = random() % 5; rounds > 0; --rounds)
        text.insert(text.end(), round.begin(), round.end());
    }
    const std::vector<bool> loops = find_loops(text);
    ASSERT_EQ(loops.size(), text.size() + 1);
    for (std::size_t i = 0; i <= text.size(); ++i) {
      ASSERT_EQ(loops[i], ends_in_loop(std::span(text).first(i))) << trial << ", " << i;
      found += loops[i];
    }
  }
  EXPECT_GT(found, 1000);
}

TEST(EstimateAcceptance, OfTheOverlapIsItsMeanAndVariance) {
  std::vector<AcceptanceRun> runs(2);
  runs[1].text = 1;
  const double overlaps[] = {0.2, 0.4, 0.6, 0.8};
  for (int i = 0; i < 4; ++i)
    runs[static_cast<std::size_t>(i / 2)].positions.push_back({{0.5}, 0, false, overlaps[i]});
  const AcceptanceEstimate e = estimate_acceptance(runs, Loops::kWith);
  EXPECT_NEAR(e.alpha.mean, 0.5, 1e-12);
  EXPECT_GT(e.alpha.error, 0);
  EXPECT_NEAR(e.overlap_variance, 0.05, 1e-12);
}

TEST(EstimateAcceptance, OfDeeperLevelsCountsPositionsBehindAcceptedOnes) {
  // Period of four: refused, accepted, accepted, accepted; each depth has its own vector.
  const std::vector<std::vector<double>> by_place{{0.1, 0.2}, {0.3, 0.1}, {0.5, 0.05}, {0.7, 0.0}};
  std::vector<AcceptanceRun> runs(2);
  runs[1].text = 1;
  for (AcceptanceRun& run : runs)
    for (int i = 0; i < 400; ++i)
      run.positions.push_back({by_place[static_cast<std::size_t>(i % 4)], i % 4 == 3 ? -1 : 1});
  const auto deeper = estimate_acceptance(runs, Loops::kWith).deeper;
  ASSERT_EQ(deeper.size(), 3u);  // nothing ever follows four in a row
  EXPECT_NEAR(deeper[0][0], (0.3 + 0.5 + 0.7) / 3, 1e-9);
  EXPECT_NEAR(deeper[1][0], (0.5 + 0.7) / 2, 1e-9);
  EXPECT_NEAR(deeper[2][0], 0.7, 1e-9);
  EXPECT_NEAR(deeper[2][1], 0.0, 1e-9);
}

TEST(EstimateAcceptance, OfDrawnChildrenIsPerWeightAtEachLevelAndNeverOfMoreThanOneChild) {
  const std::vector<std::vector<double>> chances{{0.5, 0.3}, {0.4, 0.05}, {0.45, 0.3}};
  std::vector<AcceptanceRun> runs(2);
  runs[1].text = 1;
  std::vector<int> levels;
  for (AcceptanceRun& run : runs) {
    WeightedStep step;
    for (int i = 0; i < 500; ++i) {
      step.accept = chances[static_cast<std::size_t>(std::min(step.level, 2))];
      run.positions.push_back({{0.5, 0.3}, 0, false, 0, step});
      if (levels.size() < 6) levels.push_back(step.level);
      step = step.next();
    }
  }
  EXPECT_EQ(levels, (std::vector<int>{0, 1, 2, 3, 4, 0}));
  const auto deeper = estimate_acceptance(runs, Loops::kWith).deeper;
  ASSERT_EQ(deeper.size(), 4u);
  EXPECT_NEAR(deeper[0][0], 0.4 / 0.5, 1e-9);
  EXPECT_NEAR(deeper[0][1], 0.05 / 0.5, 1e-9);
  EXPECT_NEAR(deeper[1][0], 0.45 / 0.75, 1e-9);  // weights of 0.4, but 0.75 was accepted
  EXPECT_NEAR(deeper[1][1], 0.3 / 0.75, 1e-9);
}

}  // namespace
}  // namespace canopy
