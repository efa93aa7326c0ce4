#include "src/speculation/rules/verification_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/base/error.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

constexpr unsigned kModels = 40;
constexpr Drawing kRefusing[] = {Drawing::kSequoia, Drawing::kSpecInfer, Drawing::kSpecTr};

class EachDrawing : public ::testing::TestWithParam<Drawing> {};

TEST_P(EachDrawing, GivesExactlyTheTargetsTextWhateverTheDraft) {
  EXPECT_LT(worst_error(rule_of(GetParam()), GetParam(), kModels), kExact);
  EXPECT_LT(worst_error(rule_of(GetParam(), Asking::kFromAbove), GetParam(), 8), kExact);
}

INSTANTIATE_TEST_SUITE_P(VerifyTree, EachDrawing, ::testing::ValuesIn(kDrawings),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(VerifyTree, IsExactForAnyChildrenWhereTheTargetDecides) {
  for (const Drawing children : kDrawings)
    EXPECT_LT(worst_error(rule_of(Drawing::kTopK), children, 4), kExact);
}

TEST(VerifyTree, IsWrongForChildrenOfAnotherDrawing) {  // so the two have one name
  const auto is_seen = [](Drawing rule, Drawing children) {
    try {
      return worst_error(rule_of(rule), children, 2) > kWrong;
    } catch (const Error&) {
      return true;  // a child that such a drawing cannot have drawn
    }
  };
  for (const Drawing rule : kRefusing)
    for (const Drawing children : kDrawings)
      if (rule != children && (rule == Drawing::kSequoia || children == Drawing::kTopK ||
                               children == Drawing::kSequoia)) {
        EXPECT_TRUE(is_seen(rule, children)) << name(rule) << " of " << name(children);
      }
}

TEST(VerifyTree, BringsMoreTokensFromBelow) {
  for (const Drawing drawing : {Drawing::kSequoia, Drawing::kSpecInfer}) {
    double sum_below = 0, sum_above = 0;
    for (const Case& c : cases())
      for (unsigned seed = 0; seed < 8; ++seed) {
        SCOPED_TRACE(c.name);
        const Model target = random_model(c.vocab, 2 * seed, 1, 1);
        const Model draft = random_model(c.draft_vocab, 2 * seed + 1, 1, 1);
        const auto length = static_cast<std::size_t>(c.shape.levels());
        double below = 0, above = 0;
        for (const auto& [asking, tokens] :
             {std::pair{Asking::kFromBelow, &below}, {Asking::kFromAbove, &above}})
          speculate(rule_of(drawing, asking), c.shape, drawing, target, draft, length, tokens);
        EXPECT_GT(below, above - kExact);
        if (c.shape.levels() <= 2) {
          EXPECT_NEAR(below, above, kExact);  // nothing hangs below a child
        }
        sum_below += below;
        sum_above += above;
      }
    EXPECT_GT(sum_below, 1.02 * sum_above) << name(drawing);
  }
}

/// The chance that one of k children is accepted.
double acceptance(Drawing drawing, const std::vector<double>& p, const std::vector<double>& q,
                  int k) {
  double accepted = 0;
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    tree.add_children(0, draw_children(drawing, q, k, courses));
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = verify_tree(
        tree, drawing, [&](NodeId) { return std::span(p_row = p); },
        [&](NodeId) { return std::span(q_row = q); }, choices);
    if (verdict.path.size() > 1) accepted += courses.chance();
  }
  return accepted;
}

/// 1 - |P - Q|_1 / 2: the best that any rule can do with one child drawn from Q.
double overlap(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t t = 0; t < p.size(); ++t) sum += std::min(p[t], q[t]);
  return sum;
}

std::vector<double> random_row(std::size_t vocab, unsigned seed) {
  return random_model(vocab, seed, 1, 1)({});
}

