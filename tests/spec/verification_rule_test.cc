#include "src/spec/verification_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "src/base/error.h"
#include "tests/spec/enumeration.h"

namespace canopy::testing {
namespace {

enum class Children { kDrawnWithoutReplacement, kTopK };
using Rule = std::function<Verdict(const TokenTree&, const LendRow& p, const LendRow& q, Choices&)>;

Verdict sequoia(const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
  return accept_or_reject(tree, p, q, choices);
}
Verdict target_samples(const TokenTree& tree, const LendRow& p, const LendRow&, Choices& choices) {
  return follow_samples(tree, [&](NodeId node) { return choices.draw(node, p(node)); });
}

void normalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
}

/// Temperature, then top-p.
std::vector<double> warped(std::vector<double> p, double temperature, double top_p) {
  const auto best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  if (temperature == 0) {
    std::fill(p.begin(), p.end(), 0.0);
    p[best] = 1;
    return p;
  }
  for (double& value : p) value = std::pow(value, 1 / temperature);
  normalise(p);
  double kept = 0;
  std::vector<double> cut(p.size(), 0.0);
  for (const TokenId token : best_tokens(p, static_cast<int>(p.size()))) {
    if (kept >= top_p) break;
    cut[static_cast<std::size_t>(token)] = p[static_cast<std::size_t>(token)];
    kept += p[static_cast<std::size_t>(token)];
  }
  normalise(cut);
  return cut;
}

/// Fixed random probabilities after every text; about a quarter of them 0.
Model random_model(std::size_t vocab, unsigned seed, double temperature, double top_p) {
  auto rows = std::make_shared<std::map<Text, std::vector<double>>>();
  return [=](const Text& text) {
    std::vector<double>& row = (*rows)[text];
    if (row.empty()) {
      std::seed_seq key{seed, static_cast<unsigned>(text.size()),
                        std::accumulate(text.begin(), text.end(), 1u, [](unsigned hash, TokenId t) {
                          return hash * 31 + static_cast<unsigned>(t);
                        })};
      std::mt19937 random(key);
      std::normal_distribution<double> normal(0.0, 1.5);
      row.resize(vocab);
      for (double& value : row) value = random() % 4 == 0 ? 0.0 : std::exp(normal(random));
      row[random() % vocab] = std::exp(normal(random));
      row = warped(row, temperature, top_p);
    }
    return row;
  };
}

/// The distribution of texts of `length` tokens: draft a tree of this shape, verify it, let the
/// target go on alone after the step.
Texts speculate(const Rule& rule, const TreeShape& shape, Children children, const Model& target,
                const Model& draft, std::size_t length) {
  Texts texts;
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    for (NodeId node = 0; node < shape.size(); ++node) {
      const int count = shape.child_count(node);
      if (count == 0) continue;
      const std::vector<double> q = draft(text_of(tree, node));
      tree.add_children(node, children == Children::kTopK ? best_tokens(q, count)
                                                          : draw_distinct(q, count, courses));
    }
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = rule(
        tree, [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); },
        [&](NodeId node) { return std::span(q_row = draft(text_of(tree, node))); }, choices);
    Text text = text_of(tree, verdict.path.back());
    text.push_back(verdict.next);
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

struct Case {
  std::string name;
  std::size_t vocab, draft_vocab;
  TreeShape shape;
};
std::vector<Case> cases() {
  const auto shape = [](std::vector<NodeId> parents) {
    return TreeShape::from_parents(std::move(parents));
  };
  return {{"root", 3, 3, shape({-1})},
          {"chain", 3, 3, TreeShape::chain(4)},
          {"whole vocabulary", 3, 3, shape({-1, 0, 0, 0, 1})},
          {"uneven", 3, 3, shape({-1, 0, 0, 1, 1, 2})},
          {"chain of 5 tokens", 5, 5, TreeShape::chain(3)},
          {"wide", 5, 5, shape({-1, 0, 0, 0, 0})},
          {"two levels", 5, 5, shape({-1, 0, 0, 1, 1})},
          {"smaller draft vocabulary", 5, 3, shape({-1, 0, 0, 0, 1})}};
}
struct Warp {
  double temperature, top_p;
};
constexpr Warp kWarps[] = {{0, 1}, {0.6, 1}, {1, 1}, {1, 0.9}, {0.6, 0.9}};

/// The largest error over all cases, warps and some random models.
double worst_error(const Rule& rule, Children children, unsigned models) {
  double worst = 0;
  for (const Case& c : cases())
    for (const Warp& warp : kWarps)
      for (unsigned seed = 0; seed < models; ++seed) {
        const auto length = static_cast<std::size_t>(c.shape.levels());
        const Model target = random_model(c.vocab, 2 * seed, warp.temperature, warp.top_p);
        const Model draft = random_model(c.draft_vocab, 2 * seed + 1, warp.temperature, warp.top_p);
        Texts alone;
        continue_alone(target, {}, 1, length, alone);
        const double error =
            distance(alone, speculate(rule, c.shape, children, target, draft, length));
        EXPECT_FALSE(std::isnan(error));
        worst = std::max(worst, error);
      }
  return worst;
}

constexpr double kExact = 1e-12;  // some thousand additions of doubles below 1, and their rounding
constexpr double kWrong = 1e-3;
constexpr unsigned kModels = 40;

TEST(AcceptOrReject, GivesExactlyTheTargetsTextWhateverTheDraft) {
  EXPECT_LT(worst_error(sequoia, Children::kDrawnWithoutReplacement, kModels), kExact);
}

TEST(FollowSamples, GivesExactlyTheTargetsTextHoweverChildrenWereChosen) {
  EXPECT_LT(worst_error(target_samples, Children::kTopK, kModels), kExact);
  EXPECT_LT(worst_error(target_samples, Children::kDrawnWithoutReplacement, kModels), kExact);
}

TEST(AcceptOrReject, IsWrongForChildrenThatWereNotDrawn) {  // so Drawing travels with the tree
  EXPECT_GT(worst_error(sequoia, Children::kTopK, 2), kWrong);
}

// Algorithm 1 once more, slowly, with faults that have been made elsewhere.
enum class Fault {
  kNone,
  kOneUniformForAllSiblings,
  kResidualNotNormalised,
  kDraftNotNormalised,
  kUnlikelyChildrenTrimmed,
  kSiblingsInReverse,
  kBonusFromTarget,
};

Rule algorithm1(Fault fault) {
  return [fault](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
    Verdict verdict{{0}, 0};
    while (true) {
      const NodeId node = verdict.path.back();
      const auto lent = p(node);
      const std::vector<double> target(lent.begin(), lent.end());
      std::vector<double> residual = target, draft(target.size(), 0.0);
      std::vector<NodeId> order(static_cast<std::size_t>(tree.children(node).count));
      std::iota(order.begin(), order.end(), tree.children(node).first);
      std::size_t columns = 0;
      if (!order.empty()) {
        const auto row = q(node);
        columns = row.size();
        std::copy(row.begin(), row.end(), draft.begin());
      }
      const std::vector<double> fresh = draft;
      if (fault == Fault::kSiblingsInReverse) std::reverse(order.begin(), order.end());
      std::set<TokenId> refused;
      NodeId accepted = 0;
      double uniform_above = 0;  // what earlier siblings told of a shared uniform
      for (const NodeId child : order) {
        const TokenId token = tree.token(child);
        const auto t = static_cast<std::size_t>(token);
        if (fault == Fault::kUnlikelyChildrenTrimmed && fresh[t] < 0.25) continue;
        double chance = draft[t] > 0 ? std::min(1.0, residual[t] / draft[t]) : 0.0;
        if (fault == Fault::kOneUniformForAllSiblings) {
          const double threshold = chance;
          chance = uniform_above < 1
                       ? std::max(0.0, (threshold - uniform_above) / (1 - uniform_above))
                       : 0.0;
          uniform_above = std::max(uniform_above, threshold);
        }
        if (choices.accept(child, chance)) {
          accepted = child;
          break;
        }
        refused.insert(token);
        std::vector<double> rest(residual.size());
        for (std::size_t i = 0; i < rest.size(); ++i)
          rest[i] = std::max(residual[i] - draft[i], 0.0);
        if (std::accumulate(rest.begin(), rest.end(), 0.0) > 0) residual = rest;
        if (fault != Fault::kResidualNotNormalised) normalise(residual);
        draft[t] = 0;
        const bool exhausted =
            std::none_of(draft.begin(), draft.end(), [](double d) { return d > 0; });
        if (exhausted)
          for (std::size_t i = 0; i < columns; ++i)
            draft[i] = refused.contains(static_cast<TokenId>(i)) ? 0.0 : 1.0;
        if (fault != Fault::kDraftNotNormalised &&
            std::accumulate(draft.begin(), draft.end(), 0.0) > 0)
          normalise(draft);
      }
      if (accepted == 0) {
        std::vector<double> bonus = fault == Fault::kBonusFromTarget ? target : residual;
        normalise(bonus);
        verdict.next = choices.draw(node, bonus);
        return verdict;
      }
      verdict.path.push_back(accepted);
    }
  };
}

TEST(Algorithm1, WrittenSlowlyIsExactToo) {
  EXPECT_LT(worst_error(algorithm1(Fault::kNone), Children::kDrawnWithoutReplacement, 4), kExact);
}

class EachFault : public ::testing::TestWithParam<Fault> {};
TEST_P(EachFault, IsSeenByTheEnumeration) {
  EXPECT_GT(worst_error(algorithm1(GetParam()), Children::kDrawnWithoutReplacement, 4), kWrong);
}
INSTANTIATE_TEST_SUITE_P(Algorithm1, EachFault,
                         ::testing::Values(Fault::kOneUniformForAllSiblings,
                                           Fault::kResidualNotNormalised,
                                           Fault::kDraftNotNormalised,
                                           Fault::kUnlikelyChildrenTrimmed,
                                           Fault::kSiblingsInReverse, Fault::kBonusFromTarget));

TEST(FollowSamples, IsSeenToFailWhenTheBonusIsDrawnAnew) {
  const Rule twice = [](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& c) {
    Verdict verdict = target_samples(tree, p, q, c);
    verdict.next = c.draw(verdict.path.back(), p(verdict.path.back()));
    return verdict;
  };
  EXPECT_GT(worst_error(twice, Children::kTopK, 2), kWrong);
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

TEST(AcceptOrReject, KeepsTheResidualWhenOnlyRoundingCouldRefuse) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{1});
  std::vector<double> p{0.5, 0.25, 0.25}, q = p;
  Refuser refuser;
  accept_or_reject(
      tree, [&](NodeId) { return std::span(p); }, [&](NodeId) { return std::span(q); }, refuser);
  EXPECT_EQ(refuser.chances[0], 1.0);
  EXPECT_EQ(refuser.bonus, (std::vector<double>{0.5, 0.25, 0.25}));
}

