#include "src/measure/decode.h"

#include <gtest/gtest.h>

#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

TEST(TokensPerStep, IsARatioOfSumsWhoseErrorIsFromHowTextsDiffer) {
  const std::vector<StepTally> alike{{2, 1}, {4, 2}, {20, 10}}, apart{{1, 1}, {3, 1}};
  EXPECT_EQ(tokens_per_step(alike).mean, 2);
  EXPECT_EQ(tokens_per_step(alike).error, 0);
  EXPECT_EQ(tokens_per_step(apart).mean, 2);
  EXPECT_DOUBLE_EQ(tokens_per_step(apart).error, 1);  // sqrt(2 / 1 * (1 + 1)) / 2
  EXPECT_EQ(tokens_per_step({}).mean, 0);
}

TEST(TallySteps, CountsAStepByWhereItBegins) {
  TextReport text;
  for (int i = 0; i < 12; ++i) text.tokens.push_back(100 + i);
  for (int i = 0; i < 12; ++i) text.tokens.push_back(i % 2);  // three rounds of it are a loop
  text.step_tokens.assign(12, 2);
  const StepTally all = tally_steps(text, Loops::kWith);
  const StepTally outside = tally_steps(text, Loops::kWithout);
  EXPECT_EQ(all.tokens, 24);
  EXPECT_EQ(all.steps, 12);
  EXPECT_EQ(outside.tokens, 2 * outside.steps);
  EXPECT_GE(outside.steps, 6);  // the loop is none before it has gone round
  EXPECT_LT(outside.steps, 12);
}

TEST(MeasureDecode, PlainDecodingGainsATokenInEachStepOfEachText) {
  ModelFiles models{Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2"),
                    std::nullopt, nullptr};
  models.tokenizer =
      std::make_unique<NumberTokenizer>(models.target.config().vocab, std::vector<TokenId>());
  EngineOptions options;
  options.device.threads = 2;
  options.plan.method = SpeculationMethod::kNone;
  options.plan.max_prompt = 4;
  options.plan.context = 12;
  options.plan.max_sequences = 2;
  Engine engine(std::move(models), options);
  std::vector<Request> requests(3);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = {1, 2, 3, static_cast<TokenId>(i)};
    requests[i].max_new_tokens = 8;
    requests[i].ignore_end = true;
  }
  std::vector<std::size_t> firsts;
  const DecodeMeasurement measured =
      measure_decode(engine, requests, [&](std::size_t first, const StepProgress&) {
        if (firsts.empty() || firsts.back() != first) firsts.push_back(first);
      });
  EXPECT_EQ(measured.tokens_per_step.mean, 1);
  EXPECT_EQ(measured.tokens_per_step.groups, 3);
  EXPECT_EQ(measured.tokens, 3 * 7);  // all but the first step's
  EXPECT_GT(measured.seconds_per_token, 0);
  EXPECT_GE(measured.step, measured.compute);
  EXPECT_EQ(firsts, (std::vector<std::size_t>{0, 2}));
}

}  // namespace
}  // namespace canopy
