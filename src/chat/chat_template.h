#pragma once
// Room src/chat: conversations as models expect them: templates, tools, tags of reasoning.
// In: messages and the model's files. Out: a prompt, and replies parsed into their parts.
// Must not know: weights, sampling, HTTP.
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "src/base/metadata.h"
#include "src/jinja/template.h"

namespace canopy::chat {

/// The input of a template, as `transformers`' apply_chat_template takes it.
struct Conversation {
  nlohmann::ordered_json messages = nullptr;   // a list of {"role", "content", ...}
  nlohmann::ordered_json tools = nullptr;      // a list of JSON schemas; null: none
  nlohmann::ordered_json documents = nullptr;  // a list of {"title", "text"}; null: none
  bool add_generation_prompt = true;           // end where the model's answer begins
  bool continue_final_message = false;         // end where the last message's text does
  nlohmann::ordered_json variables = nullptr;  // an object: more for the template; null: none
};

struct TemplateSources;

/// True if a text has anything that Jinja would fill in or obey.
bool holds_template(std::string_view text);

/// A checkpoint's own template: what makes the text of a conversation that the model was trained
/// on. Immutable: any number of threads.
class ChatTemplate {
 public:
  /// Loads `file` if one is given. Else that of the directory `model`: chat_template.jinja (named
  /// ones in additional_chat_templates), or `chat_template` of tokenizer_config.json, a text or a
  /// list of named ones. Of a GGUF file: `tokenizer.chat_template` of its metadata, and those that
  /// `tokenizer.chat_templates` names. Special tokens come from the same place.
  /// Throws Error: there is none, naming where it was looked for; it is not a template, with line
  /// and column. Throws Stopped on request.
  static ChatTemplate load(const std::filesystem::path& model, const Metadata& metadata,
                           const std::optional<std::filesystem::path>& file = {},
                           const std::stop_token& stop = {});
  /// Takes a text that a user gave, as `file` is, with the special tokens that the model brings;
  /// `origin` is what messages call it. Throws Error where it holds no template.
  static ChatTemplate load_text(const std::filesystem::path& model, const Metadata& metadata,
                                std::string text, std::string origin);

  /// The text of a conversation. With tools, by the template named `tool_use` if there is one.
  /// `now` is local time, which some templates write into the text. Throws Error if a member of the
  /// conversation is of the wrong type; jinja::TemplateError.
  std::string render(const Conversation& conversation, const std::tm& now) const;
  /// The place that it was found in, for messages.
  const std::string& origin() const { return origin_; }
  const std::string& source() const { return plain_.source(); }  // without tools

 private:
  static ChatTemplate of_sources(TemplateSources sources);
  ChatTemplate(std::string origin, jinja::Template plain)
      : origin_(std::move(origin)), plain_(std::move(plain)) {}

  std::string origin_;
  jinja::Template plain_;
  std::optional<jinja::Template> with_tools_;
  nlohmann::ordered_json special_tokens_ = nlohmann::ordered_json::object();
};

}  // namespace canopy::chat
