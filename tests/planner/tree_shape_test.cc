#include "planner/tree_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "planner/acceptance.h"
#include "src/base/error.h"

namespace canopy {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// The paper's recursion (App. C.2) as a table [levels][nodes]: kNone where there is no such tree.
/// A child may be there only if its elders are, so vectors need not be monotone.
std::vector<std::vector<double>> recursion(const std::vector<double>& p, int nodes, int levels) {
  const auto n = static_cast<std::size_t>(nodes);
  std::vector<std::vector<double>> best{std::vector<double>(n + 1, kNone)};
  for (int level = 1; level <= levels; ++level) {
    std::vector<double> exactly(n + 1, kNone);  // by the nodes that exactly k children share
    exactly[0] = 0;
    std::vector<double> shared = exactly;  // ... that any number of children share
    for (const double chance : p) {
      std::vector<double> next(n + 1, kNone);
      for (std::size_t all = 1; all <= n; ++all)
        for (std::size_t last = 1; last <= all; ++last) {
          const double below = best.back()[last];
          // 0 times -infinity is NaN: what cannot be stays so, whatever its chance.
          if (below == kNone || exactly[all - last] == kNone) continue;
          next[all] = std::max(next[all], exactly[all - last] + chance * below);
        }
      exactly = next;
      for (std::size_t all = 0; all <= n; ++all) shared[all] = std::max(shared[all], exactly[all]);
    }
    std::vector<double> row(n + 1, kNone);
    for (std::size_t all = 1; all <= n; ++all) row[all] = 1 + shared[all - 1];
    best.push_back(row);
  }
  return best;
}

/// A vector of chances that sums to at most 1, with zeros and ties now and then.
std::vector<double> random_vector(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<double> p(1 + random() % 6);
  double left = 1;
  for (double& chance : p) {
    chance = random() % 5 == 0 ? 0.0 : left * uniform(random);
    left -= chance;
  }
  if (p.size() > 2 && random() % 3 == 0) p[1] = p[2] = std::min(p[1], p[2]);
  return p;
}
std::vector<double> sorted(std::vector<double> p) {
  std::sort(p.rbegin(), p.rend());
  return p;
}

int most_children(const TreeShape& shape) {
  int most = 0;
  for (NodeId node = 0; node < shape.size(); ++node) most = std::max(most, shape.child_count(node));
  return most;
}

/// Every tree shape of this size: each has exactly one breadth-first numbering.
void for_every_shape(int nodes, const std::function<void(const TreeShape&)>& visit) {
  std::vector<NodeId> parent{-1};
  const std::function<void()> extend = [&] {
    const auto size = static_cast<NodeId>(parent.size());
    if (size == nodes) return visit(TreeShape::from_parents(parent));
    for (NodeId up = std::max(parent.back(), 0); up < size; ++up) {
      parent.push_back(up);
      extend();
      parent.pop_back();
    }
  };
  extend();
}

// Sums of at most n terms of at most 1, n <= 200, added in different orders.
constexpr double kRounding = 200 * 200 * 0x1p-53;

TEST(BestTree, EqualsThePapersRecursionForMonotoneVectors) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Acceptance acceptance{sorted(random_vector(seed))};
    constexpr int kNodes = 24, kLevels = 7;
    const auto best = recursion(acceptance.accept, kNodes, kLevels);
    for (int levels = 1; levels <= kLevels; ++levels)
      for (int nodes = 1; nodes <= kNodes; ++nodes) {
        const double expected =
            best[static_cast<std::size_t>(levels)][static_cast<std::size_t>(nodes)];
        if (expected == kNone) {
          EXPECT_THROW(best_tree(nodes, levels, acceptance), Error);
          continue;
        }
        const TreeShape shape = best_tree(nodes, levels, acceptance);
        EXPECT_EQ(shape.size(), nodes);
        EXPECT_LE(shape.levels(), levels);
        EXPECT_LE(most_children(shape), static_cast<int>(acceptance.accept.size()));
        EXPECT_NEAR(expected_tokens(shape, acceptance), expected, kRounding)
            << nodes << " nodes, " << levels << " levels";
      }
  }
}