// arXiv:2402.12374, Theorem 3.7: what each rule accepts.
TEST(Acceptance, OfOneChildIsTheBestPossibleWhereItIsDrawnAndRefused) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const auto p = random_row(5, 2 * seed), q = random_row(5, 2 * seed + 1);
    for (const Drawing drawing : kRefusing)
      EXPECT_NEAR(acceptance(drawing, p, q, 1), overlap(p, q), kExact) << name(drawing);
  }
}

TEST(Acceptance, OfOneChildIsLessWhereTheTargetDecides) {
  const std::vector<double> p{0.6, 0.4};  // and q the same: all of it could be accepted
  EXPECT_NEAR(overlap(p, p), 1, kExact);
  EXPECT_NEAR(acceptance(Drawing::kTopK, p, p, 1), 0.6, kExact);
  EXPECT_NEAR(acceptance(Drawing::kNaive, p, p, 1), 0.6 * 0.6 + 0.4 * 0.4, kExact);
  EXPECT_NEAR(acceptance(Drawing::kSequoia, p, p, 1), 1, kExact);
}

TEST(Acceptance, IsCertainOnceChildrenCoverTheDraftsSupportOnlyWhereTheyDiffer) {
  const std::vector<double> p{1, 0}, q{0.5, 0.5};
  EXPECT_NEAR(acceptance(Drawing::kSequoia, p, q, 2), 1, kExact);
  EXPECT_NEAR(acceptance(Drawing::kTopK, p, q, 2), 1, kExact);
  // Both children are the wrong token a quarter of the time.
  EXPECT_NEAR(acceptance(Drawing::kSpecInfer, p, q, 2), 0.75, kExact);
  EXPECT_NEAR(acceptance(Drawing::kSpecTr, p, q, 2), 0.75, kExact);
  EXPECT_NEAR(acceptance(Drawing::kNaive, p, q, 2), 0.75, kExact);
}

TEST(Acceptance, IsCertainForSequoiaAndTopKWhenChildrenCoverTheTarget) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<double> q = random_row(4, 2 * seed + 1), p = random_row(4, 2 * seed);
    for (const Drawing drawing : {Drawing::kSequoia, Drawing::kTopK}) {
      EXPECT_NEAR(acceptance(drawing, p, q, 4), 1, kExact) << "the whole vocabulary";
      std::vector<double> inside = p;  // a target within the draft's support
      for (std::size_t t = 0; t < 4; ++t)
        if (q[t] == 0) inside[t] = 0;
      if (std::accumulate(inside.begin(), inside.end(), 0.0) == 0) continue;
      normalise(inside);
      const auto support = std::count_if(q.begin(), q.end(), [](double x) { return x > 0; });
      EXPECT_NEAR(acceptance(drawing, inside, q, static_cast<int>(support)), 1, kExact);
    }
  }
}

TEST(Acceptance, OfKSequentialSelectionIsWithinItsFactorOfTheBest) {
  // No rule accepts more than sum min(p, 1 - (1 - q)^k): a token must be among the children.
  // arXiv:2310.15141, Theorem 2: at least 1 - (1 - 1/k)^k of that.
  for (unsigned seed = 0; seed < 100; ++seed)
    for (const int k : {1, 2, 3, 4}) {
      const auto p = random_row(4, 2 * seed), q = random_row(4, 2 * seed + 1);
      double best = 0;
      for (std::size_t t = 0; t < 4; ++t) best += std::min(p[t], 1 - std::pow(1 - q[t], k));
      const double accepted = acceptance(Drawing::kSpecTr, p, q, k);
      EXPECT_LE(accepted, best + kExact);
      EXPECT_GE(accepted, best * (1 - std::pow(1 - 1.0 / k, k)) - kExact);
    }
}

