#pragma once
#include <optional>
#include <string>

#include "src/cli/options/flags.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// --prompt-cache: a file of keys and values, for runs to come.
struct PromptCacheOption {
  std::optional<std::string> file;

  FlagValue<std::string> flag();
  static constexpr const char* kName = "prompt-cache";
  static constexpr const char* kHelp =
      "keep the keys and values of texts in this file: read at the start if it is there, written "
      "at "
      "the end";

  /// Before any text runs. Says on stderr what was found. Throws Error.
  void load(Engine& engine) const;
  /// Throws Error.
  void save(Engine& engine) const;
};

}  // namespace canopy::cli