/// Looks at every shape of `nodes` nodes and at most `levels` levels. kNone says that there is
/// none.
double most_tokens(int nodes, int levels, const Acceptance& acceptance) {
  double best = kNone;
  for_every_shape(nodes, [&](const TreeShape& shape) {
    if (shape.levels() <= levels &&
        most_children(shape) <= static_cast<int>(acceptance.accept.size()))
      best = std::max(best, expected_tokens(shape, acceptance));
  });
  return best;
}

TEST(BestTree, EqualsExhaustiveSearchForSmallTrees) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Acceptance acceptance{sorted(random_vector(seed))};
    for (int nodes = 1; nodes <= 8; ++nodes)
      for (const int levels : {2, 3, 5, 8}) {
        const double best = most_tokens(nodes, levels, acceptance);
        if (best == kNone)
          EXPECT_THROW(best_tree(nodes, levels, acceptance), Error);
        else
          EXPECT_NEAR(expected_tokens(best_tree(nodes, levels, acceptance), acceptance), best,
                      kRounding);
      }
  }
}

/// A vector for each of the first levels, of the same length.
Acceptance random_by_level(unsigned seed) {
  Acceptance acceptance{sorted(random_vector(seed))};
  for (unsigned level = 1; level <= 1 + seed % 3; ++level) {
    std::vector<double> p = sorted(random_vector(1000 * level + seed));
    p.resize(acceptance.accept.size(), 0.0);
    acceptance.deeper.push_back(std::move(p));
  }
  return acceptance;
}

TEST(BestTree, OfAVectorForEachLevelEqualsExhaustiveSearch) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Acceptance acceptance = random_by_level(seed);
    for (int nodes = 1; nodes <= 8; ++nodes)
      for (const int levels : {2, 3, 5, 8}) {
        const double best = most_tokens(nodes, levels, acceptance);
        if (best == kNone) continue;
        EXPECT_NEAR(expected_tokens(best_tree(nodes, levels, acceptance), acceptance), best,
                    kRounding);
      }
  }
}

TEST(BestTree, OfEqualLevelsIsThatOfOneVector) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Acceptance one{sorted(random_vector(seed))};
    const Acceptance twice{one.accept, {one.accept, one.accept}};
    const int nodes = one.accept.size() > 1 ? 20 : 5;
    EXPECT_EQ(best_tree(nodes, 20, one), best_tree(nodes, 20, twice));
    EXPECT_EQ(pruned(best_tree(nodes, 20, one), nodes / 2, one),
              pruned(best_tree(nodes, 20, twice), nodes / 2, twice));
  }
}

TEST(ExpectedTokens, TakeEachLevelsOwnVector) {
  const Acceptance acceptance{{0.5, 0.25}, {{0.75}, {0.125}}};
  EXPECT_EQ(expected_tokens(TreeShape::chain(5), acceptance),
            1 + 0.5 * (1 + 0.75 * (1 + 0.125 * (1 + 0.125))));
  EXPECT_EQ(expected_tokens(TreeShape::from_parents({-1, 0, 0, 1, 1, 2}), acceptance),
            1 + 0.5 + 0.25 + 0.5 * 0.75 + 0.25 * 0.75);
}

TEST(BestTree, EqualsTheStoredTablesOfTheRecursion) {
  std::ifstream file(CANOPY_TEST_DATA "/planner/best_trees.json");
  const auto tables = nlohmann::json::parse(file);
  ASSERT_GE(tables.size(), 6u);
  for (const auto& [name, table] : tables.items()) {
    SCOPED_TRACE(name);
    const Acceptance acceptance{table["p"].get<std::vector<double>>()};
    for (std::size_t l = 0; l < table["levels"].size(); ++l)
      for (std::size_t n = 0; n < table["n"].size(); ++n) {
        const int levels = table["levels"][l], nodes = table["n"][n];
        const auto& expected = table["best"][l][n];
        if (expected.is_null())
          EXPECT_THROW(best_tree(nodes, levels, acceptance), Error);
        else
          EXPECT_NEAR(expected_tokens(best_tree(nodes, levels, acceptance), acceptance),
                      expected.get<double>(), kRounding)
              << nodes << " nodes, " << levels << " levels";
      }
  }
}

