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
      function["arguments"] =
          call_arguments(function.value("arguments", Json()), place + ".arguments");
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

Json call_arguments(Json given, const std::string& place) {
  const auto refuse = [&](const std::string& what) -> Json {
    throw ApiError(400, in_quotes(place) + " " + what, place);
  };
  if (given.is_string()) {
    const auto& text = given.get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
    try {
      given = parse_ordered_json(text, LargeIntegers::kKept);
    } catch (const Error& error) {
      return refuse("is not JSON that can be read: " + reported(error));
    }
  }
  if (given.is_null()) return Json::object();
  if (!given.is_object()) return refuse("must be a JSON object");
  return given;
}

bool is_tool_name(const std::string& name, std::size_t longest) {
  return !name.empty() && name.size() <= longest &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

void check_tool_count(const Fields& fields, const Json& tools) {
  constexpr std::size_t kMostTools = 128;
  if (!tools.is_array()) fields.fail("tools", "must be a list");
  if (tools.size() > kMostTools)
    fields.fail("tools", "has more than " + std::to_string(kMostTools) + " entries");
}

void offer_tools(const Fields& fields, ToolOffer offer, CompletionRequest& request) {
  using Choice = ToolOffer::Choice;
  if (offer.choice == Choice::kNone) return;
  if (offer.choice != Choice::kAuto) {
    request.must_call = true;
    if (offer.tools.empty()) fields.fail("tool_choice", "needs tools");
    if (offer.choice == Choice::kOne) {
      std::erase_if(offer.tools, [&](const Tool& tool) { return tool.name != offer.one; });
      if (offer.tools.empty()) fields.fail("tool_choice", "names no tool of the request");
    }
    if (request.schema)
      fields.fail("tool_choice",
                  std::string("asks for a call, and ") + request.schema_member + " for text");
  }
  if (!offer.tools.empty()) request.conversation.tools = std::move(offer.described);
  request.tools = std::move(offer.tools);
}

void read_tools(Fields& fields, CompletionRequest& request) {
  read_arguments(request.conversation.messages);
  constexpr std::size_t kLongestName = 64;
  ToolOffer offer;
  if (const Json* offered = fields.any("tools")) {
    check_tool_count(fields, *offered);
    offer.described = *offered;
    for (std::size_t i = 0; i < offered->size(); ++i) {
      const std::string place = "tools[" + std::to_string(i) + "].";
      Fields tool((*offered)[i], place);
      if (tool.text("type").value_or("") != "function") tool.fail("type", "must be function");
      const Json* described = tool.any("function");
      if (described == nullptr) tool.fail("function", "is missing");
      Fields function(*described, place + "function.");
      const std::string name = function.text("name").value_or("");
      if (!is_tool_name(name, kLongestName))
        function.fail("name", "must be 1 to 64 letters, digits, underscores, dashes and dots");
      const Json* parameters = function.any("parameters");
      offer.tools.push_back({name, parameters != nullptr ? *parameters : Json{{"type", "object"}}});
      function.pass_over({"description", "strict"});
      function.refuse_others();
      tool.refuse_others();
    }
  }
  request.one_call = fields.flag("parallel_tool_calls") == false;
  if (const Json* choice = fields.any("tool_choice")) {
    if (choice->is_object()) {
      offer.choice = ToolOffer::Choice::kOne;
      if (!offer.tools.empty()) offer.one = chosen_function(*choice);
    } else if (*choice == "none") {
      offer.choice = ToolOffer::Choice::kNone;
    } else if (*choice == "required") {
      offer.choice = ToolOffer::Choice::kAny;
    } else if (*choice != "auto") {
      fields.fail("tool_choice", "must be none, auto, required or a function");
    }
  }
  offer_tools(fields, std::move(offer), request);
}

}  // namespace canopy::server
