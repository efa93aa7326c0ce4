// vocab.json, merges.txt and tokenizer_config.json of a GPT-2 tokenizer, with a zero byte between
// them, and texts through what they describe.
#include "tests/fuzz/use_tokenizer.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  const auto [vocab, others] = split(input);
  const auto [merges, config] = split(others);
  put("vocab.json", vocab);
  put("merges.txt", merges);
  put("tokenizer_config.json", config);
  reads([&] { use(*load_tokenizer(folder(), {}, 300)); });
}

}  // namespace canopy::fuzz
