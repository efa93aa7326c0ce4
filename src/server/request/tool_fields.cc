#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
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

/// The arguments of a call in the history, as templates take them: an object. Clients send them as
/// JSON in a string; for a function without parameters as "", null or nothing.
Json arguments_of(const Json& function, const std::string& place) {
  const auto refuse = [&](const std::string& what) -> Json {
    throw ApiError(400, in_quotes(place) + " " + what, place);
  };
  const auto given = function.find("arguments");
  Json arguments = given == function.end() ? Json() : *given;
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
    try {
      arguments = parse_ordered_json(text, LargeIntegers::kKept);
    } catch (const Error& error) {
      return refuse("is not JSON that can be read: " + told(error));
    }
  }
  if (arguments.is_null()) return Json::object();
  if (!arguments.is_object()) return refuse("must be a JSON object");
  return arguments;
}

void read_arguments(Json& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (!message.contains("tool_calls")) continue;
    const std::string list = "messages[" + std::to_string(i) + "].tool_calls";
    if (!message["tool_calls"].is_array())
      throw ApiError(400, in_quotes(list) + " must be a list", list);
    for (std::size_t k = 0; k < message["tool_calls"].size(); ++k) {
      Json& call = message["tool_calls"][k];
      const std::string place = list + "[" + std::to_string(k) + "].function";
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
        throw ApiError(400, in_quotes(place) + " must be an object", place);
      Json& function = call["function"];
      function["arguments"] = arguments_of(function, place + ".arguments");
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
  read_arguments(request.conversation.messages);
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
