#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "src/text/gguf_pre_tokenizers.h"

namespace canopy {

/// Values of GGUF's tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  kNormal = 1,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

/// `pre_tokenizer` of a tokenizer.json.
nlohmann::ordered_json pre_tokenizer_json(const text::GgufPreTokenizer& pre);
nlohmann::ordered_json byte_level_json(bool use_regex);
/// The one that GGUF knows and that stands for these parts of a tokenizer.json. Throws Error naming
/// the part that none of them has.
const text::GgufPreTokenizer& known_pre_tokenizer(const nlohmann::json& tokenizer);

}  // namespace canopy
