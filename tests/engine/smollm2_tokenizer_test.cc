// The tokenizer of the real model, read from its GGUF file, against the reference library's.
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/checkpoint/checkpoint.h"
#include "src/text/tokenizer.h"
#include "tests/text/golden.h"

namespace canopy {
namespace {

TEST(SmolLm2Tokenizer, EncodesAndDecodesAsTheReferenceLibrary) {
  const char* given = std::getenv("CANOPY_SMOLLM2");
  const std::filesystem::path path =
      given ? given : golden::data("../../../models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "no " << path << "; run scripts/demo, or set CANOPY_SMOLLM2 to the file";
  const Checkpoint model = Checkpoint::open(path);
  const auto tokenizer = load_tokenizer(path, model.metadata());
  EXPECT_EQ(tokenizer->vocab(), model.config().vocab);
  for (const auto& golden : golden::load("smollm2.json")) {
    SCOPED_TRACE(golden["text"].dump());
    const std::vector<TokenId> ids = golden["ids"];
    EXPECT_EQ(tokenizer->encode(golden["text"].get<std::string>(), AddSpecial::kYes), ids);
    EXPECT_EQ(tokenizer->decode(ids, AddSpecial::kYes), golden["decoded"]);
  }
}

}  // namespace
}  // namespace canopy
