#pragma once
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace canopy::cli {

/// What help says of --prompts.
inline constexpr const char* kPromptsHelp =
    "prompts: JSON lines with a \"text\" each, or one prompt a line; - reads stdin (default: a set "
    "that comes with the program)";

/// The prompts of a file: JSON lines with a "text" each, or plain text, one a line; blank lines do
/// not count. "-" is standard input. Throws Error naming the file and the line; Stopped.
std::vector<std::string> read_prompt_file(const std::string& path, const std::stop_token& stop);
/// Those of --prompts, or the set that comes with the program.
std::vector<std::string> prompt_texts(const std::optional<std::string>& file,
                                      const std::stop_token& stop);

}  // namespace canopy::cli
