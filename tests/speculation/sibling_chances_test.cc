#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/speculation/rules/verification_rule.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

constexpr double kRounding = 1e-14;  // tens of operations on numbers of at most 1

/// By playing every course of verify_tree: the chance that child k is accepted, and that a token
/// follows on none.
struct Played {
  std::vector<double> accept, last;
};
Played play(Drawing drawing, const std::vector<TokenId>& children, const std::vector<double>& p,
            const std::vector<double>& q) {
  Played played{std::vector<double>(children.size()), std::vector<double>(p.size())};
  TokenTree tree(0);
  tree.add_children(0, children);
  for (Courses courses; courses.next();) {
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = verify_tree(
        tree, drawing, [&](NodeId) { return std::span(p_row = p); },
        [&](NodeId) { return std::span(q_row = q); }, choices);
    if (verdict.path.size() > 1)
      played.accept[static_cast<std::size_t>(verdict.path[1]) - 1] += courses.chance();
    else
      played.last[static_cast<std::size_t>(verdict.next)] += courses.chance();
  }
  return played;
}

TEST(SiblingChances, AreWhatPlayingEveryChoiceOfTheRuleGives) {
  for (const Drawing drawing : kDrawings)
    for (const Warp& warp : kWarps)
      for (unsigned seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(std::string(name(drawing)) + " " + std::to_string(seed));
        const auto p = random_model(4, 2 * seed, warp.temperature, warp.top_p)({});
        const auto q = random_model(4, 2 * seed + 1, warp.temperature, warp.top_p)({});
        for (Courses drawn; drawn.next();) {
          const std::vector<TokenId> children = draw_children(drawing, q, 3, drawn);
          const Played expected = play(drawing, children, p, q);
          std::vector<double> rest = p, q_row = q;
          const SiblingChances chances = sibling_chances(drawing, children, rest, q_row);
          for (std::size_t k = 0; k < children.size(); ++k)
            EXPECT_NEAR(chances.accept[k], expected.accept[k], kRounding) << "child " << k;
          if (chances.none == 0) continue;
          for (std::size_t t = 0; t < p.size(); ++t)
            EXPECT_NEAR(chances.none * rest[t], expected.last[t], kRounding) << "token " << t;
        }
      }
}

TEST(SiblingChances, OfEqualChildrenGoToTheFirstWhereTheTargetDecides) {
  std::vector<double> p{1, 3};
  const SiblingChances chances =
      sibling_chances(Drawing::kNaive, std::vector<TokenId>{0, 0, 0}, p, {});
  EXPECT_EQ(chances.accept, (std::vector<double>{0.25, 0, 0}));
  EXPECT_EQ(chances.none, 0.75);
  EXPECT_EQ(p, (std::vector<double>{0, 1}));
}

TEST(SiblingChances, RefuseAChildThatQCannotHaveDrawn) {
  std::vector<double> p{0.5, 0.5}, q{1, 0};
  EXPECT_THROW(sibling_chances(Drawing::kSequoia, std::vector<TokenId>{1}, p, q), Error);
}

TEST(Overlap, IsTheExpectedChanceOfATokenDrawnFromTheDraft) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<double> p = random_model(5, 2 * seed, 1, 1)({});
    const std::vector<double> q = random_model(seed % 2 == 0 ? 5 : 4, 2 * seed + 1, 1, 1)({});
    double accepted = 0;
    for (std::size_t t = 0; t < q.size(); ++t) {
      if (!(q[t] > 0)) continue;
      std::vector<double> p_row = p, q_row = q;
      const TokenId child = static_cast<TokenId>(t);
      accepted += q[t] * sibling_chances(Drawing::kSequoia, {&child, 1}, p_row, q_row).accept[0];
    }
    EXPECT_NEAR(overlap(p, q), accepted, kExact);
    std::vector<double> twice = p;
    for (double& x : twice) x *= 2;
    EXPECT_NEAR(overlap(twice, q), accepted, kExact);
  }
}

TEST(SiblingChances, WithoutChildrenLeaveTheTargetsRow) {
  std::vector<double> p{0.5, 1.5};
  const SiblingChances none = sibling_chances(Drawing::kTopK, {}, p, {});
  EXPECT_TRUE(none.accept.empty());
  EXPECT_EQ(none.none, 1);
  EXPECT_EQ(p, (std::vector<double>{0.25, 0.75}));
}

}  // namespace
}  // namespace canopy::testing
