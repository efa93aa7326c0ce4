#pragma once
#include <filesystem>
#include <string>

#include "offload/checkpoint.h"

namespace canopy {

/// All of a file. Throws: Error.
std::string read_text_file(const std::filesystem::path& path);

/// What to call a model in labels: general.name of a GGUF file, else its file or directory.
std::string model_name(const Checkpoint& model);

}  // namespace canopy
