#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "planner/calibrated/calibrated_json.h"
#include "planner/calibrated/prices.h"
#include "planner/calibrated/valued_trees.h"
#include "planner/learned_acceptance.h"
#include "tests/error_of.h"
#include "tests/planner/made_up.h"

namespace canopy::testing {
namespace {

constexpr ChanceVector kTruth{.3, -.5, .4, -.9, 1.1, .6, -.2, .5, -.4, 1.5, 1, -.2, -1, -.5};

RowOfBest row_of(std::vector<float> probability, float entropy) {
  RowOfBest row{.count = static_cast<int>(probability.size()), .entropy = entropy};
  std::copy(probability.begin(), probability.end(), row.probability.begin());
  return row;
}

/// Synthetic: the row of a softmax over 40 tokens, as sharp as chance has it.
RowOfBest random_row(std::mt19937& random) {
  std::normal_distribution<double> normal(0, std::uniform_real_distribution<double>(.5, 5)(random));
  std::vector<double> p(40);
  double sum = 0, entropy = 0;
  for (double& value : p) sum += value = std::exp(normal(random));
  for (double& value : p) {
    value /= sum;
    entropy -= value * std::log(value);
  }
  std::sort(p.begin(), p.end(), std::greater<>());
  RowOfBest row = row_of({p.begin(), p.begin() + kChanceRanks}, static_cast<float>(entropy));
  if (random() % 2 == 0) {
    row.copied = 1 + static_cast<int>(random() % 3 == 0 ? kChanceRanks : random() % 3);
    row.match = 2 + static_cast<int>(random() % 7);
  }
  return row;
}

/// A context in which each rank is written with its chance by these weights; of rows whose chances
/// add up to 1 at most, as one token is written.
ChanceContext random_context(const ChanceVector& weights, std::mt19937& random) {
  while (true) {
    ChanceContext context{random_row(random), 0};
    double left = std::uniform_real_distribution<double>(0, 1)(random), sum = 0;
    for (int rank = 1; rank <= context.row.children(); ++rank) {
      const double chance = chance_of(weights, chance_features(context.row, rank));
      sum += chance;
      if (context.written == 0 && (left -= chance) < 0) context.written = rank;
    }
    if (sum <= 1) return context;
  }
}

/// Learns texts of `text` contexts each, one after another.
ChanceEvidence learn_online(std::span<const ChanceContext> contexts, std::size_t text,
                            const ChanceVector& prior) {
  ChanceEvidence known;
  for (std::size_t first = 0; first < contexts.size(); first += text)
    known.add(evidence_of(contexts.subspan(first, std::min(text, contexts.size() - first)), known,
                          prior));
  return known;
}

/// The standard error of a weight: the others are unknown, too.
double error_of_weight(ChanceEvidence known, std::size_t i) {
  known.moment = {};
  known.moment[i] = 1;
  return std::sqrt(known.weights({})[i]);
}

double odds(double q) { return std::log(q / (1 - q)); }

TEST(CalibratedChance, HasTheFeaturesOfThePage) {
  const RowOfBest row = row_of({.5f, .25f, .125f}, 1.25f);
  EXPECT_EQ(chance_features(row, 1), (ChanceVector{1, 1, 0, 0, odds(.5), odds(.5), 1.25, 1.25, 0}));
  EXPECT_EQ(chance_features(row, 2),
            (ChanceVector{1, 0, 1, std::log(2.0), odds(.25), 0, 1.25, 0, odds(.5)}));
  EXPECT_EQ(chance_features(row, 3),
            (ChanceVector{1, 0, 0, std::log(3.0), odds(.125), 0, 1.25, 0, odds(.5)}));
  EXPECT_EQ(chance_features(row_of({1.0f, 0.0f}, 0), 1)[4], odds(1 - 1e-6));
  EXPECT_EQ(chance_features(row_of({1.0f, 0.0f}, 0), 2)[4], odds(1e-6));
  for (const int rank : {0, 4}) EXPECT_NE(error_of([&] { chance_features(row, rank); }), "");
}

TEST(CalibratedChance, HasTheFeaturesOfACopiedToken) {
  RowOfBest row = row_of({.5f, .25f}, 1.25f);
  const auto of_copies = [&](int rank) {
    const ChanceVector x = chance_features(row, rank);
    return std::vector<double>(x.begin() + 9, x.end());
  };
  EXPECT_EQ(of_copies(1), (std::vector<double>{0, 0, 0, 0, 0}));
  row.copied = 2;
  row.match = 6;
  EXPECT_EQ(row.children(), 2);
  EXPECT_EQ(of_copies(1), (std::vector<double>{0, 0, 1, .75, 0}));
  EXPECT_EQ(of_copies(2), (std::vector<double>{1, .75, 0, 0, 0}));
  row.copied = 3;  // none of the best
  EXPECT_EQ(row.children(), 3);
  EXPECT_EQ(of_copies(2), (std::vector<double>{0, 0, 1, .75, 0}));
  EXPECT_EQ(of_copies(3), (std::vector<double>{1, .75, 0, 0, 1}));
  EXPECT_EQ(chance_features(row, 3)[4], odds(.25));
  EXPECT_EQ(chance_features(row, 3)[3], std::log(3.0));
  row.copied = 4;
  EXPECT_NE(error_of([&] { chance_features(row, 1); }), "");
}

TEST(CalibratedChance, IsALogisticThatNeverReachesCertainty) {
  const RowOfBest row = row_of({.7f, .2f}, .8f);
  const ChanceVector& q = prior_weights(ChanceKind::kSampled);
  EXPECT_NEAR(chance_of(q, chance_features(row, 1)), .7, 1e-6);
  EXPECT_NEAR(chance_of(q, chance_features(row, 2)), .2, 1e-6);
  EXPECT_EQ(chance_of({1000}, {1}), kMostChance);
  EXPECT_EQ(chance_of({-1000}, {1}), 0);
  // At temperature 0 a strong draft is right more often than it is sure.
  EXPECT_GT(chance_of(prior_weights(ChanceKind::kGreedy), chance_features(row, 1)), .8);
}

TEST(CalibratedChance, FindsTheWeightsOfManyContexts) {
  std::mt19937 random(1);
  std::vector<ChanceContext> contexts;
  for (int i = 0; i < 20000; ++i) contexts.push_back(random_context(kTruth, random));
  const ChanceVector& prior = prior_weights(ChanceKind::kSampled);
  const ChanceEvidence known = learn_online(contexts, 100, prior);
  const ChanceVector found = known.weights(prior);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], kTruth[i], 5 * error_of_weight(known, i)) << i;
}

