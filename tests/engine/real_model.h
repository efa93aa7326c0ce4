#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/convert/quantize/quantize.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {

/// SmolLM2 and its 4-bit copy on eight real prompts of 128 tokens; skipped where the model is not.
class RealModel : public ::testing::Test {
 protected:
  static constexpr int kNew = 24;  // tokens of a text

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

  Engine make(SpeculationMethod method, int tree) const {
    EngineOptions options;
    options.plan.method = method;
    options.plan.tree_size = options.plan.tree_levels = tree;
    options.plan.max_prompt = 128;
    options.plan.context = 128 + kNew;
    return Engine(open_models(model_, method == SpeculationMethod::kNone ? "" : draft_), options);
  }
  static TextReport run(Engine& engine, std::span<const TokenId> prompt) {
    Request request;
    request.prompt = {prompt.begin(), prompt.end()};
    request.max_new_tokens = kNew;
    request.ignore_end = true;
    return engine.generate(request);
  }

  const std::vector<std::vector<TokenId>>& prompts() const { return prompts_; }

  /// The text of each prompt without a draft.
  std::vector<std::vector<TokenId>> plain_texts() const {
    Engine plain = make(SpeculationMethod::kNone, 0);
    std::vector<std::vector<TokenId>> texts;
    for (const auto& prompt : prompts_) {
      EXPECT_EQ(prompt.size(), 128u);
      texts.push_back(run(plain, prompt).tokens);
    }
    return texts;
  }

 private:
  TempDir dir_;
  std::filesystem::path model_, draft_;
  std::vector<std::vector<TokenId>> prompts_;
};

}  // namespace canopy
