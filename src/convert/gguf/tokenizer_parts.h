#pragma once
// Private to the makers of tokenizer.*: what kinds of tokenizers have in common.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/convert/gguf/gguf_metadata.h"
#include "src/convert/gguf/pre_tokenizers.h"

namespace canopy {

/// Tokens that the post-processor of a tokenizer.json puts before and after one text. Throws Error
/// where it does more.
struct TemplateTokens {
  std::optional<std::uint32_t> before, after;
};
TemplateTokens template_tokens(const nlohmann::json& file);

/// tokenizer.ggml.tokens and .token_type, an entry for each id.
struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;

  explicit GgufVocabulary(std::size_t size);
  /// Throws Error if the id is none of them.
  void set(const nlohmann::json& id, std::string token, TokenType type);
};
/// The type of an added token. Throws Error if it has an option that GGUF has not.
TokenType type_of_added(const nlohmann::json& added);
/// "left right" of each merge, of either form of a tokenizer.json.
std::vector<std::string> merges_of(const nlohmann::json& model);

/// The metadata of a BPE over text whose spaces are U+2581, with bytes for what no token spells.
/// With that mark before each text it is GGUF's "llama", whose merges follow from ranks of tokens;
/// without it GGUF's "gemma4", whose merges are listed. Throws Error naming what either lacks.
GgufMetadata made_from_fallback(const nlohmann::json& file, const ModelConfig& config);
/// Throws Error naming a token if the tokenizer of this metadata encodes its text, or that and the
/// next one's, otherwise than the directory's.
void require_same_ids(const Checkpoint& model, const GgufMetadata& metadata);

}  // namespace canopy
