#include <gtest/gtest.h>

#include "planner/acceptance_sample.h"
#include "planner/tree_shape.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

/// The chance that child k of `count` is accepted after `text`, over all draws of children.
std::vector<double> exact_chances(Drawing drawing, const std::vector<double>& p,
                                  const std::vector<double>& q, int count) {
  std::vector<double> accept(static_cast<std::size_t>(count));
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    tree.add_children(0, draw_children(drawing, q, count, courses));
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = verify_tree(
        tree, drawing, [&](NodeId) { return std::span(p_row = p); },
        [&](NodeId) { return std::span(q_row = q); }, choices);
    if (verdict.path.size() > 1)
      accept[static_cast<std::size_t>(verdict.path[1]) - 1] += courses.chance();
  }
  return accept;
}

std::vector<TokenId> draw_distinct(std::vector<double> q, int count, std::mt19937_64& random) {
  std::vector<TokenId> drawn;
  for (int k = 0; k < count; ++k) {
    if (std::none_of(q.begin(), q.end(), [](double x) { return x > 0; })) {
      std::fill(q.begin(), q.end(), 1.0);
      for (const TokenId token : drawn) q[static_cast<std::size_t>(token)] = 0;
    }
    const auto token = std::discrete_distribution<TokenId>(q.begin(), q.end())(random);
    q[static_cast<std::size_t>(token)] = 0;
    drawn.push_back(token);
  }
  return drawn;
}

TEST(AcceptanceEstimate, IsTheVectorThatEnumeratingAllDrawsGives) {
  constexpr int kChildren = 4, kTexts = 50, kPositions = 40;
  const std::vector<double> start{0.2, 0.2, 0.2, 0.2, 0.2};  // the last token, uniform at first
  for (const Warp& warp : {Warp{1, 1}, Warp{0.6, 0.9}}) {
    const Model target = random_model(5, 11, warp.temperature, warp.top_p);
    const Model draft = random_model(5, 12, warp.temperature, warp.top_p);

    // Positions are the states of a Markov chain over the last token: follow its distribution.
    std::vector<double> expected(kChildren), at = start;
    for (int i = 0; i < kPositions; ++i) {
      std::vector<double> next(5);
      for (TokenId t = 0; t < 5; ++t) {
        const double here = at[static_cast<std::size_t>(t)];
        const auto p = target({t});
        const auto chances = exact_chances(Drawing::kSequoia, p, draft({t}), kChildren);
        for (std::size_t k = 0; k < kChildren; ++k) expected[k] += here * chances[k] / kPositions;
        for (std::size_t u = 0; u < 5; ++u) next[u] += here * p[u];
      }
      at = next;
    }

    std::mt19937_64 random(5);
    std::vector<AcceptanceRun> runs;
    for (int text = 0; text < kTexts; ++text) {
      AcceptanceRun run{text, {}};
      auto last = static_cast<TokenId>(random() % 5);
      for (int i = 0; i < kPositions; ++i) {
        std::vector<double> p = target({last}), q = draft({last});
        const auto children = draw_distinct(q, kChildren, random);
        last = std::discrete_distribution<TokenId>(p.begin(), p.end())(random);
        run.positions.push_back(
            {sibling_chances(Drawing::kSequoia, children, p, q).accept, -1, false});
      }
      runs.push_back(std::move(run));
    }
    const AcceptanceEstimate estimate = estimate_acceptance(runs, Loops::kWith);
    for (std::size_t k = 0; k < kChildren; ++k) {
      EXPECT_NEAR(estimate.accept[k].mean, expected[k], 4 * estimate.accept[k].error) << k;
      EXPECT_LT(estimate.accept[k].error, 0.02);  // or the check above says little
    }
  }
}

/// The estimate of calibration where target and draft have these rows everywhere.
Acceptance measured(const std::vector<double>& p, const std::vector<double>& q, int children) {
  constexpr int kTexts = 20, kPositions = 2500;
  std::mt19937_64 random(7);
  std::vector<AcceptanceRun> runs;
  for (int text = 0; text < kTexts; ++text) {
    AcceptanceRun run{text, {}};
    WeightedStep step;
    for (int i = 0; i < kPositions; ++i) {
      const auto drawn = draw_distinct(q, children, random);
      const auto chances = [&](double weight) {
        std::vector<double> p_row = p, q_row = q;
        return sibling_chances(Drawing::kSequoia, drawn, p_row, q_row, weight).accept;
      };
      step.accept = chances(step.weight);
      run.positions.push_back({chances(1), -1, false, 0, step});
      step = step.next();
    }
    runs.push_back(std::move(run));
  }
  const AcceptanceEstimate estimate = estimate_acceptance(runs, Loops::kWith);
  Acceptance acceptance;
  for (const Estimate& chance : estimate.accept) acceptance.accept.push_back(chance.mean);
  acceptance.deeper = estimate.deeper;
  return acceptance;
}

/// Tokens of a step, over all draws and choices.
double exact_tokens(Asking asking, const TreeShape& shape, const std::vector<double>& p,
                    const std::vector<double>& q) {
  double tokens = 0;
  speculate(
      rule_of(Drawing::kSequoia, asking), shape, Drawing::kSequoia, [&](const Text&) { return p; },
      [&](const Text&) { return q; }, static_cast<std::size_t>(shape.levels()), &tokens);
  return tokens;
}

TEST(AcceptanceEstimate, OfDrawnChildrenPredictsWhatIsAcceptedFromBelow) {
  const std::vector<double> p{0.5, 0.3, 0.2}, q{0.2, 0.5, 0.3};
  const Acceptance acceptance = measured(p, q, 2);
  ASSERT_EQ(acceptance.deeper.size(), 4u);

  const TreeShape chain = TreeShape::chain(6);
  const double above = exact_tokens(Asking::kFromAbove, chain, p, q),
               below = exact_tokens(Asking::kFromBelow, chain, p, q);
  EXPECT_NEAR(expected_tokens(chain, {acceptance.accept}), above, 0.01 * above);
  EXPECT_NEAR(expected_tokens(chain, acceptance), below, 0.01 * below);
  EXPECT_GT(below, 1.05 * above);  // or nothing was shown

  const TreeShape tree = TreeShape::from_parents({-1, 0, 0, 1, 1, 2, 3});
  const double tree_below = exact_tokens(Asking::kFromBelow, tree, p, q);
  EXPECT_GT(expected_tokens(tree, acceptance), exact_tokens(Asking::kFromAbove, tree, p, q));
  EXPECT_LT(expected_tokens(tree, acceptance), 1.01 * tree_below);
  EXPECT_GT(expected_tokens(tree, acceptance), 0.97 * tree_below);
}

}  // namespace
}  // namespace canopy::testing
