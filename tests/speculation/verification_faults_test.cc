// The rules once more, slowly, with faults that have been made elsewhere: the enumeration sees
// each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

enum class Fault {
  kNone,
  kOneUniformForAllSiblings,
  kResidualNotNormalised,
  kDraftNotNormalised,
  kUnlikelyChildrenTrimmed,
  kSiblingsInReverse,
  kLikeliestSiblingFirst,
  kBonusFromTarget,
  kNoDivision,        // rho = 1 however many children
  kResidualOfOneTry,  // the rest after one refusal, not after all
};

double total(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

/// Returns the rest after a token was drawn from `draft` and refused; `from` if nothing is left.
std::vector<double> owed(const std::vector<double>& from, const std::vector<double>& draft,
                         double division, double times) {
  std::vector<double> rest(from.size());
  for (std::size_t i = 0; i < rest.size(); ++i)
    rest[i] = std::max(from[i] - times * std::min(draft[i], from[i] / division), 0.0);
  return total(rest) > 0 ? rest : from;
}

/// One node's children by the rule, until one is accepted (returned) or none is (0; then
/// `residual` is what the last token is drawn from, not always normalised).
NodeId try_children(Drawing drawing, Fault fault, const TokenTree& tree, NodeId node,
                    std::vector<double>& residual, std::vector<double> draft, std::size_t columns,
                    Choices& choices) {
  const TokenTree::Range range = tree.children(node);
  std::vector<NodeId> order(static_cast<std::size_t>(range.count));
  std::iota(order.begin(), order.end(), range.first);
  const std::vector<double> fresh = draft, target = residual;
  const auto at = [&](NodeId child) { return static_cast<std::size_t>(tree.token(child)); };
  if (fault == Fault::kSiblingsInReverse) std::reverse(order.begin(), order.end());
  if (fault == Fault::kLikeliestSiblingFirst)
    std::stable_sort(order.begin(), order.end(),
                     [&](NodeId a, NodeId b) { return target[at(a)] > target[at(b)]; });
  if (fault == Fault::kUnlikelyChildrenTrimmed)
    std::erase_if(order, [&](NodeId child) { return fresh[at(child)] < 0.25; });
  // k-sequential selection is exact for any division that is large enough; k always is.
  const bool k_seq = drawing == Drawing::kSpecTr && fault != Fault::kNoDivision;
  const double division = k_seq ? static_cast<double>(std::max(range.count, 1)) : 1;

  std::set<TokenId> refused;
  double uniform_above = 0;  // a shared uniform lies above this, as earlier siblings were refused
  for (const NodeId child : order) {
    const std::size_t t = at(child);
    double chance = draft[t] > 0 ? std::min(1.0, residual[t] / (division * draft[t])) : 0.0;
    if (fault == Fault::kOneUniformForAllSiblings) {
      const double threshold = chance;
      chance =
          uniform_above < 1 ? std::max(0.0, (threshold - uniform_above) / (1 - uniform_above)) : 0;
      uniform_above = std::max(uniform_above, threshold);
    }
    if (choices.accept(child, chance)) return child;
    if (drawing == Drawing::kSpecTr) continue;
    residual = owed(residual, draft, 1, 1);
    if (fault != Fault::kResidualNotNormalised) normalise(residual);
    if (drawing == Drawing::kSpecInfer) continue;
    refused.insert(tree.token(child));
    draft[t] = 0;
    if (std::none_of(draft.begin(), draft.end(), [](double d) { return d > 0; }))
      for (std::size_t i = 0; i < columns; ++i)
        draft[i] = refused.contains(static_cast<TokenId>(i)) ? 0.0 : 1.0;
    if (fault != Fault::kDraftNotNormalised && total(draft) > 0) normalise(draft);
  }
  if (drawing == Drawing::kSpecTr && !order.empty()) {
    double beta = 0;
    for (std::size_t i = 0; i < target.size(); ++i)
      beta += std::min(draft[i], target[i] / division);
    const double none = std::pow(1 - beta, range.count);
    const double times = fault == Fault::kResidualOfOneTry || beta == 0 ? 1 : (1 - none) / beta;
    residual = owed(target, draft, division, times);
  }
  if (fault == Fault::kBonusFromTarget) residual = target;
  return 0;
}

Rule slowly(Drawing drawing, Fault fault) {
  return [=](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
    Verdict verdict{{0}, 0};
    while (true) {
      const NodeId node = verdict.path.back();
      const auto lent = p(node);
      std::vector<double> residual(lent.begin(), lent.end()), draft(residual.size(), 0.0);
      std::size_t columns = 0;
      if (tree.children(node).count > 0) {
        const auto row = q(node);
        columns = row.size();
        std::copy(row.begin(), row.end(), draft.begin());
      }
      const NodeId accepted =
          try_children(drawing, fault, tree, node, residual, draft, columns, choices);
      if (accepted == 0) {
        normalise(residual);
        verdict.next = choices.draw(node, residual);
        return verdict;
      }
      verdict.path.push_back(accepted);
    }
  };
}

struct Mutant {
  Drawing drawing;
  Fault fault;
};

TEST(SlowRules, AreExactWithoutAFault) {
  for (const Drawing drawing : {Drawing::kSequoia, Drawing::kSpecInfer, Drawing::kSpecTr})
    EXPECT_LT(worst_error(slowly(drawing, Fault::kNone), drawing, 4), kExact) << name(drawing);
}

TEST(SlowRules, MayTryIndependentSiblingsInAnyOrderThatDoesNotLookAtThem) {
  for (const Drawing drawing : {Drawing::kSpecInfer, Drawing::kSpecTr})
    EXPECT_LT(worst_error(slowly(drawing, Fault::kSiblingsInReverse), drawing, 4), kExact);
}

class EachFault : public ::testing::TestWithParam<Mutant> {};
TEST_P(EachFault, IsSeenByTheEnumeration) {
  const auto [drawing, fault] = GetParam();
  EXPECT_GT(worst_error(slowly(drawing, fault), drawing, 4), kWrong);
}
INSTANTIATE_TEST_SUITE_P(
    SlowRules, EachFault,
    ::testing::Values(Mutant{Drawing::kSequoia, Fault::kOneUniformForAllSiblings},
                      Mutant{Drawing::kSequoia, Fault::kResidualNotNormalised},
                      Mutant{Drawing::kSequoia, Fault::kDraftNotNormalised},
                      Mutant{Drawing::kSequoia, Fault::kUnlikelyChildrenTrimmed},
                      Mutant{Drawing::kSequoia, Fault::kSiblingsInReverse},
                      Mutant{Drawing::kSequoia, Fault::kLikeliestSiblingFirst},
                      Mutant{Drawing::kSequoia, Fault::kBonusFromTarget},
                      Mutant{Drawing::kSpecInfer, Fault::kOneUniformForAllSiblings},
                      Mutant{Drawing::kSpecInfer, Fault::kResidualNotNormalised},
                      Mutant{Drawing::kSpecInfer, Fault::kUnlikelyChildrenTrimmed},
                      Mutant{Drawing::kSpecInfer, Fault::kLikeliestSiblingFirst},
                      Mutant{Drawing::kSpecInfer, Fault::kBonusFromTarget},
                      Mutant{Drawing::kSpecTr, Fault::kOneUniformForAllSiblings},
                      Mutant{Drawing::kSpecTr, Fault::kNoDivision},
                      Mutant{Drawing::kSpecTr, Fault::kResidualOfOneTry},
                      Mutant{Drawing::kSpecTr, Fault::kUnlikelyChildrenTrimmed},
                      Mutant{Drawing::kSpecTr, Fault::kLikeliestSiblingFirst},
                      Mutant{Drawing::kSpecTr, Fault::kBonusFromTarget}));

// Rules by which the target decides: its samples are only looked up in the tree.

/// Follows the target's samples with one uniform for all levels: each level's choice narrows the
/// next one's.
Verdict with_one_uniform(const TokenTree& tree, const LendRow& p, const LendRow&, Choices& c) {
  double low = 0, high = 1;
  return follow_samples(tree, [&](NodeId node) {
    const auto row = p(node);
    std::vector<double> from(row.size()), chance(row.size());
    double below = 0;
    for (std::size_t t = 0; t < row.size(); ++t) {
      from[t] = below;
      chance[t] = std::max(0.0, std::min(high, below + row[t]) - std::max(low, below));
      below += row[t];
    }
    normalise(chance);
    const TokenId token = c.draw(node, chance);
    const auto t = static_cast<std::size_t>(token);
    low = std::max(low, from[t]);
    high = std::min(high, from[t] + row[t]);
    return token;
  });
}

Verdict with_a_new_bonus(const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& c) {
  Verdict verdict = verify_tree(tree, Drawing::kTopK, p, q, c);
  verdict.next = c.draw(verdict.path.back(), p(verdict.path.back()));
  return verdict;
}

TEST(FollowSamples, IsSeenToFailWhenLevelsShareAUniformOrTheBonusIsDrawnAnew) {
  for (const Drawing children : {Drawing::kTopK, Drawing::kNaive}) {
    EXPECT_GT(worst_error(with_one_uniform, children, 4), kWrong);
    EXPECT_GT(worst_error(with_a_new_bonus, children, 4), kWrong);
  }
}

TEST(FollowSamples, IsExactWhicheverChildrenAreTrimmedAndInAnyOrder) {
  const Rule trimmed = [](const TokenTree& tree, const LendRow& p, const LendRow&, Choices& c) {
    TokenTree kept(0);
    std::vector<NodeId> original{0};
    for (NodeId node = 0; node < kept.size(); ++node) {
      const TokenTree::Range range = tree.children(original[static_cast<std::size_t>(node)]);
      std::vector<TokenId> tokens;
      for (NodeId child = range.first + range.count; child-- > range.first;)
        if (tree.token(child) != 1) {
          tokens.push_back(tree.token(child));
          original.push_back(child);
        }
      if (!tokens.empty()) kept.add_children(node, tokens);
    }
    const auto there = [&](NodeId node) { return original[static_cast<std::size_t>(node)]; };
    Verdict verdict =
        follow_samples(kept, [&](NodeId node) { return c.draw(there(node), p(there(node))); });
    for (NodeId& node : verdict.path) node = there(node);
    return verdict;
  };
  for (const Drawing children : {Drawing::kTopK, Drawing::kNaive})
    EXPECT_LT(worst_error(trimmed, children, 4), kExact);
}

}  // namespace
}  // namespace canopy::testing
