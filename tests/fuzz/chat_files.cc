// tokenizer_config.json: chat templates and the special tokens that they may name.
#include "src/base/json_text.h"
#include "src/chat/template_sources.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  put("tokenizer_config.json", input);
  reads([&] {
    const chat::TemplateSources sources = chat::sources_of_directory(folder());
    for (const auto& [name, token] : sources.special_tokens.items())
      expect(token.is_string(), "special tokens that are texts");
  });
}

}  // namespace canopy::fuzz
