#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace canopy {

/// Values of GGUF's tokenizer.ggml.token_type that byte-level vocabularies have.
enum class TokenType : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// The byte-level pre-tokenizers that GGUF knows by name (tokenizer.ggml.pre) and tokenizer.json by
/// their parts: smollm, llama-bpe, qwen2, gpt-2, default.

/// `pre_tokenizer` of a tokenizer.json. Throws: Error if the name is none of these.
nlohmann::ordered_json pre_tokenizer_json(const std::string& name);
nlohmann::ordered_json byte_level_json(bool use_regex);
/// The name of such a part; empty if it is none of these.
std::string pre_tokenizer_name(const nlohmann::json& pre_tokenizer);

}  // namespace canopy
