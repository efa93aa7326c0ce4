#include "src/speculation/token_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/base/error.h"

namespace canopy {
namespace {

TokenTree random_tree(unsigned seed) {
  std::mt19937 random(seed);
  TokenTree tree(static_cast<TokenId>(random() % 1000));
  const int size = 1 + static_cast<int>(random() % 200);
  for (NodeId parent = 0; parent < tree.size() && tree.size() < size; ++parent) {
    // The last node always grows: so the walk cannot die out.
    const auto most = parent + 1 == tree.size() ? 1 + random() % 3 : random() % 4;
    std::vector<TokenId> tokens;
    for (std::size_t k = 0; k < most; ++k) tokens.push_back(static_cast<TokenId>(random() % 1000));
    tree.add_children(parent, tokens);
  }
  return tree;
}

TEST(TokenTree, AncestorBitsAreTheNodesMetOnTheWayToTheRoot) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree tree = random_tree(seed);
    const auto size = static_cast<std::size_t>(tree.size()), words = (size + 63) / 64;
    const std::vector<std::uint64_t> bits = tree.ancestor_bits();
    ASSERT_EQ(bits.size(), size * words);
    for (NodeId i = 0; i < tree.size(); ++i) {
      std::set<NodeId> expected;
      for (NodeId node = i; node >= 0; node = tree.parent(node)) expected.insert(node);
      std::set<NodeId> seen;
      for (std::size_t j = 0; j < words * 64; ++j)
        if (bits[static_cast<std::size_t>(i) * words + j / 64] >> (j % 64) & 1)
          seen.insert(static_cast<NodeId>(j));
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST(TokenTree, AncestorBitsOfALevelAreThoseRowsOfTheWholeCutToTheNodesThatExist) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree tree = random_tree(seed);
    std::vector<NodeId> parents;
    for (NodeId node = 0; node < tree.size(); ++node) parents.push_back(tree.parent(node));
    const auto whole = tree.ancestor_bits();
    const auto whole_words = (static_cast<std::size_t>(tree.size()) + 63) / 64;
    const int first = tree.size() / 3, count = tree.size() / 2;
    const auto words = static_cast<std::size_t>(first + count + 63) / 64;
    const auto part = ancestor_bits(parents, first, count);
    ASSERT_EQ(part.size(), static_cast<std::size_t>(count) * words);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      for (std::size_t word = 0; word < words; ++word)
        EXPECT_EQ(part[i * words + word],
                  whole[(static_cast<std::size_t>(first) + i) * whole_words + word]);
  }
}

TEST(TokenTree, DepthAndChildrenAgreeWithParents) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree tree = random_tree(seed);
    std::vector<int> met(static_cast<std::size_t>(tree.size()), 0);
    for (NodeId node = 0; node < tree.size(); ++node) {
      const TokenTree::Range children = tree.children(node);
      for (NodeId child = children.first; child < children.first + children.count; ++child) {
        EXPECT_EQ(tree.parent(child), node);
        EXPECT_EQ(tree.depth(child), tree.depth(node) + 1);
        ++met[static_cast<std::size_t>(child)];
      }
    }
    EXPECT_EQ(met[0], 0);
    for (std::size_t node = 1; node < met.size(); ++node) EXPECT_EQ(met[node], 1);
  }
}

TEST(TokenTree, RefusesASecondSetOfChildrenAndParentsThatDoNotExist) {
  TokenTree tree(7);
  const std::vector<TokenId> tokens{1, 2};
  tree.add_children(0, tokens);
  EXPECT_THROW(tree.add_children(0, tokens), Error);
  EXPECT_THROW(tree.add_children(3, tokens), Error);
  EXPECT_THROW(tree.add_children(-1, tokens), Error);
  EXPECT_EQ(tree.size(), 3);
}

}  // namespace
}  // namespace canopy