TEST(Acceptance, NeverFallsWithMoreChildren) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto p = random_row(4, 2 * seed), q = random_row(4, 2 * seed + 1);
    for (const Drawing drawing : kDrawings) {
      double last = 0;
      for (int k = 1; k <= 4; ++k) {
        const double accepted = acceptance(drawing, p, q, k);
        // The division of k-sequential selection is found to a millionth.
        EXPECT_GE(accepted, last - (drawing == Drawing::kSpecTr ? 4e-6 : kExact)) << name(drawing);
        last = accepted;
      }
    }
  }
}

/// Refuses every child and takes the likeliest token; keeps what it was asked.
class Refuser final : public Choices {
 public:
  bool accept(NodeId child, double chance) override {
    EXPECT_TRUE(asked.insert(child).second);
    chances.push_back(chance);
    return false;
  }
  TokenId draw(NodeId, std::span<const double> p) override {
    bonus.assign(p.begin(), p.end());
    return static_cast<TokenId>(std::max_element(p.begin(), p.end()) - p.begin());
  }
  std::set<NodeId> asked;
  std::vector<double> chances, bonus;
};

TEST(VerifyTree, KeepsTheResidualWhenOnlyRoundingCouldRefuse) {
  for (const Drawing drawing : kRefusing) {
    SCOPED_TRACE(name(drawing));
    TokenTree tree(0);
    tree.add_children(0, std::vector<TokenId>{1});
    std::vector<double> p{0.5, 0.25, 0.25}, q = p;
    Refuser refuser;
    verify_tree(
        tree, drawing, [&](NodeId) { return std::span(p); }, [&](NodeId) { return std::span(q); },
        refuser);
    EXPECT_EQ(refuser.chances[0], 1.0);
    EXPECT_EQ(refuser.bonus, (std::vector<double>{0.5, 0.25, 0.25}));
  }
}

TEST(VerifyTree, AcceptsForCertainOnceChildrenCoverTheTarget) {
  // The target's one token comes last of the whole vocabulary, beyond the draft's support.
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{2, 0, 1});
  std::vector<double> p{0, 1, 0}, q{0, 0, 1};
  Refuser refuser;
  verify_tree(
      tree, Drawing::kSequoia, [&](NodeId) { return std::span(p); },
      [&](NodeId) { return std::span(q); }, refuser);
  EXPECT_EQ(refuser.chances, std::vector<double>{1});  // children of chance 0 are not asked
}

/// Accepts or refuses at random whatever the chance.
class Coin final : public Choices {
 public:
  explicit Coin(unsigned seed) : random_(seed) {}
  bool accept(NodeId, double) override { return random_() % 2 == 0; }
  TokenId draw(NodeId, std::span<const double>) override { return 0; }

 private:
  std::mt19937 random_;
};

TEST(VerifyTree, FromAboveAsksForVisitedRowsOnlyAndOnceEach) {
  TokenTree tree(0);
  for (const auto& [parent, tokens] :
       {std::pair<NodeId, std::vector<TokenId>>{0, {0, 1}}, {1, {2, 3}}, {2, {1}}, {3, {4}}})
    tree.add_children(parent, tokens);
  for (const Drawing drawing : kRefusing) {
    std::set<std::vector<NodeId>> paths;
    for (unsigned seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE(seed);
      std::vector<double> p, q;
      std::vector<NodeId> p_asked, q_asked;
      const auto lend = [](std::vector<NodeId>& asked, std::vector<double>& row) {
        return [&](NodeId node) {
          asked.push_back(node);
          return std::span(row = {0.3, 0.25, 0.2, 0.15, 0.1});
        };
      };
      Coin coin(seed);
      const Verdict verdict =
          verify_tree(tree, drawing, lend(p_asked, p), lend(q_asked, q), coin, Asking::kFromAbove);
      std::vector<NodeId> inner = verdict.path;
      std::erase_if(inner, [&](NodeId node) { return tree.children(node).count == 0; });
      EXPECT_EQ(p_asked, verdict.path);
      EXPECT_EQ(q_asked, inner);
      paths.insert(verdict.path);
    }
    EXPECT_EQ(paths.size(), 7u);  // a walk may end at any node
  }
}

