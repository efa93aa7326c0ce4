#pragma once
// The target's keys and values of texts, in a file for runs to come (docs/formats.md, "Prompt
// caches").
#include <filesystem>
#include <string>
#include <string_view>

namespace canopy {

struct Runtime;

/// Throws Error where the model has recurrent layers and the plan keeps no snapshots of them.
void require_prompt_cache(const Runtime& runtime);
/// Does what Engine::save_prompts() says. `code` names what computes keys and values: other code
/// may round otherwise, and a text is to be what this run's plain decoding would write.
void save_prompt_cache(const std::filesystem::path& file, const Runtime& runtime,
                       std::string_view code);

struct LoadedPrompts {
  int tokens = 0;       // of all texts
  std::string refused;  // why nothing was taken: the file was made by other code; "" else
};
/// Does what Engine::load_prompts() says.
LoadedPrompts load_prompt_cache(const std::filesystem::path& file, Runtime& runtime,
                                std::string_view code);

}  // namespace canopy
