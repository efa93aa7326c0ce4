#include "src/measure/timed_prompts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/measure/calibration_prompts.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class TimedPromptsTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(std::filesystem::path(CANOPY_TEST_DATA) / "text" / GetParam(), {});
};

TEST_P(TimedPromptsTest, HaveTheLengthAskedForAndNoTwoBeginWithTheSameBlock) {
  TimedPrompts prompts(*tokenizer_, default_prompts());
  std::set<std::vector<TokenId>> blocks;  // as a KV pool remembers them
  int made = 0;
  for (int i = 0; i < 300; ++i)
    for (const int tokens : {kKvBlock, 512}) {
      const std::vector<TokenId> prompt = prompts.next(tokens);
      ASSERT_EQ(std::ssize(prompt), tokens);
      blocks.insert({prompt.begin(), prompt.begin() + kKvBlock});
      ++made;
    }
  EXPECT_EQ(std::ssize(blocks), made);
}

TEST_P(TimedPromptsTest, MayBeShorterThanTheirNumber) {
  TimedPrompts prompts(*tokenizer_, default_prompts());
  EXPECT_EQ(prompts.next(1).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TimedPromptsTest,
                         ::testing::Values("llama2", "gpt2", "qwen2"));

TEST(TimedPrompts, RefusesTextsWithoutAnyToken) {
  const auto tokenizer =
      load_tokenizer(std::filesystem::path(CANOPY_TEST_DATA) / "text" / "gpt2", {});
  const std::vector<std::string> empty{""};
  EXPECT_NE(error_of([&] { TimedPrompts(*tokenizer, empty); }).find("no token"), std::string::npos);
}

}  // namespace
}  // namespace canopy
