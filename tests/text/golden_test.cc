// Canopy's tokenizers against the reference library's, on hostile texts.
#include "tests/text/golden.h"

#include <gtest/gtest.h>

#include "src/text/tokenizer.h"

namespace canopy {
namespace {

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(golden::data(GetParam()), {});
  const nlohmann::json texts_ = golden::load("texts.json");
  const nlohmann::json golden_ = golden::load(std::string(GetParam()) + "/golden.json");
};

TEST_P(GoldenTest, EncodesAsTheReferenceLibrary) {
  golden::expect_encodings(*tokenizer_, GetParam());
}

TEST_P(GoldenTest, DecodesAsTheReferenceLibrary) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    SCOPED_TRACE(texts_[i].dump());
    const std::vector<TokenId> ids = golden::ids_of(golden_["special"][i]);
    const auto expect = [&](const char* key, AddSpecial specials) {
      const nlohmann::json& text = golden_[key][i];
      if (text == "long") return;
      EXPECT_EQ(tokenizer_->decode(ids, specials),
                text.is_null() ? golden::text_of(texts_[i]) : text.get<std::string>());
    };
    expect("decoded", AddSpecial::kYes);
    expect("skipped", AddSpecial::kNo);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest,
                         testing::Values("gpt2", "gpt2_prefix_space", "llama3", "qwen2", "smollm",
                                         "llama2", "spm_llama2", "gemma", "metaspace_first",
                                         "metaspace_unknown", "metaspace_fused", "added",
                                         "gguf_default", "smaug", "tekken", "o200k", "opt", "bloom",
                                         "mistral", "seed", "deepseek3", "qwen35"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