TEST(VerifyTree, FromBelowAsksForRowsOfInnerNodesOnceAndOfTheLastNode) {
  TokenTree tree(0);
  for (const auto& [parent, tokens] :
       {std::pair<NodeId, std::vector<TokenId>>{0, {0, 1}}, {1, {2, 3}}, {2, {1}}, {3, {0}}})
    tree.add_children(parent, tokens);
  std::set<NodeId> last;
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<double> p, q;
    std::vector<NodeId> p_asked, q_asked;
    Coin coin(seed);
    const Verdict verdict = verify_tree(
        tree, Drawing::kSequoia,
        [&](NodeId node) {
          p_asked.push_back(node);
          return std::span(p = {0.2, 0.2, 0.2, 0.2, 0.2});
        },
        [&](NodeId node) {
          q_asked.push_back(node);
          return std::span(q = {0.22, 0.22, 0.22, 0.22, 0.12});
        },
        coin);
    const NodeId end = verdict.path.back();
    EXPECT_EQ(p_asked.back(), end);
    EXPECT_LE(std::count(p_asked.begin(), p_asked.end(), end), 2);
    for (NodeId node = 0; node < tree.size(); ++node) {
      const bool inner = tree.children(node).count > 0;
      const auto asked = std::count(p_asked.begin(), p_asked.end(), node);
      EXPECT_LE(asked, node == end ? 2 : inner ? 1 : 0) << node;
      EXPECT_EQ(std::count(q_asked.begin(), q_asked.end(), node), inner ? asked : 0);
    }
    last.insert(end);
  }
  // Second children have no chance, as the target owes the last token alone by then.
  EXPECT_EQ(last, (std::set<NodeId>{0, 1, 3, 6}));
}

TEST(VerifyTree, NeverAsksForQWhereTheTargetDecides) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{0, 1});
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kNaive}) {
    std::vector<double> p;
    Coin coin(0);
    const auto p_row = [&](NodeId) { return std::span(p = {0.5, 0.5}); };
    const LendRow none;  // calling it would throw
    EXPECT_EQ(verify_tree(tree, drawing, p_row, none, coin).path, (std::vector<NodeId>{0, 1}));
  }
}

TEST(VerifyTree, RefusesRowsThatCannotBelongToTheTree) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{1});
  Refuser refuser;
  for (const Drawing drawing : kDrawings) {
    SCOPED_TRACE(name(drawing));
    const auto verify = [&](std::vector<double> p, std::vector<double> q) {
      verify_tree(
          tree, drawing, [&](NodeId) { return std::span(p); }, [&](NodeId) { return std::span(q); },
          refuser);
    };
    EXPECT_THROW(verify({0.0, 0.0}, {0.5, 0.5}), Error);           // not probabilities
    EXPECT_THROW(verify({std::nan(""), 0.5}, {0.5, 0.5}), Error);  // a broken model
    if (target_decides(drawing)) continue;
    EXPECT_THROW(verify({0.5, 0.5}, {1.0, 0.0}), Error);  // never drawn
    EXPECT_THROW(verify({0.5, 0.5}, {1.0}), Error);       // outside the draft's vocabulary
    EXPECT_THROW(verify({1.0}, {0.5, 0.5}), Error);       // outside the target's
  }
}

TEST(FollowSamples, WalksToALeafAndEndsWithItsOwnSample) {
  TokenTree tree(9);
  tree.add_children(0, std::vector<TokenId>{4, 5});
  tree.add_children(2, std::vector<TokenId>{6});
  const TokenId samples[] = {5, 0, 6, 7};
  const Verdict verdict =
      follow_samples(tree, [&](NodeId node) { return samples[static_cast<std::size_t>(node)]; });
  EXPECT_EQ(verdict.path, (std::vector<NodeId>{0, 2, 3}));
  EXPECT_EQ(verdict.next, 7);
}

}  // namespace
}  // namespace canopy::testing
