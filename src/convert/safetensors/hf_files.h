#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

/// The key `canopy_inflated` of an enlargement's config.json.
struct InflationLabel {
  std::string from;    // the small model's name
  std::string source;  // its source_fingerprint()
  int widen = 0;       // big dim / small dim
  int layers = 0;      // of the small model
  int experts = 0;     // of each layer, that compute what its MLP does; 0: it is dense
  std::uint64_t seed = 0;
};

/// Writes everything of a Hugging Face directory besides the weights, into `directory`: config.json
/// (the source's own with `target`'s sizes, or one made from GGUF metadata),
/// generation_config.json, and the tokenizer's files (copied, or made from GGUF metadata). dtype is
/// bfloat16. Throws: Error if a GGUF file's tokenizer or rotary scaling has no counterpart.
void write_hf_files(const Checkpoint& source, const ModelConfig& target,
                    const std::optional<InflationLabel>& label,
                    const std::filesystem::path& directory);

/// The same of a model whose weights change their form alone: a directory's config.json and the
/// rest are copied as they are. Throws: Error.
void copy_hf_files(const Checkpoint& source, const std::filesystem::path& directory);

/// A tokenizer of GGUF type "gpt2" (byte-level BPE; pre-tokenizers smollm, llama-bpe, qwen2, gpt-2
/// and default) as tokenizer.json, tokenizer_config.json and special_tokens_map.json. Writes
/// nothing if the metadata hold no tokenizer. Throws: Error naming a type that is not supported.
void write_tokenizer_files(const Metadata& gguf, const std::filesystem::path& directory);

}  // namespace canopy