TEST(BestTree, EqualsTheRecursionOfOthersOnMonotoneVectorsAndStaysBelowItOnTheRawOne) {
  std::ifstream file(CANOPY_TEST_DATA "/planner/paper_recursion.json");
  const auto tables = nlohmann::json::parse(file);
  ASSERT_EQ(tables.size(), 8u);
  int monotone = 0;
  for (const auto& [name, table] : tables.items()) {
    SCOPED_TRACE(name);
    const Acceptance acceptance{table["p"].get<std::vector<double>>()};
    const bool falls = std::is_sorted(acceptance.accept.rbegin(), acceptance.accept.rend());
    monotone += falls;
    const auto check = [&](int nodes, int levels, const nlohmann::json& expected) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, " << levels << " levels");
      if (expected.is_null()) {
        EXPECT_THROW(best_tree(nodes, levels, acceptance), Error);
        return;
      }
      const TreeShape shape = best_tree(nodes, levels, acceptance);
      EXPECT_EQ(shape.size(), nodes);
      const double tokens = expected_tokens(shape, acceptance), best = expected.get<double>();
      // At most n terms of at most 1, added in different orders.
      const double rounding = static_cast<double>(nodes) * nodes * 0x1p-53;
      EXPECT_LE(tokens, best + rounding);
      EXPECT_GE(tokens, falls ? best - rounding : best * 0.995);
    };
    for (std::size_t n = 0; n < table["n"].size(); ++n) {
      const int nodes = table["n"][n];
      check(nodes, nodes, table["unbounded"][n]);
      for (std::size_t l = 0; l < table["levels"].size(); ++l)
        check(nodes, table["levels"][l], table["bounded"][l][n]);
    }
  }
  EXPECT_EQ(monotone, 7);  // the published vector has a noisy tail
}

TEST(Recursion, OfTheTestsEqualsThatOfOthersWithZerosInTheTailToo) {
  std::ifstream file(CANOPY_TEST_DATA "/planner/paper_recursion.json");
  const auto tables = nlohmann::json::parse(file);
  const auto raw = tables["sequoia-repo-raw"]["p"].get<std::vector<double>>();
  EXPECT_NE(std::find(raw.begin(), raw.end(), 0.0), raw.end());
  EXPECT_FALSE(std::is_sorted(raw.rbegin(), raw.rend()));
  constexpr int kNodes = 128, kLevels = 12;
  for (const auto& [name, table] : tables.items()) {
    SCOPED_TRACE(name);
    const auto best = recursion(table["p"].get<std::vector<double>>(), kNodes, kLevels);
    for (std::size_t l = 0; l < table["levels"].size(); ++l)
      for (std::size_t n = 0; n < table["n"].size(); ++n) {
        const std::size_t levels = table["levels"][l], nodes = table["n"][n];
        if (levels > kLevels || nodes > kNodes) continue;
        const auto& expected = table["bounded"][l][n];
        if (expected.is_null())
          EXPECT_EQ(best[levels][nodes], kNone);
        else
          EXPECT_NEAR(best[levels][nodes], expected.get<double>(), kRounding);
      }
  }
}

TEST(BestTree, NeverBeatsTheRecursionForNoisyVectorsAndStaysExactInSize) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Acceptance acceptance{random_vector(seed)};
    const auto best = recursion(acceptance.accept, 20, 6);
    for (const int nodes : {2, 5, 11, 20}) {
      const double bound = best[6][static_cast<std::size_t>(nodes)];
      if (bound == kNone) continue;
      const TreeShape shape = best_tree(nodes, 6, acceptance);
      EXPECT_EQ(shape.size(), nodes);
      EXPECT_LE(expected_tokens(shape, acceptance), bound + kRounding);
    }
  }
}

