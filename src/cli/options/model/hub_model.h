#pragma once
#include <optional>
#include <stop_token>
#include <string>

#include "src/cli/options/flags.h"

namespace canopy::cli {

/// Adds -m and -hf, of which one names a command's model. parse() makes the second the first, as
/// kHubPrefix says.
void add_model_flag(Flags& flags, std::string& model);                 // must be given
void add_model_flag(Flags& flags, std::optional<std::string>& model);  // may be left out
/// Adds -hfd, which stands next to the command's own -md as -hf does to -m.
void add_draft_repository_flag(Flags& flags);

/// Returns the path of what -m or -md names: itself, unless it is a repository of the Hub. That is
/// searched for in the Hugging Face cache, and downloaded into it where it is not there; a note on
/// stderr says where it lies. To be called when all flags are known to be sound. Throws Error,
/// Stopped.
std::string local_model(const std::string& named, const std::stop_token& stop);
/// The same, where nothing else catches Ctrl-C (Interrupt).
std::string local_model(const std::string& named);

}  // namespace canopy::cli
