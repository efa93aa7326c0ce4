#include "src/speculation/growers/chain_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/error.h"
#include "src/speculation/rules/inexact_rule.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

GrownTree grow(ChainGrower& grower, const Model& draft) {
  return grow_on_tables(grower, draft).tree;
}

TEST(ConfidenceTracker, BeginsWithADraftThatIsAsOftenRightAsItIsSure) {
  const ConfidenceTracker tracker;
  for (const double confidence : {0.01, 0.3, 0.77, 1.0})
    EXPECT_NEAR(tracker.acceptance(confidence), confidence, 1e-12);
}

TEST(ConfidenceTracker, LearnsOfABinThatItHasNotSeenFromTheOthers) {
  ConfidenceTracker sure, unsure;
  for (int i = 0; i < 20; ++i) {
    sure.observe(0.9, true);
    sure.observe(0.6, i % 5 != 0);  // refused half as often as it says
    unsure.observe(0.9, i % 5 != 0);
  }
  EXPECT_NEAR(sure.acceptance(0.3), 0.6, 0.1);
  EXPECT_NEAR(unsure.acceptance(0.8), 0.7, 0.1);
  EXPECT_EQ(unsure.acceptance(0.0), 0.0);  // and not below
}

TEST(ConfidenceTracker, LearnsEachBinByItself) {
  ConfidenceTracker tracker;
  for (int i = 0; i < 2000; ++i) {
    tracker.observe(0.95, i % 2 == 0);
    tracker.observe(0.1, true);
  }
  EXPECT_NEAR(tracker.acceptance(0.97), 0.5, 0.05);
  EXPECT_NEAR(tracker.acceptance(0.1), 1.0, 0.02);  // what all showed counts for 8 of 264 tokens
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
  const double sure = tracker.acceptance(0.9f), unsure = tracker.acceptance(0.5f);
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

/// The chain that a grower makes of a draft whose tokens are drawn by every course: it is handed
/// the drawn token as the only one of its row, and judges by the row itself.
TokenTree grow_by(Courses& courses, ChainGrower& grower, const Text& before, const Model& draft) {
  Text text = before;
  while (true) {
    const std::vector<double> q = draft(text);
    const std::size_t token = courses.choose(q);
    const std::vector<float> judged(q.begin(), q.end());
    std::vector<float> drawn(q.size(), 0.0f);
    drawn[token] = 1;
    const DraftedRow row[] = {{drawn, judged}};
    const bool goes_on = !grower.take(row).empty();
    text.push_back(static_cast<TokenId>(token));
    if (!goes_on) return grower.finish().tree;
  }
}

/// A step whose chain is grown by this rule and verified; `tracker` learns of it. Returns what the
/// step adds to the text.
using Verify =
    std::function<Verdict(const TokenTree&, const LendRow& p, const LendRow& q, Choices&)>;
Text step(Courses& courses, const ChainGrower::Limits& limits, ConfidenceTracker& tracker,
          const Text& before, const Model& target, const Model& draft, const Verify& verify) {
  ChainGrower grower(0, limits, tracker, std::nullopt);
  const TokenTree tree = grow_by(courses, grower, before, draft);
  const auto text_at = [&](NodeId node) {
    Text text = before;
    for (const TokenId token : text_of(tree, node)) text.push_back(token);
    return text;
  };
  std::vector<double> p_row, q_row;
  EveryChoice choices(courses);
  const Verdict verdict = verify(
      tree, [&](NodeId node) { return std::span(p_row = target(text_at(node))); },
      [&](NodeId node) { return std::span(q_row = draft(text_at(node))); }, choices);
  observe(tracker, grower.confidences(), verdict);
  Text text = text_of(tree, verdict.path.back());
  text.push_back(verdict.next);
  return text;
}

/// Returns the distribution of texts of two steps, the second by what the tracker learned in the
/// first.
Texts two_steps(const ChainGrower::Limits& limits, const Model& target, const Model& draft,
                std::size_t length, std::set<std::size_t>& lengths) {
  Texts texts;
  for (Courses courses; courses.next();) {
    ConfidenceTracker tracker;
    Text text;
    for (int i = 0; i < 2; ++i) {
      const Text more =
          step(courses, limits, tracker, text, target, draft, rule_of(Drawing::kSequoia));
      text.insert(text.end(), more.begin(), more.end());
      lengths.insert(more.size());
    }
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

TEST(ChainGrower, WithATrackerThatLearnsKeepsTheTargetsDistribution) {
  for (const std::size_t vocab : {3u, 5u})
    for (unsigned seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(::testing::Message() << vocab << " " << seed);
      const Model target = random_model(vocab, 2 * seed, 1, 1);
      const Model draft = random_model(vocab, 2 * seed + 1, 1, 1);
      std::set<std::size_t> lengths;
      Texts alone;
      const std::size_t length = vocab == 3 ? 6 : 4;
      continue_alone(target, {}, 1, length, alone);
      const ChainGrower::Limits limits{Growth::Kind::kReach, 0.35, vocab == 3 ? 2 : 1};
      EXPECT_LT(distance(alone, two_steps(limits, target, draft, length, lengths)), kExact);
      EXPECT_GT(lengths.size(), 1u);
    }
}

/// The distribution of texts when each step's chain ends by a look at the token that was drawn.
double worst_of_a_look_at(double least_chance) {
  double worst = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Model target = random_model(3, 2 * seed, 1, 1),
                draft = random_model(3, 2 * seed + 1, 1, 1);
    Texts alone, texts;
    continue_alone(target, {}, 1, 2, alone);
    for (Courses courses; courses.next();) {
      const std::vector<double> q = draft({});
      const auto token = static_cast<TokenId>(courses.choose(q));
      TokenTree tree(0);
      if (q[static_cast<std::size_t>(token)] >= least_chance) tree.add_children(0, {&token, 1});
      std::vector<double> p_row, q_row;
      EveryChoice choices(courses);
      const Verdict verdict = verify_tree(
          tree, Drawing::kSequoia,
          [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); },
          [&](NodeId) { return std::span(q_row = q); }, choices);
      Text text = text_of(tree, verdict.path.back());
      text.push_back(verdict.next);
      continue_alone(target, text, courses.chance(), 2, texts);
    }
    worst = std::max(worst, distance(alone, texts));
  }
  return worst;
}

TEST(ChainGrower, IsSeenToBeWrongWhereTheDrawnTokenDecidesAndIsDropped) {
  EXPECT_LT(worst_of_a_look_at(0), kExact);
  EXPECT_GT(worst_of_a_look_at(0.3), kWrong);
}

/// Adds the texts that BiLD's loop writes after `run`: the draft goes on while it is sure, and the
/// target's token ends the step where it is not, where the run is full, or in place of a token it
/// finds too unlikely.
void write_bild(const ChainGrower::Limits& limits, double rollback, const Model& target,
                const Model& draft, const Text& run, double chance, Texts& texts) {
  const std::vector<double> p = target(run), q = draft(run);
  const auto end = [&](double of) { continue_alone(target, run, of, run.size() + 1, texts); };
  const bool sure = *std::max_element(q.begin(), q.end()) >= limits.bound;
  if (!sure || std::ssize(run) == limits.longest) return end(chance);
  for (std::size_t x = 0; x < q.size(); ++x) {
    if (!(q[x] > 0)) continue;
    if (-std::log(p[x]) > rollback) {
      end(chance * q[x]);
      continue;
    }
    Text longer = run;
    longer.push_back(static_cast<TokenId>(x));
    write_bild(limits, rollback, target, draft, longer, chance * q[x], texts);
  }
}

Verify rolls_back(double most) {
  return [most](const TokenTree& tree, const LendRow& p, const LendRow&, Choices& choices) {
    return verify_inexactly(tree, {InexactRule::Kind::kRollback, most},
                            {.plain = p, .p = p, .q = {}}, choices);
  };
}

TEST(ChainGrower, AndTheRollbackWriteWhatBildsLoopWrites) {
  std::set<std::size_t> lengths;
  double worst = 0, of_bits = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Model target = random_model(3, 2 * seed, 1, 1),
                draft = random_model(3, 2 * seed + 1, 1, 1);
    const ChainGrower::Limits limits{Growth::Kind::kConfidence, 0.55, 3};
    for (const double most : {0.5, 1.0, 1.5}) {
      Texts expected, texts, other;
      write_bild(limits, most, target, draft, {}, 1, expected);
      // The mutant goes by base-2 logarithms.
      write_bild(limits, most * std::log(2.0), target, draft, {}, 1, other);
      for (Courses courses; courses.next();) {
        ConfidenceTracker tracker;
        const Text text = step(courses, limits, tracker, {}, target, draft, rolls_back(most));
        texts[text] += courses.chance();
        lengths.insert(text.size());
      }
      worst = std::max(worst, distance(expected, texts));
      of_bits = std::max(of_bits, distance(other, texts));
    }
  }
  EXPECT_LT(worst, kExact);
  EXPECT_GT(of_bits, kWrong);
  EXPECT_EQ(lengths, (std::set<std::size_t>{1, 2, 3, 4}));
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