TEST(AcceptOrReject, AcceptsForCertainOnceChildrenCoverTheTarget) {
  // The target's one token comes last of the whole vocabulary, beyond the draft's support.
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{2, 0, 1});
  std::vector<double> p{0, 1, 0}, q{0, 0, 1};
  Refuser refuser;
  accept_or_reject(
      tree, [&](NodeId) { return std::span(p); }, [&](NodeId) { return std::span(q); }, refuser);
  EXPECT_EQ(refuser.chances, (std::vector<double>{0, 0, 1}));
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

TEST(AcceptOrReject, AsksForVisitedRowsOnlyAndOnceEach) {
  TokenTree tree(0);
  for (const auto& [parent, tokens] :
       {std::pair<NodeId, std::vector<TokenId>>{0, {0, 1}}, {1, {2, 3}}, {2, {1}}, {3, {4}}})
    tree.add_children(parent, tokens);
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
    const Verdict verdict = accept_or_reject(tree, lend(p_asked, p), lend(q_asked, q), coin);
    std::vector<NodeId> inner = verdict.path;
    std::erase_if(inner, [&](NodeId node) { return tree.children(node).count == 0; });
    EXPECT_EQ(p_asked, verdict.path);
    EXPECT_EQ(q_asked, inner);
    paths.insert(verdict.path);
  }
  EXPECT_EQ(paths.size(), 7u);  // a walk may end at any node
}

TEST(AcceptOrReject, RefusesRowsThatCannotBelongToTheTree) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{1});
  Refuser refuser;
  const auto verify = [&](std::vector<double> p, std::vector<double> q) {
    accept_or_reject(
        tree, [&](NodeId) { return std::span(p); }, [&](NodeId) { return std::span(q); }, refuser);
  };
  EXPECT_THROW(verify({0.5, 0.5}, {1.0, 0.0}), Error);           // never drawn
  EXPECT_THROW(verify({0.5, 0.5}, {1.0}), Error);                // outside the draft's vocabulary
  EXPECT_THROW(verify({1.0}, {0.5, 0.5}), Error);                // outside the target's
  EXPECT_THROW(verify({0.0, 0.0}, {0.5, 0.5}), Error);           // not probabilities
  EXPECT_THROW(verify({std::nan(""), 0.5}, {0.5, 0.5}), Error);  // a broken model
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
