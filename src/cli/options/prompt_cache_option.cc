#include "src/cli/options/prompt_cache_option.h"

#include <filesystem>
#include <iostream>

#include "src/cli/output/aside.h"
#include "src/measure/hardware.h"

namespace canopy::cli {

FlagValue<std::string> PromptCacheOption::flag() {
  return into(file, "FILE", "--prompt-cache", [](const std::string& flag, const std::string& text) {
    if (text.empty() || text == "-") throw UsageError(flag + ": name a file");
    return text;
  });
}

void PromptCacheOption::load(Engine& engine) const {
  if (!file) return;
  engine.require_prompts();  // before anything is computed
  if (!std::filesystem::exists(*file)) return;
  const LoadedPrompts loaded = engine.load_prompts(*file, measured_code());
  if (!loaded.refused.empty())
    aside() << "note: " << *file << " is not used: " << loaded.refused
            << "; it will be written anew\n";
  else
    aside() << *file << ": keys and values of " << loaded.tokens << " tokens\n";
}

void PromptCacheOption::save(Engine& engine) const {
  if (file) engine.save_prompts(*file, measured_code());
}

}  // namespace canopy::cli
