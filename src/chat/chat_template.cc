#include "src/chat/chat_template.h"

#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"
#include "src/chat/template_sources.h"

namespace canopy::chat {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

[[noreturn]] void fail_without_template(const TemplateSources& sources) {
  std::string message = "the model has no chat template";
  if (!sources.by_name.empty()) {
    message += " named 'default' in " + sources.origin + ", only";
    for (const auto& [name, text] : sources.by_name) message.append(" ").append(in_quotes(name));
  } else {
    for (std::size_t i = 0; i < sources.searched.size(); ++i)
      message.append(i == 0 ? "; looked for in " : " and ").append(sources.searched[i]);
  }
  throw Error(message + "; give one by --chat-template-file");
}

/// Throws Error unless it is a list of objects, or null where that is allowed.
void check_list(const ordered_json& list, const char* name, bool may_be_null) {
  if (list.is_null() && may_be_null) return;
  if (!list.is_array()) throw Error(std::string("'") + name + "' is not a list");
  std::size_t at = 0;
  for (const auto& entry : list) {
    if (!entry.is_object())
      throw Error(std::string("'") + name + "[" + std::to_string(at) + "]' is not an object");
    ++at;
  }
}

/// The messages, each with what the model thought under the names that templates read, whichever
/// of the three it came by.
ordered_json with_reasoning(ordered_json messages) {
  static constexpr std::array kNames{"reasoning_content", "thinking", "reasoning"};
  for (auto& message : messages) {
    ordered_json thought;
    for (const char* name : kNames)
      if (thought.is_null()) thought = message.value(name, ordered_json());
    if (thought.is_null()) continue;
    ordered_json named = {{"thinking", thought}};
    named.update(message);
    named["reasoning_content"] = std::move(thought);
    message = std::move(named);
  }
  return messages;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

TemplateSources sources_of(const fs::path& model, const Metadata& metadata) {
  return fs::is_directory(model) ? sources_of_directory(model) : sources_of_gguf(model, metadata);
}

}  // namespace

bool holds_template(std::string_view text) {
  return text.find("{{") != text.npos || text.find("{%") != text.npos;
}

ChatTemplate ChatTemplate::load(const fs::path& model, const Metadata& metadata,
                                const std::optional<fs::path>& file, const std::stop_token& stop) {
  if (file)
    return load_text(model, metadata,
                     read_file(*file, jinja::kMostSourceBytes, FileKind::kOfUser, stop),
                     file->string());
  return of_sources(sources_of(model, metadata));
}

ChatTemplate ChatTemplate::load_text(const fs::path& model, const Metadata& metadata,
                                     std::string text, std::string origin) {
  TemplateSources sources = sources_of(model, metadata);
  if (!is_blank(text) && !holds_template(text))
    throw Error("there is no template in it: nothing stands in {{ }} or {% %}")
        .with("reading the chat template of " + origin);
  sources.by_name = {{"default", std::move(text)}};
  sources.origin = std::move(origin);
  return of_sources(std::move(sources));
}

ChatTemplate ChatTemplate::of_sources(TemplateSources sources) {
  const auto parsed = [&](const std::string& name) {
    return in_context("reading the chat template of " + sources.origin, [&] {
      const std::string& text = sources.by_name.at(name);
      if (is_blank(text)) throw Error("it is empty");
      return jinja::Template(text);
    });
  };
  if (!sources.by_name.contains("default")) fail_without_template(sources);
  ChatTemplate out(sources.origin, parsed("default"));
  if (sources.by_name.contains("tool_use")) out.with_tools_ = parsed("tool_use");
  out.special_tokens_ = std::move(sources.special_tokens);
  return out;
}

std::string ChatTemplate::render(const Conversation& conversation, const std::tm& now) const {
  check_list(conversation.messages, "messages", /*may_be_null=*/false);
  check_list(conversation.tools, "tools", /*may_be_null=*/true);
  check_list(conversation.documents, "documents", /*may_be_null=*/true);
  ordered_json variables = special_tokens_;
  if (!conversation.variables.is_null()) {
    if (!conversation.variables.is_object())
      throw Error("the variables of the chat template are not an object");
    variables.update(conversation.variables);
  }
  const auto set = [&](const char* name, ordered_json value) {
    if (conversation.variables.contains(name))
      throw Error(std::string("the variable '") + name +
                  "' of the chat template is the conversation's own");
    variables[name] = std::move(value);
  };
  set("messages", with_reasoning(conversation.messages));
  set("tools", conversation.tools);
  set("documents", conversation.documents);
  set("add_generation_prompt", conversation.add_generation_prompt);
  const bool tools = !conversation.tools.is_null() && with_tools_;
  return (tools ? *with_tools_ : plain_).render(variables, now);
}

}  // namespace canopy::chat
