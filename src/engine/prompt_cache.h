#pragma once
#include <filesystem>
#include <string_view>

#include "src/engine/runtime.h"

namespace canopy {

/// The target's keys and values of texts, in a file for runs to come (docs/formats.md, "Prompt
/// caches"). `code` names what computes them: other code may round otherwise, and a text is to be
/// what this run's plain decoding would write.
///
/// Writes all texts that the KV pool remembers. Throws Error.
void save_prompt_cache(const std::filesystem::path& file, const Runtime& runtime,
                       std::string_view code);

struct LoadedPrompts {
  int tokens = 0;       // of all texts
  std::string refused;  // why nothing was taken: the file was made by other code; "" else
};
/// Takes as much of a file as the pool has room for, before any text runs. Throws Error: not such a
/// file, of another model, or damaged (each block has a checksum).
LoadedPrompts load_prompt_cache(const std::filesystem::path& file, Runtime& runtime,
                                std::string_view code);

}  // namespace canopy
