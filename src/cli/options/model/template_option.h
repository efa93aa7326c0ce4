#pragma once
#include <optional>
#include <stop_token>
#include <string>

#include "src/chat/chat_template.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cli/options/flags.h"

namespace canopy::cli {

/// --chat-template and --chat-template-file.
struct TemplateOption {
  std::optional<std::string> text, file;

  void add_to(Flags& flags);
  bool given() const { return text || file; }
  /// The template that was given, else the model's own. Throws Error, UsageError, Stopped.
  chat::ChatTemplate load(const Checkpoint& model, const std::stop_token& stop) const;
};

}  // namespace canopy::cli
