#include "src/speculation/chain_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

GrownTree grow(ChainGrower& grower, const Model& draft) {
  return grow_on_tables(grower, draft).tree;
}

TEST(ConfidenceTracker, BeginsWithADraftThatIsAsOftenRightAsItIsSure) {
  const ConfidenceTracker tracker;
  for (const double confidence : {0.01, 0.3, 0.77, 1.0})
    EXPECT_NEAR(tracker.acceptance(confidence), confidence, 1.0 / 16);
}

TEST(ConfidenceTracker, LearnsEachBinByItself) {
  ConfidenceTracker tracker;
  for (int i = 0; i < 2000; ++i) {
    tracker.observe(0.95, i % 2 == 0);
    tracker.observe(0.1, true);
  }
  EXPECT_NEAR(tracker.acceptance(0.97), 0.5, 0.05);
  EXPECT_NEAR(tracker.acceptance(0.1), 1.0, 0.01);
  EXPECT_NEAR(tracker.acceptance(0.5), 0.5, 0.05);
  EXPECT_GT(tracker.acceptance(0.0), 0);
  EXPECT_NEAR(tracker.acceptance(1.0), 0.5, 0.05);  // 1 is of the last bin
}

TEST(ChainGrower, GrowsTheWholeChainWhereNothingIsTooUnlikely) {
  const ConfidenceTracker tracker;
  const Model draft = random_model(5, 1, 1, 1);
  ChainGrower grower(0, {Growth::Kind::kReach, 0.0, 4}, tracker, std::nullopt);
  const GrownTree grown = grow(grower, draft);
  EXPECT_EQ(grown.tree.size(), 5);
  EXPECT_EQ(grown.run, (std::vector<std::int32_t>{0, 1, 2, 3, -1}));  // the last was never run
  for (NodeId node = 1; node < 5; ++node)
    EXPECT_EQ(grown.tree.token(node), best_tokens(draft(text_of(grown.tree, node - 1)), 1)[0]);
  EXPECT_EQ(grower.confidences().size(), 4u);
}

TEST(ChainGrower, EndsBeforeATokenThatIsTooUnlikelyToBeReached) {
  const ConfidenceTracker tracker;
  const Model draft = [](const Text& text) {
    return text.size() < 2 ? std::vector<double>{0.9, 0.1} : std::vector<double>{0.5, 0.5};
  };
  // .9 falls into [.875, .9375), whose middle is .90625; .5 into [.5, .5625).
  const double sure = 0.90625, unsure = 0.53125;
  const auto length = [&](double bound) {
    ChainGrower grower(0, {Growth::Kind::kReach, bound, 8}, tracker, std::nullopt);
    return grow(grower, draft).tree.size() - 1;
  };
  EXPECT_EQ(length(sure + 1e-9), 0);
  EXPECT_EQ(length(sure), 1);
  EXPECT_EQ(length(sure * sure), 2);
  EXPECT_EQ(length(sure * sure * unsure), 3);
  EXPECT_EQ(length(sure * sure * unsure * unsure + 1e-9), 3);
  EXPECT_EQ(length(0), 8);
  ChainGrower grower(0, {Growth::Kind::kReach, sure * sure, 8}, tracker, std::nullopt);
  const GrownTree grown = grow(grower, draft);
  EXPECT_EQ(grown.run, (std::vector<std::int32_t>{0, 1, 2}));  // its last token was run, too
}

TEST(ChainGrower, EndsWhereTheDraftIsNotSureOfTheNextToken) {  // BiLD's fallback
  const ConfidenceTracker tracker;
  const Model draft = [](const Text& text) {
    return text.size() < 3 ? std::vector<double>{0.75, 0.25} : std::vector<double>{0.5, 0.5};
  };
  const auto length = [&](double fallback) {
    ChainGrower grower(0, {Growth::Kind::kConfidence, fallback, 8}, tracker, std::nullopt);
    return grow(grower, draft).tree.size() - 1;
  };
  EXPECT_EQ(length(0), 8);
  EXPECT_EQ(length(0.5), 8);
  EXPECT_EQ(length(0.51), 3);
  EXPECT_EQ(length(0.75), 3);
  EXPECT_EQ(length(0.76), 0);
  EXPECT_EQ(length(1.5), 0);
}