/// The mean log loss of contexts, over what the true weights have.
double regret(const ChanceVector& w, unsigned seed) {
  std::mt19937 random(seed);
  double sum = 0;
  constexpr int kContexts = 4000;
  for (int i = 0; i < kContexts; ++i) {
    const RowOfBest row = random_row(random);
    for (int rank = 1; rank <= row.children(); ++rank) {
      const ChanceVector x = chance_features(row, rank);
      const double f = chance_of(kTruth, x), g = chance_of(w, x);
      sum += f * std::log(f / g) + (1 - f) * std::log((1 - f) / (1 - g));
    }
  }
  return sum / kContexts;
}

TEST(CalibratedChance, LearnedTextByTextIsAsGoodAsLearnedAtOnce) {
  std::mt19937 random(2);
  std::vector<ChanceContext> contexts;
  const ChanceVector& prior = prior_weights(ChanceKind::kSampled);
  for (int i = 0; i < 3000; ++i) contexts.push_back(random_context(kTruth, random));
  // At once: the same contexts, again and again from where the last round came to.
  ChanceVector at_once = prior;
  for (int round = 0; round < 20; ++round) {
    ChanceEvidence from;  // evidence of nothing whose weights are those of the last round
    for (std::size_t i = 0; i < prior.size(); ++i) from.moment[i] = at_once[i] - prior[i];
    at_once = evidence_of(contexts, from, prior).weights(prior);
  }
  const ChanceEvidence known = learn_online(contexts, 60, prior);
  EXPECT_EQ(known.contexts, 3000);
  const ChanceVector online = known.weights(prior);
  // They differ by less than either is known to.
  for (std::size_t i = 0; i < online.size(); ++i)
    EXPECT_LT(std::abs(online[i] - at_once[i]), error_of_weight(known, i)) << i;
  const double before = regret(prior, 3), after = regret(online, 3), best = regret(at_once, 3);
  EXPECT_LT(after, .25 * before);
  EXPECT_LT(after, best + .02 * before);
}

