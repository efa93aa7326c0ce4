#include "src/server/request/chat_fields.h"

#include <string>
#include <utility>

namespace canopy::server {

using Json = nlohmann::ordered_json;

namespace {

/// Takes members out of a message that say nothing: clients write all that their types have, and a
/// template may ask only if one is there. Without a content a message keeps its null.
void drop_empty(Json& message) {
  Json kept = Json::object();
  for (auto& [name, value] : message.items()) {
    const bool no_calls = name == "tool_calls" && value.is_array() && value.empty();
    if ((value.is_null() && name != "content") || no_calls) continue;
    kept[name] = std::move(value);
  }
  message = std::move(kept);
}

}  // namespace

void read_messages(Fields& fields, CompletionRequest& request) {
  const Json* messages = fields.any("messages");
  if (messages == nullptr) fields.fail("messages", "is missing");
  if (!messages->is_array() || messages->empty())
    fields.fail("messages", "must be a list of messages");
  std::size_t at = 0;
  for (const Json& message : *messages) {
    const std::string place = "messages[" + std::to_string(at++) + "]";
    if (!message.is_object()) fields.fail(place, "must be an object");
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
      fields.fail(place + ".role", "must be a string: system, user, assistant or tool");
    const auto content = message.find("content");
    const bool calls = message.contains("tool_calls");
    if (content == message.end() || content->is_null()) {
      if (*role != "assistant" && !calls) fields.fail(place + ".content", "is missing");
      continue;
    }
    if (content->is_string()) continue;
    if (!content->is_array())
      fields.fail(place + ".content", "must be a string or a list of parts");
    for (const Json& part : *content) {
      if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
        fields.fail(place + ".content", "has a part without a type");
      if (part["type"] != "text")
        fields.fail(place + ".content",
                    "has a part of type " + part["type"].dump() + ": this server takes text alone");
      if (!part.contains("text") || !part["text"].is_string())
        fields.fail(place + ".content", "has a text part without a text");
    }
  }
  request.conversation.messages = *messages;
  for (Json& message : request.conversation.messages) drop_empty(message);
  // Most templates take a string alone; parts are its pieces.
  for (Json& message : request.conversation.messages) {
    if (!message.contains("content") || !message["content"].is_array()) continue;
    std::string text;
    for (const Json& part : message["content"]) text += part["text"].get_ref<const std::string&>();
    message["content"] = text;
  }
}

void read_variables(Fields& fields, CompletionRequest& request) {
  const Json* variables = fields.any("chat_template_kwargs");
  if (variables == nullptr) return;
  if (!variables->is_object()) fields.fail("chat_template_kwargs", "must be an object");
  request.conversation.variables = *variables;
}

void read_format(Fields& fields, CompletionRequest& request) {
  const Json* format = fields.any("response_format");
  if (format == nullptr) return;
  Fields of_format(*format, "response_format.");
  const std::string type = of_format.text("type").value_or("");
  if (type == "json_object") {
    request.schema = Json{{"type", "object"}};
  } else if (type == "json_schema") {
    const Json* described = of_format.any("json_schema");
    if (described == nullptr) of_format.fail("json_schema", "is missing");
    Fields of_schema(*described, "response_format.json_schema.");
    const Json* schema = of_schema.any("schema");
    if (schema == nullptr) of_schema.fail("schema", "is missing");
    request.schema = *schema;
    of_schema.pass_over({"name", "description", "strict"});
    of_schema.refuse_others();
  } else if (type != "text") {
    of_format.fail("type", "must be text, json_object or json_schema");
  }
  of_format.refuse_others();
}

}  // namespace canopy::server
