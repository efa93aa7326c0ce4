// tokenizer.json, and texts through what it describes.
#include "tests/fuzz/use_tokenizer.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  put("tokenizer.json", input);
  reads([&] { use(*load_tokenizer(folder(), {}, 300)); });
}

}  // namespace canopy::fuzz
