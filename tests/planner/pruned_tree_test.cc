#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "planner/acceptance.h"
#include "planner/tree_shape.h"
#include "src/base/error.h"

namespace canopy {
namespace {

TEST(PrunedTree, KeepsWhatEachLevelsOwnVectorMakesLikely) {
  const Acceptance acceptance{{0.5, 0.4}, {{0.9, 0.05}}};
  const TreeShape shape = TreeShape::from_parents({-1, 0, 0, 1, 1, 2});
  EXPECT_EQ(pruned(shape, 4, acceptance), TreeShape::from_parents({-1, 0, 0, 1}));
  EXPECT_EQ(pruned(shape, 4, {{0.5, 0.4}}), TreeShape::from_parents({-1, 0, 0, 1}));
  EXPECT_EQ(pruned(shape, 5, acceptance), TreeShape::from_parents({-1, 0, 0, 1, 2}));
  EXPECT_EQ(pruned(shape, 5, {{0.5, 0.4}}), TreeShape::from_parents({-1, 0, 0, 1, 1}));
}

TEST(PrunedTree, KeepsTheNodesThatAreMostLikelyReached) {
  const Acceptance acceptance = default_acceptance(0.6);
  for (const int nodes : {2, 7, 33, 64})
    for (int kept = 1; kept <= nodes + 1; ++kept) {
      const TreeShape best = best_tree(nodes, 12, acceptance);
      const TreeShape cut = pruned(best, kept, acceptance);
      ASSERT_EQ(cut.size(), std::min(kept, nodes));
      // Best trees lie within one another, so the best part of one is a best tree.
      EXPECT_NEAR(expected_tokens(cut, acceptance),
                  expected_tokens(best_tree(cut.size(), 12, acceptance), acceptance), 1e-12);
    }
  const Acceptance rising{{0.1, 0.6, 0.3}};  // a later child is not kept without the elder ones
  const TreeShape cut = pruned(TreeShape::branching(std::array{3, 2}), 3, rising);
  EXPECT_EQ(cut, TreeShape::from_parents({-1, 0, 0}));
  EXPECT_THROW(pruned(cut, 0, rising), Error);
}

}  // namespace
}  // namespace canopy
