#include "src/speculation/growers/hierarchy_grower.h"

#include <gtest/gtest.h>

#include <random>

#include "src/speculation/growers/chain_grower.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

/// Guesses that are the model's own tokens with this chance, else any.
HierarchyGrower::Guess guesses(const Model& draft, unsigned seed, double right) {
  auto random = std::make_shared<std::mt19937>(seed);
  return [=](std::span<const TokenId> text, int most) {
    std::vector<TokenId> tokens;
    Text path(text.begin() + 1, text.end());
    const auto count = static_cast<int>((*random)() % static_cast<unsigned>(most + 1));
    for (int i = 0; i < count; ++i) {
      const bool is_right = std::bernoulli_distribution(right)(*random);
      tokens.push_back(is_right ? best_tokens(draft(path), 1)[0]
                                : static_cast<TokenId>((*random)() % 5));
      path.push_back(tokens.back());
    }
    return tokens;
  };
}

TEST(HierarchyGrower, GrowsTheChainOfTheDraftAloneWhateverIsGuessed) {
  const ConfidenceTracker tracker;
  int forwards = 0, alone = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Model draft = random_model(5, seed, 1, 1);
    std::optional<StepRng> rng;
    if (seed % 2 == 1) rng = StepRng{seed, 0, 3};
    const int longest = 1 + static_cast<int>(seed % 7);
    ChainGrower chain(0, {Growth::Kind::kReach, 0.0, longest}, tracker, rng);
    const Grown expected = grow_on_tables(chain, draft);
    const Text text{0};
    HierarchyGrower grower(text, {longest, static_cast<int>(seed % 4)},
                           guesses(draft, seed, 0.1 * (seed % 11)), rng);
    const Grown got = grow_on_tables(grower, draft);
    ASSERT_EQ(got.tree.tree.size(), expected.tree.tree.size());
    for (NodeId node = 0; node < got.tree.tree.size(); ++node) {
      EXPECT_EQ(got.tree.tree.token(node), expected.tree.tree.token(node));
      EXPECT_EQ(got.tree.tree.parent(node), node - 1);
      const std::int32_t run = got.tree.run[static_cast<std::size_t>(node)];
      ASSERT_TRUE(run >= 0 || node + 1 == got.tree.tree.size());
      if (run < 0) continue;
      EXPECT_EQ(got.run[static_cast<std::size_t>(run)], text_of(got.tree.tree, node));
    }
    EXPECT_LE(got.forwards, expected.forwards);
    EXPECT_LE(std::ssize(got.run), 1 + longest * (1 + static_cast<int>(seed % 4)));
    forwards += got.forwards;
    alone += expected.forwards;
  }
  EXPECT_LT(forwards, alone);  // right guesses were worth something
}

TEST(HierarchyGrower, OfPerfectGuessesTakesTheFewestForwards) {
  const Model draft = random_model(5, 3, 1, 1);
  const HierarchyGrower::Guess perfect = [&](std::span<const TokenId> text, int most) {
    std::vector<TokenId> tokens;
    Text path(text.begin() + 1, text.end());
    for (int i = 0; i < most; ++i) {
      tokens.push_back(best_tokens(draft(path), 1)[0]);
      path.push_back(tokens.back());
    }
    return tokens;
  };
  const Text text{0};
  HierarchyGrower grower(text, {9, 3}, perfect, std::nullopt);
  // The root gives one token; each forward after it runs one and three guesses, and gives four.
  EXPECT_EQ(grow_on_tables(grower, draft).forwards, 3);
}

}  // namespace
}  // namespace canopy::testing
