#include "src/server/request/response_items.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/utf8.h"
#include "src/server/request/chat_fields.h"
#include "src/server/request/turns.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeal = "canopy:";  // what follows it is the reasoning itself

/// The text of a list of parts of these types; `place`: the list's.
std::string joined_parts(const Json& parts, const std::string& place,
                         std::initializer_list<std::string_view> types) {
  if (!parts.is_array())
    throw ApiError(400, in_quotes(place) + " must be a string or a list of parts", place);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Fields part(parts[i], in_list(place, i) + ".");
    const std::string type = required_text(part, "type");
    if (std::find(types.begin(), types.end(), type) == types.end())
      part.fail("type", "is " + in_quotes(type) + ": this server takes text alone here");
    text += required_text(part, "text");
    part.pass_over({"annotations", "logprobs", "prompt_cache_breakpoint"});
    part.refuse_others();
  }
  return text;
}

/// A text, or parts that have one.
std::string text_of(const Json& content, const std::string& place) {
  if (content.is_string()) return content.get<std::string>();
  return joined_parts(content, place, {"input_text", "output_text", "text"});
}

/// Reads items into the messages of a chat.
class Items {
 public:
  explicit Items(CompletionRequest& request) : request_(request) {}

  void instruct(const std::string& text) {
    if (!text.empty()) add({{"role", "system"}, {"content", text}});
  }

  void read(const Json& items, const std::string& place) {
    for (std::size_t i = 0; i < items.size(); ++i) read_item(items[i], in_list(place, i));
  }

  void end() {
    for (Json& message : messages_)
      if (message.contains("tool_calls") && message["content"] == "") message["content"] = nullptr;
    request_.conversation.messages = std::move(messages_);
    if (sealed_elsewhere_)
      request_.warnings.emplace_back(
          "items of type 'reasoning' without their text are left out: nobody here can read them");
  }

 private:
  void read_item(const Json& json, const std::string& place) {
    Fields item(json, place + ".");
    const std::string type = item.text("type").value_or(json.contains("role") ? "message" : "");
    item.pass_over({"id", "status"});
    if (type == "message")
      read_message(item, place);
    else if (type == "function_call")
      read_call(item, place);
    else if (type == "function_call_output")
      read_output(item, place);
    else if (type == "reasoning")
      read_reasoning(item, place);
    else if (type.empty())
      item.fail("type", "is missing");
    else
      item.fail("type", "is " + in_quotes(type) + ": this server reads no such item");
    item.refuse_others();
  }

  void read_message(Fields& item, const std::string& place) {
    std::string role = required_text(item, "role");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      item.fail("role", "must be user, assistant, system or developer");
    const Json* content = item.any("content");
    if (content == nullptr) item.fail("content", "is missing");
    item.pass_over({"phase"});
    add({{"role", role}, {"content", text_of(*content, place + ".content")}});
  }

  void read_call(Fields& item, const std::string& place) {
    const std::string id = required_text(item, "call_id"), name = required_text(item, "name");
    const Json* given = item.any("arguments");
    item.pass_over({"caller"});
    names_[id] = name;
    const Json arguments = call_arguments(given == nullptr ? Json() : *given, place + ".arguments");
    add({{"role", "assistant"},
         {"content", ""},
         {"tool_calls",
          Json::array({{{"id", id},
                        {"type", "function"},
                        {"function", {{"name", name}, {"arguments", arguments}}}}})}});
  }

  void read_output(Fields& item, const std::string& place) {
    const std::string id = required_text(item, "call_id");
    const auto called = names_.find(id);
    if (called == names_.end())
      item.fail("call_id", "is " + in_quotes(id) + ", which no function_call before it has");
    const Json* output = item.any("output");
    if (output == nullptr) item.fail("output", "is missing");
    item.pass_over({"caller"});
    add({{"role", "tool"},
         {"tool_call_id", id},
         {"name", called->second},
         {"content", text_of(*output, place + ".output")}});
  }

  void read_reasoning(Fields& item, const std::string& place) {
    std::string text;
    if (const Json* content = item.any("content"))
      text = joined_parts(*content, place + ".content", {"reasoning_text"});
    const std::string sealed = item.text("encrypted_content").value_or("");
    if (text.empty() && sealed.starts_with(kSeal)) text = sealed.substr(kSeal.size());
    const Json* summary = item.any("summary");
    if (text.empty() && (!sealed.empty() || (summary != nullptr && !summary->empty())))
      sealed_elsewhere_ = true;
    if (!text.empty())
      add({{"role", "assistant"}, {"content", ""}, {"reasoning_content", std::move(text)}});
  }

  /// Adds a message, to the last one where both are the model's or both are instructions.
  void add(Json message) {
    const bool joins = message["role"] == "assistant" || message["role"] == "system";
    add_turn(messages_, std::move(message), joins);
  }

  CompletionRequest& request_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> names_;  // of the tools, by the ids of their calls
  bool sealed_elsewhere_ = false;
};

}  // namespace

std::string sealed_reasoning(const std::string& reasoning) {
  return std::string(kSeal) + reasoning;
}

void read_input(Fields& fields, const Json& history, CompletionRequest& request) {
  const Json* input = fields.any("input");
  if (input == nullptr) fields.fail("input", "is missing");
  Json items = *input;
  if (input->is_string())
    items = Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  if (!items.is_array() || (items.empty() && history.empty()))
    fields.fail("input", "must be a text or a list of items");
  Items reader(request);
  reader.instruct(fields.text("instructions").value_or(""));
  reader.read(history, "previous_response_id");
  reader.read(items, "input");
  reader.end();
  Json& all = request.response->items;
  all = history;
  for (Json& item : items) all.push_back(std::move(item));
}

}  // namespace canopy::server
