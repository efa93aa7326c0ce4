#include "src/chat/generation_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::chat {
namespace {

GenerationConfig read(const std::string& content) {
  const TempDir dir;
  std::ofstream(dir / "generation_config.json") << content;
  return read_generation_config(dir.path());
}

TEST(GenerationConfig, HasWhatTheFileSaysAndLeavesTheRestOpen) {
  const GenerationConfig all = read(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
          "typical_p": 0.8, "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");
  EXPECT_EQ(all.temperature, 0.6f);
  EXPECT_EQ(all.top_p, 0.9f);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.min_p, 0.05f);
  EXPECT_EQ(all.typical_p, 0.8f);
  EXPECT_EQ(all.repetition_penalty, 1.05f);
  EXPECT_NE(all.origin.find("generation_config.json"), std::string::npos);
  const GenerationConfig none = read(R"({"eos_token_id": 2})");
  EXPECT_FALSE(none.temperature || none.top_p || none.top_k || none.repetition_penalty);
}

TEST(GenerationConfig, ListsTheKeysThatAskForWhatIsNotDone) {
  EXPECT_EQ(read(R"({"no_repeat_ngram_size": 3, "bad_words_ids": [[5]], "suppress_tokens": [1, 2],
                     "eta_cutoff": 0.0003, "num_beams": 4, "stop_strings": "x"})")
                .not_followed,
            (std::vector<std::string>{"num_beams", "no_repeat_ngram_size", "eta_cutoff",
                                      "bad_words_ids", "suppress_tokens", "stop_strings"}));
  EXPECT_EQ(read(R"({"no_repeat_ngram_size": 0, "bad_words_ids": null, "suppress_tokens": [],
                     "eta_cutoff": 0.0, "num_beams": 1, "guidance_scale": 1.0, "top_k": 5})")
                .not_followed,
            std::vector<std::string>());
}

TEST(GenerationConfig, TakesDoSampleForATemperature) {
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.6})").temperature, 0.0f);
  EXPECT_EQ(read(R"({"do_sample": true})").temperature, 1.0f);
}

TEST(GenerationConfig, IsEmptyWhereThereIsNoFile) {
  EXPECT_EQ(read_generation_config(TempDir().path()).origin, "");
  EXPECT_EQ(read_generation_config("model.gguf").origin, "");
}

TEST(GenerationConfig, RefusesWhatItCannotTrustNamingTheKey) {
  for (const char* content :
       {R"({"temperature": "hot"})", R"({"temperature": -1})", R"({"temperature": 1e300})"})
    EXPECT_NE(error_of([&] { read(content); }).find("temperature"), std::string::npos) << content;
  EXPECT_NE(error_of([&] { read(R"({"top_k": 1e12})"); }).find("top_k"), std::string::npos);
  EXPECT_NE(error_of([&] { read("[]"); }).find("generation_config.json"), std::string::npos);
}

}  // namespace
}  // namespace canopy::chat
