#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/convert/quantize.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

constexpr int kNew = 24;

/// SmolLM2 and its 4-bit copy on eight real prompts of 128 tokens; skipped where the model is not.
class RealModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* elsewhere = std::getenv("CANOPY_SMOLLM2");
    model_ = elsewhere ? std::filesystem::path(elsewhere)
                       : std::filesystem::path(CANOPY_TEST_DATA) /
                             "../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(model_))
      GTEST_SKIP() << "no " << model_ << "; scripts/get_model fetches it";
    draft_ = dir_.path() / "draft.gguf";
    quantize(Checkpoint::open(model_), draft_, DType::kQ4_0, [](std::uint64_t, std::uint64_t) {});
    std::ifstream file(std::filesystem::path(CANOPY_TEST_DATA) / "model" / "prompts_128.json");
    prompts_ = nlohmann::json::parse(file).at("prompts").get<std::vector<std::vector<TokenId>>>();
    ASSERT_EQ(prompts_.size(), 8u);
  }

  Engine make(Spec spec, int tree) const {
    EngineOptions options;
    options.plan.spec = spec;
    options.plan.tree_size = options.plan.tree_levels = tree;
    options.plan.max_prompt = 128;
    options.plan.context = 128 + kNew;
    return Engine(open_models(model_, spec == Spec::kNone ? "" : draft_), options);
  }
  static GenerateReport run(Engine& engine, std::span<const TokenId> prompt) {
    GenerateRequest request;
    request.prompt = prompt;
    request.max_new_tokens = kNew;
    request.ignore_end = true;
    return engine.generate(request);
  }

  TempDir dir_;
  std::filesystem::path model_, draft_;
  std::vector<std::vector<TokenId>> prompts_;
};

// Every prompt with one of the sizes; with CANOPY_EVERY_TREE set, every prompt with every size.
TEST_F(RealModel, GreedyTextOfAnyTreeIsPlainGreedyText) {
  const bool every = std::getenv("CANOPY_EVERY_TREE") != nullptr;
  Engine plain = make(Spec::kNone, 0);
  std::vector<std::vector<TokenId>> expected;
  for (const auto& prompt : prompts_) {
    ASSERT_EQ(prompt.size(), 128u);
    expected.push_back(run(plain, prompt).tokens);
  }
  constexpr std::array kSizes{4, 16, 64, 200};
  int steps = 0, texts = 0;
  for (std::size_t s = 0; s < kSizes.size(); ++s) {
    Engine engine = make(Spec::kSequoia, kSizes[s]);
    for (std::size_t i = every ? 0 : s; i < prompts_.size(); i += every ? 1 : kSizes.size()) {
      const GenerateReport report = run(engine, prompts_[i]);
      EXPECT_EQ(report.tokens, expected[i]) << "prompt " << i << ", a tree of " << kSizes[s];
      steps += report.steps;
      ++texts;
    }
  }
  EXPECT_LT(steps, texts * kNew / 2);  // the draft helps
}

}  // namespace
}  // namespace canopy
