#include "src/server/request/anthropic_turns.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/base/utf8.h"
#include "src/server/request/turns.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw ApiError(400, in_quotes(place) + " " + what, place);
}

/// The blocks of a content: a string is one block of text.
Json blocks_of(const Json& content, const std::string& place) {
  if (content.is_string()) return Json::array({Json{{"type", "text"}, {"text", content}}});
  if (!content.is_array()) refuse(place, "must be a string or a list of blocks");
  return content;
}

[[noreturn]] void refuse_type(const Fields& block, const std::string& type) {
  block.fail("type", "is " + in_quotes(type) + ": this server does not read such a block here");
}

std::string read_text_block(Fields& block) {
  std::string text = required_text(block, "text");
  block.pass_over({"cache_control", "citations"});
  block.refuse_others();
  return text;
}

/// A content that is text alone.
std::string read_text(const Json& content, const std::string& place) {
  const Json blocks = blocks_of(content, place);
  std::string text;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Fields block(blocks[i], in_list(place, i) + ".");
    const std::string type = required_text(block, "type");
    if (type != "text") refuse_type(block, type);
    add_line(text, read_text_block(block));
  }
  return text;
}

/// Reads messages into those of a chat.
class Turns {
 public:
  explicit Turns(CompletionRequest& request) : request_(request) {}

  void read_system(const Json& content, const std::string& place) {
    if (const std::string text = read_text(content, place); !text.empty())
      add({{"role", "system"}, {"content", text}});
  }

  void read_user(const Json& content, const std::string& place) {
    const Json blocks = blocks_of(content, place);
    std::string text;
    bool results = false;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Fields block(blocks[i], in_list(place, i) + ".");
      const std::string type = required_text(block, "type");
      if (type == "text") {
        add_line(text, read_text_block(block));
      } else if (type == "tool_result") {
        if (!text.empty()) add({{"role", "user"}, {"content", std::exchange(text, {})}});
        read_result(block, in_list(place, i));
        results = true;
      } else {
        refuse_type(block, type);
      }
    }
    if (!text.empty() || !results) add({{"role", "user"}, {"content", text}});
  }

  void read_assistant(const Json& content, const std::string& place) {
    const Json blocks = blocks_of(content, place);
    std::string text, reasoning;
    Json calls = Json::array();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Fields block(blocks[i], in_list(place, i) + ".");
      const std::string type = required_text(block, "type");
      if (type == "text") {
        add_line(text, read_text_block(block));
      } else if (type == "thinking") {
        add_line(reasoning, required_text(block, "thinking"));
        block.pass_over({"signature", "cache_control"});
        block.refuse_others();
      } else if (type == "redacted_thinking") {
        redacted_ = true;
      } else if (type == "tool_use") {
        calls.push_back(read_call(block));
      } else {
        refuse_type(block, type);
      }
    }
    Json turn{{"role", "assistant"}, {"content", text}};
    if (!reasoning.empty()) turn["reasoning_content"] = reasoning;
    if (!calls.empty()) turn["tool_calls"] = std::move(calls);
    add(std::move(turn));
  }

  void end() {
    for (Json& message : messages_)
      if (message.contains("tool_calls") && message["content"] == "") message["content"] = nullptr;
    request_.conversation.messages = std::move(messages_);
    if (redacted_)
      request_.warnings.emplace_back(
          "blocks of type 'redacted_thinking' are left out: nobody here can read them");
  }

 private:
  Json read_call(Fields& block) {
    const std::string id = required_text(block, "id"), name = required_text(block, "name");
    const Json* input = block.any("input");
    if (input == nullptr || !input->is_object()) block.fail("input", "must be an object");
    block.pass_over({"cache_control", "caller"});
    block.refuse_others();
    names_[id] = name;
    return {
        {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}};
  }

  void read_result(Fields& block, const std::string& place) {
    const std::string id = required_text(block, "tool_use_id");
    const auto called = names_.find(id);
    if (called == names_.end())
      block.fail("tool_use_id", "is " + in_quotes(id) + ", which no tool_use before it has");
    const Json* content = block.any("content");
    std::string text = content == nullptr ? "" : read_text(*content, place + ".content");
    // No template has a place for it: the model reads it in the text.
    if (block.flag("is_error").value_or(false)) text = "Error: " + text;
    block.pass_over({"cache_control"});
    block.refuse_others();
    add({{"role", "tool"}, {"tool_call_id", id}, {"name", called->second}, {"content", text}});
  }

  void add(Json turn) {
    const bool joins = turn["role"] != "tool";
    add_turn(messages_, std::move(turn), joins);
  }

  CompletionRequest& request_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> names_;  // of the tools, by the ids of their calls
  bool redacted_ = false;
};

}  // namespace

void read_turns(Fields& fields, CompletionRequest& request) {
  Turns turns(request);
  if (const Json* system = fields.any("system")) turns.read_system(*system, "system");
  const Json* messages = fields.any("messages");
  if (messages == nullptr) fields.fail("messages", "is missing");
  if (!messages->is_array() || messages->empty())
    fields.fail("messages", "must be a list of messages");
  std::string role;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string place = in_list("messages", i);
    Fields message((*messages)[i], place + ".");
    role = required_text(message, "role");
    const Json* content = message.any("content");
    if (content == nullptr) message.fail("content", "is missing");
    if (role == "user")
      turns.read_user(*content, place + ".content");
    else if (role == "assistant")
      turns.read_assistant(*content, place + ".content");
    else if (role == "system")
      turns.read_system(*content, place + ".content");
    else
      message.fail("role", "must be user, assistant or system");
    message.refuse_others();
  }
  if (role == "assistant")
    fields.fail("messages", "ends with the assistant's: no answer goes on from a beginning here");
  turns.end();
}

}  // namespace canopy::server
