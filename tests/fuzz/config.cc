// config.json and generation_config.json.
#include "src/base/json.h"
#include "src/chat/generation_config.h"
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  reads([&] {
    const ModelConfig config = shape_from_config(input);
    expect(config.layers > 0 && config.dim > 0 && config.heads > 0 && config.kv_heads > 0 &&
               config.head_dim > 0 && config.vocab > 0 && config.heads % config.kv_heads == 0,
           "a shape that is one");
    for (const TokenId end : config.end_tokens)
      expect(end >= 0 && end < config.vocab, "ends that are tokens");
  });
  reads([&] { flatten_config(parse_json(input)); });
  put("generation_config.json", input);
  reads([&] { chat::read_generation_config(folder()); });
}

}  // namespace canopy::fuzz
