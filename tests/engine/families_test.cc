// Families whose equations differ from llama's, through the whole engine: a tree's text is plain
// decoding's, whether weights rest or travel, up to the last position that a model has learned.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class Families : public TinyEngine, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kPrompt = 24, kContext = 64;  // as many positions as the tiny OPT has

  void SetUp() override { write_noisy_copy(target(), draft(), 0.05f); }
  std::filesystem::path target() const { return test_data() / "model" / GetParam(); }
  std::filesystem::path draft() const { return own_ / "draft"; }

  Engine make(SpeculationMethod method, int nodes, std::optional<std::uint64_t> resident) const {
    ModelFiles files{Checkpoint::open(target()), std::nullopt, nullptr};
    if (method != SpeculationMethod::kNone) files.draft = Checkpoint::open(draft());
    return open(std::move(files), method, nodes, resident, kPrompt, kContext);
  }
  std::vector<TokenId> text(SpeculationMethod method, int nodes,
                            std::optional<std::uint64_t> resident) const {
    Request request;
    for (int i = 0; i < kPrompt; ++i) request.prompt.push_back(i * i % 89);
    request.max_new_tokens = kContext - kPrompt;
    request.ignore_end = true;
    Engine engine = make(method, nodes, resident);
    const TextReport report = engine.generate(request);
    steps_ = report.steps;
    return report.tokens;
  }
  mutable int steps_ = 0;

 private:
  const TempDir own_;
};

TEST_P(Families, ATreesTextIsPlainDecodingsResidentAndStreamed) {
  const std::vector<TokenId> plain = text(SpeculationMethod::kNone, 0, {});
  ASSERT_EQ(plain.size(), std::size_t{kContext - kPrompt});
  int fewest = steps_;
  for (const auto resident : {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(0)})
    for (const auto& [method, nodes] : {std::pair{SpeculationMethod::kNone, 0},
                                        {SpeculationMethod::kChain, 6},
                                        {SpeculationMethod::kSequoia, 24},
                                        {SpeculationMethod::kTopK, 24},
                                        {SpeculationMethod::kGsd, 24}}) {
      EXPECT_EQ(text(method, nodes, resident), plain)
          << name(method) << (resident ? " streamed" : "");
      fewest = std::min(fewest, steps_);
    }
  EXPECT_LT(fewest, kContext - kPrompt) << "no draft was ever right";
}

/// A family whose positions end, in a table that was learned.
class LearnedPositions : public Families {};

TEST_P(LearnedPositions, AContextBehindTheLastOneIsRefused) {
  ModelFiles files{Checkpoint::open(target()), std::nullopt, nullptr};
  files.tokenizer = std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{});
  EngineOptions options;
  options.plan.method = SpeculationMethod::kNone;
  options.plan.max_prompt = kPrompt;
  options.plan.context = kContext + 1;
  EXPECT_NE(error_of([&] {
              Engine(std::move(files), options);
            }).find("beyond the 64 positions that the model has learned"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Families,
    ::testing::Values("opt", "opt_after", "bloom", "ministral3", "mistral3", "mixtral", "qwen3_moe",
                      "olmoe", "qwen2_moe", "glm4_moe", "minimax_m2", "dots1", "granitemoe",
                      "ernie4_5_moe", "mistral_window", "qwen2_window", "phi3", "phi3_longrope",
                      "phi3_longrope.gguf", "gemma2", "gemma3", "gemma4", "gemma4.gguf", "exaone",
                      "hunyuan", "apertus", "cohere_qk", "granite4", "olmo2", "olmo3", "exaone4",
                      "glm4", "granite", "smollm3", "cohere", "cohere2", "arcee", "nemotron",
                      "starcoder2", "gpt_oss.gguf", "gpt_oss_mxfp4.gguf", "llama_iq.gguf"),
    [](const auto& info) { return test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Checkpoints, LearnedPositions, ::testing::Values("opt"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy
