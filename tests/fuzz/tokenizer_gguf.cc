// The tokenizer and the chat template of a GGUF file, and texts through them.
#include "src/chat/chat_template.h"
#include "src/checkpoint/readers.h"
#include "tests/fuzz/use_tokenizer.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  const std::filesystem::path file = put("model.gguf", input);
  Metadata metadata;
  if (!reads([&] { metadata = read_gguf(file).metadata; })) return;
  reads([&] { use(*load_tokenizer(file, metadata, 300)); });
  reads([&] { chat::ChatTemplate::load(file, metadata); });
}

}  // namespace canopy::fuzz