TEST(CalibratedChance, OldContextsGiveWayToNewOnes) {
  std::mt19937 random(4);
  const ChanceVector& prior = prior_weights(ChanceKind::kSampled);
  ChanceVector other = kTruth;
  other[0] -= 2;
  ChanceEvidence known;
  for (const ChanceVector* const truth : {static_cast<const ChanceVector*>(&other), &kTruth})
    for (int text = 0; text < 120; ++text) {
      std::vector<ChanceContext> contexts;
      for (int i = 0; i < 100; ++i) contexts.push_back(random_context(*truth, random));
      known.add(evidence_of(contexts, known, prior));
      ASSERT_LE(known.contexts, ChanceEvidence::kMostContexts + 1e-6);
    }
  EXPECT_NEAR(known.contexts, ChanceEvidence::kMostContexts, 1e-6);
  EXPECT_LT(regret(known.weights(prior), 5), .1 * regret(prior, 5));
}

TEST(CalibratedChance, AFirstTextThatIsFarOffNeverMakesItWorseThanItWas) {
  // Synthetic: the draft is sure and always wrong.
  const ChanceVector& prior = prior_weights(ChanceKind::kGreedy);
  for (const int count : {1, 10, 300}) {
    const ChanceContext sure{row_of({.999999f, 1e-7f, 1e-8f}, 1e-5f), 3};
    const std::vector<ChanceContext> contexts(static_cast<std::size_t>(count), sure);
    ChanceEvidence known;
    known.add(evidence_of(contexts, known, prior));
    ASSERT_TRUE(known.is_sound());
    const ChanceVector after = known.weights(prior);
    EXPECT_LT(chance_of(after, chance_features(sure.row, 1)),
              chance_of(prior, chance_features(sure.row, 1)));
    EXPECT_GT(chance_of(after, chance_features(sure.row, 3)),
              chance_of(prior, chance_features(sure.row, 3)));
  }
}

TEST(CalibratedChance, FallsBackToThePriorWhereNumbersAreNone) {
  const ChanceVector& prior = prior_weights(ChanceKind::kGreedy);
  ChanceEvidence bad;
  bad.moment[3] = std::nan("");
  EXPECT_EQ(bad.weights(prior), prior);
  EXPECT_FALSE(bad.is_sound());
  bad = {};
  bad.information[2][2] = -5;
  EXPECT_EQ(bad.weights(prior), prior);
  ChanceLearner learner({});
  learner.learn(ChanceKind::kGreedy,
                std::vector<ChanceContext>{{row_of({std::nanf(""), .1f}, std::nanf("")), 1}});
  EXPECT_EQ(learner.weights(ChanceKind::kGreedy), prior);
  EXPECT_EQ(learner.take_shown(), Calibrated());
}

TEST(ChanceLearner, KeepsTheKindsApartAndHandsOutEachContextOnce) {
  std::mt19937 random(6);
  std::vector<ChanceContext> contexts;
  for (int i = 0; i < 50; ++i) contexts.push_back(random_context(kTruth, random));
  Calibrated before;
  before.sampled.chance = evidence_of(contexts, {}, prior_weights(ChanceKind::kSampled));
  ChanceLearner learner(before);
  EXPECT_EQ(learner.weights(ChanceKind::kGreedy), prior_weights(ChanceKind::kGreedy));
  EXPECT_NE(learner.weights(ChanceKind::kSampled), prior_weights(ChanceKind::kSampled));
  const ChanceVector sampled = learner.weights(ChanceKind::kSampled);
  learner.learn(ChanceKind::kGreedy, contexts);
  learner.observe(ChanceKind::kGreedy, 32, 5.5);
  EXPECT_EQ(learner.weights(ChanceKind::kSampled), sampled);
  EXPECT_NE(learner.weights(ChanceKind::kGreedy), prior_weights(ChanceKind::kGreedy));
  const Calibrated shown = learner.take_shown();
  EXPECT_EQ(shown.greedy.chance.contexts, 50);
  EXPECT_EQ(shown.sampled.chance.contexts, 0);  // it was known before
  EXPECT_EQ(shown.greedy.sizes.bins[4], (ValuedSizes::Bin{1, 32, 5.5}));
  EXPECT_EQ(learner.take_shown(), Calibrated());
  // The evidence that is kept gives the next run the same weights.
  before.add(shown);
  EXPECT_EQ(ChanceLearner(before).weights(ChanceKind::kGreedy),
            learner.weights(ChanceKind::kGreedy));
}

