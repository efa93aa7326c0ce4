#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/request/chat_fields.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

bool is_tool_name(const std::string& name) {
  constexpr std::size_t kLongest = 64;
  return !name.empty() && name.size() <= kLongest &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

/// The arguments of calls come as JSON in a string; templates take the value itself.
void parse_arguments(Json& messages) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
        throw ApiError(400, "'messages' has a tool call without a function", "messages");
      Json& function = call["function"];
      if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
      try {
        function["arguments"] =
            parse_ordered_json(function["arguments"].get_ref<const std::string&>());
      } catch (const Error&) {  // the template gets what the client sent
      }
    }
  }
}

/// The name in {"type": "function", "function": {"name": ...}}.
std::string chosen_function(const Json& choice) {
  Fields chosen(choice, "tool_choice.");
  if (chosen.text("type").value_or("") != "function") chosen.fail("type", "must be function");
  const Json* function = chosen.any("function");
  if (function == nullptr) chosen.fail("function", "is missing");
  Fields named(*function, "tool_choice.function.");
  const std::string name = named.text("name").value_or("");
  named.refuse_others();
  chosen.refuse_others();
  return name;
}

}  // namespace

void read_tools(Fields& fields, CompletionRequest& request) {
  parse_arguments(request.conversation.messages);
  constexpr std::size_t kMostTools = 128;
  std::vector<Tool> tools;
  const Json* offered = fields.any("tools");
  if (offered != nullptr) {
    if (!offered->is_array()) fields.fail("tools", "must be a list");
    if (offered->size() > kMostTools)
      fields.fail("tools", "has more than " + std::to_string(kMostTools) + " entries");
    for (std::size_t i = 0; i < offered->size(); ++i) {
      const std::string place = "tools[" + std::to_string(i) + "].";
      Fields tool((*offered)[i], place);
      if (tool.text("type").value_or("") != "function") tool.fail("type", "must be function");
      const Json* described = tool.any("function");
      if (described == nullptr) tool.fail("function", "is missing");
      Fields function(*described, place + "function.");
      const std::string name = function.text("name").value_or("");
      if (!is_tool_name(name))
        function.fail("name", "must be 1 to 64 letters, digits, underscores, dashes and dots");
      const Json* parameters = function.any("parameters");
      tools.push_back({name, parameters != nullptr ? *parameters : Json{{"type", "object"}}});
      function.pass_over({"description", "strict"});
      function.refuse_others();
      tool.refuse_others();
    }
  }
  request.one_call = fields.flag("parallel_tool_calls") == false;
  const Json* choice = fields.any("tool_choice");
  const bool none = choice != nullptr && *choice == "none";
  if (none) return;
  if (choice != nullptr && *choice != "auto") {
    request.must_call = true;
    if (tools.empty()) fields.fail("tool_choice", "needs tools");
    if (choice->is_object()) {
      const std::string name = chosen_function(*choice);
      std::erase_if(tools, [&](const Tool& tool) { return tool.name != name; });
      if (tools.empty()) fields.fail("tool_choice", "names no tool of the request");
    } else if (*choice != "required") {
      fields.fail("tool_choice", "must be none, auto, required or a function");
    }
    if (request.schema) fields.fail("tool_choice", "asks for a call, and response_format for text");
  }
  if (offered != nullptr && !tools.empty()) request.conversation.tools = *offered;
  request.tools = std::move(tools);
}

}  // namespace canopy::server
