#include "src/speculation/growers/beam_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/speculation/chi_square.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

GrownTree grow(BeamGrower grower, const Model& draft) { return grow_on_tables(grower, draft).tree; }

Text last_path(const GrownTree& grown) { return text_of(grown.tree, grown.tree.size() - 1); }

double joint(const Model& draft, const Text& text) {
  double product = 1;
  for (std::size_t i = 0; i < text.size(); ++i)
    product *= draft(Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(
                                                           i)))[static_cast<std::size_t>(text[i])];
  return product;
}

TEST(BeamGrower, WithBeamsForAllFindsTheLikeliestTextOfAll) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Model draft = random_model(3, seed, 1, 1);
    Texts all;
    continue_alone(draft, {}, 1, 3, all);
    const auto best = std::max_element(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const GrownTree grown = grow(BeamGrower(0, 9, 3, std::nullopt), draft);  // V^(g-1)
    EXPECT_NEAR(joint(draft, last_path(grown)), best->second, 1e-6);         // rows travel as f32
    double log_q = 0;
    for (const double one : grown.log_q) log_q += one;
    EXPECT_NEAR(std::exp(log_q), best->second, 1e-6);
  }
}

TEST(BeamGrower, WithOneBeamIsGreedy) {
  const Model draft = random_model(5, 3, 1, 1);
  const GrownTree grown = grow(BeamGrower(0, 1, 4, std::nullopt), draft);
  for (NodeId node = 1; node < 5; ++node)
    EXPECT_EQ(grown.tree.token(node), best_tokens(draft(text_of(grown.tree, node - 1)), 1)[0]);
  EXPECT_EQ(grown.run, (std::vector<std::int32_t>{0, 1, 2, 3, -1}));
}

TEST(BeamGrower, MoreBeamsNeverFindALessLikelyTextThanAGreedyOneOnTheseModels) {
  int better = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Model draft = random_model(5, seed, 1, 1);
    const auto with = [&](int beams) {
      return joint(draft, last_path(grow(BeamGrower(0, beams, 3, std::nullopt), draft)));
    };
    EXPECT_GE(with(25), with(1) - 1e-7);
    better += with(25) > with(1) + 1e-7;
  }
  EXPECT_GT(better, 5);  // what the first token is likely to lead to is not always the likeliest
}

TEST(BeamGrower, DrawsABeamByItsProbability) {
  const Model draft = [](const Text&) { return std::vector<double>{0.6, 0.3, 0.1}; };
  std::map<Text, int> counts;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    StepRng rng;
    rng.step = step;
    ++counts[last_path(grow(BeamGrower(0, 1, 2, rng), draft))];
  }
  Texts exact;
  continue_alone(draft, {}, 1, 2, exact);
  EXPECT_TRUE(fits(counts, exact));
}

TEST(BeamGrower, DrawsNoBeamTwice) {
  // Two beams of two tokens are both there, and the heavier is taken: always.
  const Model draft = [](const Text&) { return std::vector<double>{0.6, 0.4}; };
  for (std::uint64_t step = 0; step < 500; ++step) {
    StepRng rng;
    rng.step = step;
    EXPECT_EQ(last_path(grow(BeamGrower(0, 2, 1, rng), draft)), Text{0});
  }
}

}  // namespace
}  // namespace canopy::testing
