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

// Refuse and owe from below, slowly: each node keeps its rows while its subtrees are tried.

enum class FaultBelow {
  kNone,
  kWeightNotCarriedDown,   // a child begins with 1
  kWeightNotRefused,       // a refusal leaves the node's weight
  kOwedWithoutTheWeight,   // R - D for w R - D
  kNodeBeforeItsChildren,  // asked for on the way down, with all of its weight
  kSiblingsInReverse,
};

struct FromBelowSlowly {
  FaultBelow fault;
  const TokenTree& tree;
  const LendRow &p, &q;
  Choices& choices;
  Verdict verdict = {};

  bool visit(NodeId node, double weight) {
    const TokenTree::Range range = tree.children(node);
    const auto lent = p(node);
    std::vector<double> residual(lent.begin(), lent.end()), draft(residual.size(), 0.0);
    if (range.count > 0) {
      const auto row = q(node);
      std::copy(row.begin(), row.end(), draft.begin());
      normalise(draft);
    }
    if (fault == FaultBelow::kNodeBeforeItsChildren && node != 0 && !choices.accept(node, weight))
      return false;
    for (int k = 0; k < range.count; ++k) {
      const bool reverse = fault == FaultBelow::kSiblingsInReverse;
      const NodeId child = range.first + (reverse ? range.count - 1 - k : k);
      const auto t = static_cast<std::size_t>(tree.token(child));
      const double chance = draft[t] > 0 ? std::min(1.0, weight * residual[t] / draft[t]) : 0;
      if (chance > 0 && visit(child, fault == FaultBelow::kWeightNotCarriedDown ? 1 : chance))
        return true;
      if (chance == 1) return false;
      refuse(residual, draft, weight);
      draft[t] = 0;
      if (total(draft) > 0) normalise(draft);
    }
    const bool asked = node == 0 || fault == FaultBelow::kNodeBeforeItsChildren;
    if (!asked && !choices.accept(node, weight)) return false;
    for (NodeId on = node; on >= 0; on = tree.parent(on))
      verdict.path.insert(verdict.path.begin(), on);
    verdict.next = choices.draw(node, residual);
    return true;
  }

  void refuse(std::vector<double>& residual, const std::vector<double>& draft,
              double& weight) const {
    const double by = fault == FaultBelow::kOwedWithoutTheWeight ? 1 : weight;
    std::vector<double> rest(residual.size());
    for (std::size_t i = 0; i < rest.size(); ++i)
      rest[i] = std::max(by * residual[i] - draft[i], 0.0);
    const double left = total(rest);
    if (!(left > 1e-14)) {
      if (weight < 1) weight = 0;
      return;
    }
    residual = rest;
    normalise(residual);
    if (weight < 1 && fault != FaultBelow::kWeightNotRefused) weight = left / (left + 1 - weight);
  }
};

Rule slowly_from_below(FaultBelow fault) {
  return [=](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
    FromBelowSlowly rule{fault, tree, p, q, choices};
    rule.visit(0, 1);
    return rule.verdict;
  };
}

TEST(SlowRules, FromBelowAreExactWithoutAFaultAndSeenWithOne) {
  const auto error = [](FaultBelow fault) {
    double worst = 0;
    for (const Case& c : cases())
      for (unsigned seed = 0; seed < 4 && c.name != "smaller draft vocabulary"; ++seed) {
        const auto length = static_cast<std::size_t>(c.shape.levels());
        const Model target = random_model(c.vocab, 2 * seed, 1, 1);
        const Model draft = full_model(c.draft_vocab, 2 * seed + 1);
        Texts alone;
        continue_alone(target, {}, 1, length, alone);
        worst =
            std::max(worst, distance(alone, speculate(slowly_from_below(fault), c.shape,
                                                      Drawing::kSequoia, target, draft, length)));
      }
    return worst;
  };
  EXPECT_LT(error(FaultBelow::kNone), kExact);
  for (const FaultBelow fault :
       {FaultBelow::kWeightNotCarriedDown, FaultBelow::kWeightNotRefused,
        FaultBelow::kOwedWithoutTheWeight, FaultBelow::kNodeBeforeItsChildren,
        FaultBelow::kSiblingsInReverse})
    EXPECT_GT(error(fault), kWrong) << static_cast<int>(fault);
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