TEST(BestTree, OfAVectorThatRisesIsNotTheRecursionsWhichCostsTokensNotExactness) {
  const Acceptance acceptance{{0.1, 0.6, 0.2}};
  EXPECT_NEAR(recursion(acceptance.accept, 5, 5)[5][5], 2.12, kRounding);
  // Planned with (.35, .35, .2): three children and a grandchild below the first.
  EXPECT_NEAR(expected_tokens(best_tree(5, 5, acceptance), acceptance), 1.91, kRounding);
}

TEST(BestTree, LosesNextToNothingByTheNoiseOfTheBuiltInVector) {
  const Acceptance acceptance = default_acceptance(0);
  const auto best = recursion(acceptance.accept, 128, 16);
  for (const int nodes : {16, 64, 128})
    EXPECT_NEAR(expected_tokens(best_tree(nodes, 16, acceptance), acceptance),
                best[16][static_cast<std::size_t>(nodes)], 1e-6);
}

TEST(BestTree, CountsTheRootAsALevelAndAsANode) {
  const Acceptance acceptance{{0.9}};
  EXPECT_EQ(best_tree(1, 1, acceptance).levels(), 1);
  EXPECT_EQ(best_tree(22, 22, acceptance).levels(), 22);  // 21 edges
  EXPECT_THROW(best_tree(23, 22, acceptance), Error);
  EXPECT_THROW(best_tree(2, 1, acceptance), Error);
  EXPECT_THROW(best_tree(2, 2, Acceptance{}), Error);
  EXPECT_EQ(best_tree(1, 1, Acceptance{}).size(), 1);
  EXPECT_THROW(best_tree(0, 1, acceptance), Error);
  EXPECT_THROW(best_tree(1, 0, acceptance), Error);
}

TEST(BestTree, UsesChildrenOfProbabilityZeroOnlyToMakeTheSizeExact) {
  const Acceptance acceptance{{0.5, 0.0}};
  EXPECT_EQ(best_tree(4, 4, acceptance).levels(), 4);
  const TreeShape wide = best_tree(7, 3, acceptance);
  EXPECT_EQ(wide.size(), 7);
  EXPECT_NEAR(expected_tokens(wide, acceptance), 1.75, kRounding);
  EXPECT_THROW(best_tree(8, 3, acceptance), Error);
}

TEST(BestTree, NeverLosesTokensByMoreNodesOrMoreLevels) {
  const Acceptance acceptance = default_acceptance(0.6);
  double last = 0;
  for (int nodes = 1; nodes <= 200; ++nodes) {
    const double tokens = expected_tokens(best_tree(nodes, 200, acceptance), acceptance);
    const double shallow = expected_tokens(best_tree(nodes, 4, acceptance), acceptance);
    EXPECT_GE(tokens, last - kRounding);
    EXPECT_LE(shallow, tokens + kRounding);
    last = tokens;
  }
}

TEST(BestTree, RefusesVectorsThatAreNotUnconditionalProbabilities) {
  EXPECT_THROW(best_tree(3, 3, {{0.9, 0.9}}), Error);
  EXPECT_THROW(best_tree(3, 3, {{-0.1, 0.2}}), Error);
  EXPECT_THROW(best_tree(3, 3, {{std::nan(""), 0.2}}), Error);
  EXPECT_THROW(expected_tokens(TreeShape::chain(3), {{1.5}}), Error);
}

TEST(BestTree, PlansAMillionNodes) {  // n log n; of quadratic work nobody would see the end
  const TreeShape shape = best_tree(1'000'000, 64, default_acceptance(0.6));
  EXPECT_EQ(shape.size(), 1'000'000);
  EXPECT_LE(shape.levels(), 64);
}

