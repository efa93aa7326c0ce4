#include "src/measure/tree_figures.h"

#include <gtest/gtest.h>

namespace canopy {
namespace {

// 9 - a(1) - b(3) - c(5)
//   \ d(2) - a(4) - b(6)       nodes in parentheses; a b stands twice, c and d once
CheckedTree tree(std::vector<NodeId> path) {
  return {.parents = {-1, 0, 0, 1, 2, 3, 4},
          .tokens = {9, 'a', 'd', 'b', 'a', 'c', 'b'},
          .path = std::move(path)};
}

TEST(TreeFigures, AcceptedTokensAreToldByTheRankOfTheirNodeAndToTheLongestPath) {
  TreeFigures figures;
  figures.add(tree({0, 2, 4}));     // a second child, and a first one
  figures.add(tree({0, 1, 3, 5}));  // three first children
  figures.add(tree({0}));
  EXPECT_DOUBLE_EQ(figures.accepted_of_longest(), 5.0 / 9);
  EXPECT_EQ(figures.accepted_by_rank(), (std::vector<double>{.8, .2}));
}

TEST(TreeFigures, ANodeRecursWithTheWholeNGramThatStandsElsewhere) {
  TreeFigures figures;
  figures.add(tree({0}));
  const auto shares = figures.recurring();
  EXPECT_DOUBLE_EQ(shares[0], 4.0 / 6);  // a, b, a, b
  EXPECT_DOUBLE_EQ(shares[1], 4.0 / 6);  // a b, twice
  EXPECT_EQ(shares[2], 0);               // a b c, d a b
  EXPECT_EQ(shares[3], 0);
}

TEST(TreeFigures, NGramsOfOnePathMayOverlapAndAreOfOneTree) {
  TreeFigures figures;
  const CheckedTree chain{
      .parents = {-1, 0, 1, 2, 3}, .tokens = {'x', 'x', 'x', 'x', 'y'}, .path = {0}};
  figures.add(chain);
  EXPECT_DOUBLE_EQ(figures.recurring()[0], 3.0 / 4);
  EXPECT_DOUBLE_EQ(figures.recurring()[1], 3.0 / 4);  // x x, ended by two nodes; not by the first
  EXPECT_EQ(figures.recurring()[2], 0);
  figures.add(chain);  // the same again is another tree: shares stay
  EXPECT_DOUBLE_EQ(figures.recurring()[1], 3.0 / 4);
  EXPECT_EQ(figures.recurring()[2], 0);
}

TEST(TreeFigures, TreesAreToldByTheirLongestPathByWhatWasAcceptedAndWhetherATokenWasRefused) {
  TreeFigures figures;
  figures.add(tree({0, 2, 4, 6}));  // to a leaf
  figures.add(tree({0, 1}));        // b was refused
  const CheckedTree run{.parents = {-1, 0}, .tokens = {9, 'a'}, .path = {0, 1}};
  figures.add(run);
  figures.add({.parents = {-1}, .tokens = {9}, .path = {0}});  // nothing was drafted, nor refused
  EXPECT_EQ(figures.by_longest(), (std::vector<double>{.25, .25, 0, .5}));
  EXPECT_EQ(figures.by_accepted(), (std::vector<double>{.25, .5, 0, .25}));
  EXPECT_EQ(figures.refused(), .25);
  EXPECT_TRUE(TreeFigures().by_longest().empty());
  EXPECT_TRUE(TreeFigures().by_accepted().empty());
  EXPECT_EQ(TreeFigures().refused(), 0);
}

TEST(TreeFigures, OfPlainDecodingThereIsNothing) {
  TreeFigures figures;
  figures.add({.parents = {-1}, .tokens = {1}, .path = {0}});
  EXPECT_EQ(figures.accepted_of_longest(), 0);
  EXPECT_TRUE(figures.accepted_by_rank().empty());
  EXPECT_EQ(figures.recurring()[0], 0);
}

}  // namespace
}  // namespace canopy