TEST(ValuedGain, BeginsWithTheStudyAndFollowsSweeps) {
  const Acceptance acceptance{{.6, .2, .05, .02}};
  const ValuedGain before({}, ChanceKind::kGreedy, acceptance);
  EXPECT_EQ(before.at(2), 1);
  EXPECT_NEAR(before.at(8), 1.03, 1e-12);
  EXPECT_GT(before.at(100), before.at(64));
  EXPECT_EQ(before.at(1024), before.at(4096));
  const double by_rank = expected_tokens(best_tree(32, 32, acceptance), acceptance);
  ValuedSizes seen;
  for (int i = 0; i < 64; ++i) seen.observe(32, 1.5 * by_rank);
  const ValuedGain after(seen, ChanceKind::kGreedy, acceptance);
  EXPECT_NEAR(after.at(32), (1.07 + 1.5) / 2, 1e-9);
  EXPECT_EQ(after.at(8), before.at(8));
  for (int i = 0; i < 20000; ++i) seen.observe(32, by_rank);
  EXPECT_LE(seen.bins[4].sweeps, ValuedSizes::kMostSweeps + 1);
  EXPECT_NEAR(ValuedGain(seen, ChanceKind::kGreedy, acceptance).at(32), 1, .01);
}

TEST(ValuedRoom, HoldsTheTreesOfAnyNumberOfTextsThatShareTheNodes) {
  for (const int places : {1, 3, 16})
    for (const int nodes : {places, 40, 64, 500, 1024}) {
      if (nodes < places) continue;
      const TreeRoom room = with_valued_rows({nodes, nodes, 1, 0}, places);
      for (int texts = 1; texts <= places; ++texts) {
        const int each = nodes / texts;
        EXPECT_LE(texts * (each + kSpareForwards * valued_rows(each)), room.run);
        EXPECT_LE(texts * valued_rows(each), room.widest);
        EXPECT_TRUE(room.holds(with_valued_rows({each * texts, texts, 1, 0}, texts)));
      }
    }
}

TEST(GrowthPrices, AreWhatTheSameSecondsBringAtThePaceOfTheSweeps) {
  const CostModel cost(made_up_profile());
  WeightPlan weights = made_up_weights(0);
  const TreeShape shape = TreeShape::chain(32);
  StepQuery step{.shape = &shape, .tokens = 5, .sampled = false, .valued = ValuedForwards{8, 4}};
  const Seconds whole = cost.step(step, weights).step;
  const GrowthPrices prices = growth_prices(cost, weights, step, 5);
  // A forward of four rows takes 9 ms and .1 ms a row; a node .2 ms in each layer, .3 in the head.
  EXPECT_NEAR(prices.forward, 5 * (9e-3 + 4e-4) / whole.count(), 1e-6);
  ASSERT_EQ(prices.trees.size(), 32u);
  EXPECT_EQ(prices.trees[0], 0);
  EXPECT_EQ(prices.trees[1], 0);  // the least tree is there anyway
  for (std::size_t n = 2; n < 32; ++n)
    EXPECT_NEAR(prices.trees[n] - prices.trees[n - 1],
                5 * (kLayers * 2e-4 + 3e-4 + 1e-6) / whole.count(), 1e-3);
  // While bytes travel nothing costs anything.
  weights = made_up_weights(std::uint64_t{8} << 30);
  weights.ring_bytes = std::uint64_t{8} << 30;
  EXPECT_NEAR(growth_prices(cost, weights, step, 5).forward, 0, 1e-9);
  EXPECT_NEAR(growth_prices(cost, weights, step, 5).trees.back(), 0, 1e-9);
}

