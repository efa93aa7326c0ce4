#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace canopy::chat {

/// Settings that the makers of a model advise for sampling from it. What they leave open is empty.
struct GenerationConfig {
  std::optional<float> temperature, top_p, min_p, typical_p, repetition_penalty;
  std::optional<int> top_k;
  std::string origin;                     // the file; "" where the model brings none
  std::vector<std::string> not_followed;  // keys that ask for what Canopy does not do
};

/// Reads generation_config.json of a model's directory, as Hugging Face libraries write it; nothing
/// of a GGUF file, which has none. `do_sample: false` is temperature 0; sampling without a
/// temperature is temperature 1. Throws Error naming file and key.
GenerationConfig read_generation_config(const std::filesystem::path& model);

}  // namespace canopy::chat
