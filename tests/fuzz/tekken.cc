// tekken.json of Mistral's own library, and texts through what it describes.
#include "tests/fuzz/use_tokenizer.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  put("tekken.json", input);
  reads([&] { use(*load_tokenizer(folder(), {}, 300)); });
}

}  // namespace canopy::fuzz
