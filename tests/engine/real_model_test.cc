#include "tests/engine/real_model.h"

#include <array>

namespace canopy {
namespace {

// Each prompt with one of the sizes; tests/nightly has every prompt with every size.
TEST_F(RealModel, GreedyTextOfATreeIsPlainGreedyText) {
  const std::vector<std::vector<TokenId>> expected = plain_texts();
  constexpr std::array kSizes{4, 16, 64, 200};
  int steps = 0, texts = 0;
  for (std::size_t s = 0; s < kSizes.size(); ++s) {
    Engine engine = make(SpeculationMethod::kSequoia, kSizes[s]);
    for (std::size_t i = s; i < prompts().size(); i += kSizes.size()) {
      const TextReport report = run(engine, prompts()[i]);
      EXPECT_EQ(report.tokens, expected[i]) << "prompt " << i << ", a tree of " << kSizes[s];
      steps += report.steps;
      ++texts;
    }
  }
  EXPECT_LT(steps, texts * kNew / 2);  // the draft helps
}

}  // namespace
}  // namespace canopy
