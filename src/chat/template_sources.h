#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/metadata.h"

namespace canopy::chat {

/// The templates that a model brings, and the special tokens that they may name.
struct TemplateSources {
  std::map<std::string, std::string> by_name;  // the one without a name is "default"
  std::string origin;                          // the place that they were found in
  std::vector<std::string> searched;           // the places that were searched for them
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();  // "bos_token": "<s>"
};

/// Reads a directory as Hugging Face libraries write it. Throws Error naming the file.
TemplateSources sources_of_directory(const std::filesystem::path& directory);
/// Reads a GGUF file's metadata. Throws Error naming the key.
TemplateSources sources_of_gguf(const std::filesystem::path& file, const Metadata& metadata);

}  // namespace canopy::chat