TEST(GrowthPrices, AreNothingForNodesThatTheLinkHidesInATreeThatComputesLonger) {
  const CostModel cost(made_up_profile());
  const TreeShape shape = TreeShape::chain(256);
  const StepQuery step{
      .shape = &shape, .tokens = 5, .sampled = false, .valued = ValuedForwards{8, 4}};
  WeightPlan weights = made_up_weights(500'000'000);
  weights.ring_bytes = 500'000'000;
  const GrowthPrices prices = growth_prices(cost, weights, step, 5);
  // .5 s of the link are 43 ms and 4.3 ms a node, after .09 s of drafting: 85 nodes.
  EXPECT_NEAR(prices.trees[63], 0, 1e-9);
  const Seconds whole = cost.step(step, weights).step;
  EXPECT_NEAR(prices.trees[255] - prices.trees[128], 5 * 127 * 4.3e-3 / whole.count(), 2e-2);
  EXPECT_NEAR(prices.trees[255], 5 * (1 - .5 / whole.count()), 2e-2);
}

TEST(RecentTokens, AreThoseOfTheLastSweeps) {
  RecentTokens recent;
  EXPECT_EQ(recent.mean(3), 3);
  recent.add(1);
  recent.add(2);
  EXPECT_EQ(recent.mean(3), 1.5);
  for (std::size_t i = 0; i < RecentTokens::kSweeps; ++i) recent.add(4);
  EXPECT_EQ(recent.mean(3), 4);
}

Calibrated some_evidence() {
  std::mt19937 random(7);
  std::vector<ChanceContext> contexts;
  for (int i = 0; i < 30; ++i) contexts.push_back(random_context(kTruth, random));
  Calibrated calibrated;
  calibrated.greedy.chance = evidence_of(contexts, {}, prior_weights(ChanceKind::kGreedy));
  calibrated.sampled.sizes.observe(20, 3.25);
  return calibrated;
}

TEST(CalibratedFile, ComesBackWithTheAcceptanceThatTextsHaveShown) {
  LearnedAcceptance learned;
  EXPECT_TRUE(learned.empty());
  EXPECT_EQ(learned.to_json().find("calibrated"), std::string::npos);
  learned.add(some_evidence());
  EXPECT_FALSE(learned.empty());
  LearnedAcceptance back = LearnedAcceptance::from_json(learned.to_json());
  EXPECT_EQ(back.calibrated(), some_evidence());
  back.add(learned);
  EXPECT_EQ(back.calibrated().greedy.chance.contexts, 60);
  EXPECT_EQ(LearnedAcceptance::from_json(LearnedAcceptance().to_json()).calibrated(), Calibrated());
}

TEST(CalibratedFile, IsRefusedByTheNameOfWhatIsWrong) {
  const nlohmann::json good = calibrated_to_json(some_evidence());
  const auto why = [&](const auto& change) {
    nlohmann::json bad = good;
    change(bad);
    return error_of([&] { calibrated_from_json(bad); });
  };
  const auto expect = [&](const std::string& error, const char* part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(why([](auto& j) { j.erase("sampled"); }), "\"sampled\"");
  expect(why([](auto& j) { j = 3; }), "\"greedy\"");
  expect(why([](auto& j) { j["greedy"]["moment"].push_back(1); }), "\"moment\" of greedy");
  expect(why([](auto& j) { j["greedy"]["moment"][2] = "x"; }), "\"moment\" of greedy");
  expect(why([](auto& j) { j["sampled"]["information"].erase(0); }), "list of 105");
  expect(why([](auto& j) { j["sampled"]["information"][0] = -9; }), "no evidence");
  expect(why([](auto& j) { j["greedy"]["contexts"] = -1; }), "no evidence");
  expect(why([](auto& j) { j["greedy"]["contexts"] = 5000; }), "no evidence");
  expect(why([](auto& j) { j["sampled"]["sizes"].erase(0); }), "\"sizes\" of sampled");
  expect(why([](auto& j) { j["sampled"]["sizes"][1] = {1, 20, 50}; }), "no trees");
}

}  // namespace
}  // namespace canopy::testing