TEST(TreeShape, KnowsItsLevelsAndChildren) {
  const TreeShape shape = TreeShape::from_parents({-1, 0, 0, 1, 1, 1, 2, 5});
  EXPECT_EQ(shape.levels(), 4);
  EXPECT_EQ((std::vector<int>(shape.level_widths().begin(), shape.level_widths().end())),
            (std::vector<int>{1, 2, 4, 1}));
  EXPECT_EQ(shape.child_count(0), 2);
  EXPECT_EQ(shape.child_count(1), 3);
  EXPECT_EQ(shape.child_count(5), 1);
  EXPECT_EQ(shape.child_count(7), 0);
  EXPECT_EQ(TreeShape().size(), 1);
  EXPECT_EQ(TreeShape().levels(), 1);
}

TEST(TreeShape, RefusesParentsThatAreNotBreadthFirst) {
  for (const std::vector<NodeId>& parents :
       {std::vector<NodeId>{}, {0}, {-1, -1}, {-1, 1}, {-1, 0, 1, 0}, {-1, 0, 3}, {-1, 0, -5}})
    EXPECT_THROW(TreeShape::from_parents(parents), Error);
}

TEST(TreeShape, OfAChainExpectsAGeometricSum) {
  const Acceptance acceptance{{0.8, 0.1}};
  const TreeShape chain = TreeShape::chain(5);
  EXPECT_EQ(chain.levels(), 5);
  EXPECT_NEAR(expected_tokens(chain, acceptance), 1 + 0.8 + 0.64 + 0.512 + 0.4096, kRounding);
  EXPECT_THROW(TreeShape::chain(0), Error);
}

/// P_k: the chance that one of k children is accepted.
double any_of(int k, const Acceptance& acceptance) {
  return std::accumulate(acceptance.accept.begin(), acceptance.accept.begin() + k, 0.0);
}

// arXiv:2402.12374, Table 1; docs/math.md, "Shapes that stop growing".
TEST(TreeShape, OfAFixedFormIsBoundedAndReachesItsBound) {
  // A sum of n terms, against a formula that divides by 1 - P >= 0.2.
  const auto rounding = [](const TreeShape& shape, double tokens) {
    return (shape.size() + 50) * tokens * 0x1p-52;
  };
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Acceptance acceptance{sorted(random_vector(seed))};
    acceptance.accept.resize(4);
    for (double& p : acceptance.accept) p *= 0.8;  // so that the geometric sums below converge
    const double p1 = any_of(1, acceptance);
    for (int k = 1; k <= 4; ++k) {
      const double pk = any_of(k, acceptance);
      // A chain, a binary tree, k-ary trees.
      for (int levels = 1; levels <= (k == 1 ? 200 : k == 2 ? 10 : 5); ++levels) {
        const std::vector<int> counts(static_cast<std::size_t>(levels), k);
        const TreeShape shape = TreeShape::branching(counts);
        const double tokens = expected_tokens(shape, acceptance);
        EXPECT_NEAR(tokens, (1 - std::pow(pk, levels + 1)) / (1 - pk), rounding(shape, tokens));
        EXPECT_LE(tokens, 1 / (1 - pk) + rounding(shape, tokens));
      }
      for (const int length : {1, 2, 8, 40, 200}) {
        const TreeShape shape = TreeShape::sequences(k, length);
        const double tokens = expected_tokens(shape, acceptance);
        const double bound = 1 + pk / (1 - p1), missing = pk * std::pow(p1, length) / (1 - p1);
        EXPECT_NEAR(tokens, bound - missing, rounding(shape, tokens));
        EXPECT_LE(tokens, bound + rounding(shape, tokens));
      }
    }
  }
}

