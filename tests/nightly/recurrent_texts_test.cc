// A thousand tokens of models with recurrent layers, by trees of every kind and size: those of
// plain decoding.
#include "tests/engine/recurrent_kit.h"

namespace canopy {
namespace {

class ThousandTokens : public RecurrentEngine {
 protected:
  static constexpr int kFirst = 24, kTokens = 1000;

  std::vector<TokenId> text(SpeculationMethod method, int nodes, bool resident, int* steps) const {
    EngineOptions options = options_until(method, nodes, kFirst, kFirst + kTokens);
    const bool copies = nodes > 1 && method == SpeculationMethod::kTopK && copies_;
    if (copies) options.plan.draft = draft_source_named("copy:1");
    if (!resident) options.plan.resident = 0;
    Engine engine(files(method != SpeculationMethod::kNone && !copies), options);
    const TextReport report = engine.generate(asked(3, kFirst, kTokens));
    *steps = report.steps;
    return report.tokens;
  }
  void expect_plain(SpeculationMethod method) const {
    int steps = 0, fewest = kTokens;
    const std::vector<TokenId> expected = text(SpeculationMethod::kNone, 0, true, &steps);
    ASSERT_EQ(std::ssize(expected), kTokens);
    for (const int nodes : {2, 3, 4, 5, 7, 8, 11, 16, 23, 32, 33, 48, 63, 64}) {
      EXPECT_EQ(text(method, nodes, nodes % 2 == 0, &steps), expected) << nodes << " nodes";
      fewest = std::min(fewest, steps);
    }
    EXPECT_LT(fewest, kTokens) << "no draft was ever right";
  }

  bool copies_ = false;
};

TEST_P(ThousandTokens, OfChainsArePlainDecodings) { expect_plain(SpeculationMethod::kChain); }

TEST_P(ThousandTokens, OfSequoiasTreesArePlainDecodings) {
  expect_plain(SpeculationMethod::kSequoia);
}

TEST_P(ThousandTokens, OfTheBestTokensTreesArePlainDecodings) {
  expect_plain(SpeculationMethod::kTopK);
}

TEST_P(ThousandTokens, OfCopiedTreesArePlainDecodings) {
  copies_ = true;
  expect_plain(SpeculationMethod::kTopK);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ThousandTokens,
                         ::testing::Values("qwen3_5", "qwen3_5.gguf", "qwen3_5_moe", "qwen3_next"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace canopy