TEST(ChainGrower, ALengthThatTheDraftHasLearnedIsMeasuredByVerdicts) {
  ConfidenceTracker tracker;
  observe(tracker, std::vector<double>{0.9, 0.9, 0.2}, {{0, 1, 2}, 7});
  ConfidenceTracker expected;
  expected.observe(0.9, true);
  expected.observe(0.9, true);
  expected.observe(0.2, false);
  for (const double c : {0.9, 0.2}) EXPECT_EQ(tracker.acceptance(c), expected.acceptance(c));
  observe(tracker, std::vector<double>{0.9}, {{0, 1}, 7});  // nothing was refused
  expected.observe(0.9, true);
  EXPECT_EQ(tracker.acceptance(0.9), expected.acceptance(0.9));
}

/// The distribution of texts when each step's chain is grown by a rule of length and verified.
/// stop(text, token): whether the chain ends before this token, which was drawn to follow the text.
using Stop = std::function<bool(const Text&, const std::vector<double>& q, TokenId drawn)>;
Texts speculate_chains(const Stop& stop, int longest, const Model& target, const Model& draft,
                       std::size_t length) {
  Texts texts;
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    for (NodeId node = 0; node < longest; ++node) {
      const Text text = text_of(tree, node);
      const std::vector<double> q = draft(text);
      const auto token = static_cast<TokenId>(courses.choose(q));
      if (stop(text, q, token)) break;
      tree.add_children(node, {&token, 1});
    }
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = verify_tree(
        tree, Drawing::kSequoia,
        [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); },
        [&](NodeId node) { return std::span(q_row = draft(text_of(tree, node))); }, choices);
    Text text = text_of(tree, verdict.path.back());
    text.push_back(verdict.next);
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

double worst_of(const Stop& stop) {
  double worst = 0;
  for (const std::size_t vocab : {3u, 5u})
    for (unsigned seed = 0; seed < 20; ++seed) {
      const int longest = vocab == 3 ? 3 : 2;
      const Model target = random_model(vocab, 2 * seed, 1, 1);
      const Model draft = random_model(vocab, 2 * seed + 1, 1, 1);
      Texts alone;
      const auto length = static_cast<std::size_t>(longest) + 1;
      continue_alone(target, {}, 1, length, alone);
      worst =
          std::max(worst, distance(alone, speculate_chains(stop, longest, target, draft, length)));
    }
  return worst;
}

double most(const std::vector<double>& row) { return *std::max_element(row.begin(), row.end()); }

TEST(ChainGrower, StopsByRowsAloneWhichKeepsTheTargetsDistribution) {
  EXPECT_LT(
      worst_of([](const Text&, const std::vector<double>& q, TokenId) { return most(q) < 0.6; }),
      kExact);
}

TEST(ChainGrower, IsSeenToBeWrongWhereTheDrawnTokenDecidesAndIsDropped) {
  EXPECT_GT(worst_of([](const Text&, const std::vector<double>& q, TokenId drawn) {
              return q[static_cast<std::size_t>(drawn)] < 0.3;
            }),
            kWrong);
}

TEST(ChainGrower, DecidesWhateverTheTokenIsThatItWouldDraw) {
  // The same rows and every random number: the length is always the same.
  const ConfidenceTracker tracker;
  const Model draft = [](const Text& text) {
    return text.size() < 2 ? std::vector<double>{0.6, 0.4} : std::vector<double>{0.2, 0.2, 0.6};
  };
  for (std::uint64_t step = 0; step < 200; ++step) {
    StepRng rng;
    rng.step = step;
    ChainGrower grower(0, {Growth::Kind::kReach, 0.3, 8}, tracker, rng);
    EXPECT_EQ(grow(grower, draft).tree.size(), 3);
  }
}

TEST(ChainGrower, DrawsTokensAsTheRowHasThem) {
  const ConfidenceTracker tracker;
  const std::vector<double> q{0.5, 0.0, 0.3, 0.2};
  std::map<TokenId, int> counts;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    StepRng rng;
    rng.step = step;
    ChainGrower grower(0, {Growth::Kind::kReach, 0.0, 1}, tracker, rng);
    ++counts[grow(grower, [&](const Text&) { return q; }).tree.token(1)];
  }
  EXPECT_EQ(counts[1], 0);
  for (std::size_t t = 0; t < q.size(); ++t)  // five standard errors
    EXPECT_NEAR(counts[static_cast<TokenId>(t)] / 20'000.0, q[t], 5 * std::sqrt(0.25 / 20'000));
}

}  // namespace
}  // namespace canopy::testing
