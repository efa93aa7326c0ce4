#include "tests/engine/real_model.h"

namespace canopy {
namespace {

class EveryTree : public RealModel, public ::testing::WithParamInterface<int> {};

TEST_P(EveryTree, GivesThePlainGreedyTextOfEveryPrompt) {
  const std::vector<std::vector<TokenId>> expected = plain_texts();
  Engine engine = make(SpeculationMethod::kSequoia, GetParam());
  int steps = 0;
  for (std::size_t i = 0; i < prompts().size(); ++i) {
    const TextReport report = run(engine, prompts()[i]);
    EXPECT_EQ(report.tokens, expected[i]) << "prompt " << i;
    steps += report.steps;
  }
  EXPECT_LT(steps, static_cast<int>(prompts().size()) * kNew);  // the draft helps
}

INSTANTIATE_TEST_SUITE_P(Nodes, EveryTree, ::testing::Values(2, 4, 16, 64, 200, 512));

}  // namespace
}  // namespace canopy
