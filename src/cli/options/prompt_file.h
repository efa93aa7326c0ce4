#pragma once
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace canopy::cli {

/// A prompt, and what may be compared with its continuation.
struct PromptText {
  std::string text;
  std::optional<std::string> reference = {};
};

/// Help of --prompts.
inline constexpr const char* kPromptsHelp =
    "prompts: JSON lines with a \"text\" each, or one prompt a line; - reads stdin (default: a set "
    "that comes with the program)";

/// The prompts of a file: JSON lines with a "text" and perhaps a "reference" each, or plain text,
/// one a line; blank lines do not count. "-" is standard input. Throws Error naming the file and
/// the line; Stopped.
std::vector<PromptText> read_prompt_file(const std::string& path, const std::stop_token& stop);
/// Reads the prompts of --prompts, or the set that comes with the program, which has no references.
std::vector<PromptText> read_prompts(const std::optional<std::string>& file,
                                     const std::stop_token& stop);
/// Says what --prompts names, for messages.
std::string prompts_name(const std::optional<std::string>& file);
/// Their texts alone.
std::vector<std::string> texts_of(std::span<const PromptText> prompts);

}  // namespace canopy::cli