TEST(BestTree, GrowsBeyondTheBoundsOfFixedForms) {
  // The chance that none of k children is accepted falls as 1 / (k + 1).
  Acceptance acceptance;
  for (int k = 1; k <= 1000; ++k) acceptance.accept.push_back(1.0 / (k * (k + 1.0)));
  double last = 1;
  for (int nodes = 4; nodes <= 1 << 16; nodes *= 4) {
    const double tokens = expected_tokens(best_tree(nodes, nodes, acceptance), acceptance);
    EXPECT_GT(tokens, last + 0.4) << nodes;
    last = tokens;
  }
  EXPECT_GT(last, 1 / (1 - any_of(1, acceptance)));                           // 2: any chain
  EXPECT_GT(last, 1 + any_of(16, acceptance) / (1 - any_of(1, acceptance)));  // 2.9: 16 sequences
  EXPECT_GT(last, 1 / (1 - any_of(2, acceptance)));                           // 3: binary
  EXPECT_GT(last, 1 / (1 - any_of(3, acceptance)));                           // 4: ternary
}

TEST(TreeShape, BranchesAsToldOnEachLevel) {
  const int children[] = {3, 1, 2};
  const TreeShape shape = TreeShape::branching(children);
  EXPECT_EQ((std::vector<NodeId>(shape.parents().begin(), shape.parents().end())),
            (std::vector<NodeId>{-1, 0, 0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6}));
  EXPECT_EQ(TreeShape::branching({}).size(), 1);
  EXPECT_EQ(TreeShape::sequences(5, 8).size(), 41);  // the root is not one of a sequence
  EXPECT_EQ(TreeShape::sequences(16, 48).size(), 769);
  EXPECT_EQ(TreeShape::sequences(16, 48).levels(), 49);
  const TreeShape chain = TreeShape::sequences(1, 7);
  EXPECT_TRUE(std::ranges::equal(chain.parents(), TreeShape::chain(8).parents()));
}

TEST(TreeShape, OfKChildrenIsTheCompleteTreeCutBreadthFirst) {
  for (const int k : {1, 2, 3, 7}) {
    const std::vector<int> counts(k == 1 ? 40 : 4, k);
    const TreeShape complete = TreeShape::branching(counts);
    for (int nodes = 1; nodes <= complete.size(); ++nodes) {
      const TreeShape cut = TreeShape::k_ary(k, nodes);
      ASSERT_EQ(cut.size(), nodes);
      EXPECT_TRUE(std::ranges::equal(cut.parents(),
                                     complete.parents().first(static_cast<std::size_t>(nodes))));
    }
  }
}

TEST(TreeShape, OfTooManyOrTooFewNodesIsRefusedBeforeItIsBuilt) {
  for (const std::vector<int>& children : {std::vector<int>{0},
                                           {2, 0},
                                           {-1},
                                           {1'000'000},
                                           {1000, 1000},
                                           {2'000'000'000, 2'000'000'000}})
    EXPECT_THROW(TreeShape::branching(children), Error);
  EXPECT_THROW(TreeShape::sequences(2, 0), Error);
  EXPECT_THROW(TreeShape::sequences(0, 2), Error);
  EXPECT_THROW(TreeShape::sequences(1, 2'000'000'000), Error);
  EXPECT_THROW(TreeShape::k_ary(0, 2), Error);
  EXPECT_THROW(TreeShape::k_ary(2, 0), Error);
  EXPECT_THROW(TreeShape::k_ary(2, 2'000'000'000), Error);
}

TEST(DefaultAcceptance, PromisesWhatTheSelfDraftWasMeasuredToGive) {
  // Sizes 64 and 256 at most 16 levels deep, from the recursion on the same measurements.
  EXPECT_NEAR(expected_tokens(best_tree(64, 16, default_acceptance(0)), default_acceptance(0)),
              7.266, 0.01);
  EXPECT_NEAR(expected_tokens(best_tree(256, 16, default_acceptance(0)), default_acceptance(0)),
              9.071, 0.01);
  EXPECT_NEAR(expected_tokens(best_tree(64, 16, default_acceptance(0.6)), default_acceptance(0.6)),
              5.516, 0.001);
  EXPECT_NEAR(expected_tokens(best_tree(256, 16, default_acceptance(0.6)), default_acceptance(1)),
              6.767, 0.001);
}

}  // namespace
}  // namespace canopy
