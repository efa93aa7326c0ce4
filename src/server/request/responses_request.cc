#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/server/request/chat_fields.h"
#include "src/server/request/response_items.h"
#include "src/server/request/sampling_fields.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const Json* value) { return value == nullptr ? Json() : *value; }

/// The items of the conversation that a request goes on with.
Json read_history(Fields& fields, const StoredResponses& stored) {
  const auto previous = fields.text("previous_response_id");
  if (!previous) return Json::array();
  const auto found = stored.find(*previous);
  if (!found)
    throw ApiError(400, stored.why_none(*previous), "previous_response_id",
                   {{"code", "previous_response_not_found"}});
  return parse_ordered_json(found->items, LargeIntegers::kKept);
}

/// `reasoning`, for templates that have an effort or a switch.
void read_reasoning(Fields& fields, CompletionRequest& request) {
  Json& repeated = request.response->repeated["reasoning"];
  repeated = {{"effort", nullptr}, {"summary", nullptr}};
  const Json* reasoning = fields.any("reasoning");
  if (reasoning == nullptr) return;
  Fields of(*reasoning, "reasoning.");
  if (const auto effort = of.text("effort")) {
    Json& variables = request.conversation.variables;
    if (*effort == "none")
      for (const char* name : {"enable_thinking", "thinking"}) variables[name] = false;
    else
      variables["reasoning_effort"] = *effort;
    repeated["effort"] = *effort;
  }
  for (const char* name : {"summary", "generate_summary"})
    if (of.text(name))
      request.warnings.push_back(std::string("'reasoning.").append(name) +
                                 "' is not followed: reasoning is given in full");
  of.refuse_others();
}

/// `text`: a schema for it.
void read_text(Fields& fields, CompletionRequest& request) {
  Json& repeated = request.response->repeated["text"];
  repeated = {{"format", {{"type", "text"}}}};
  const Json* text = fields.any("text");
  if (text == nullptr) return;
  Fields of(*text, "text.");
  if (of.text("verbosity"))
    request.warnings.emplace_back("'text.verbosity' is not followed: no template has it");
  if (const Json* format = of.any("format")) {
    repeated["format"] = *format;
    Fields of_format(*format, "text.format.");
    const std::string type = of_format.text("type").value_or("");
    if (type == "json_object") {
      request.schema = Json{{"type", "object"}};
      request.schema_member = "text.format";
    } else if (type == "json_schema") {
      const Json* schema = of_format.any("schema");
      if (schema == nullptr) of_format.fail("schema", "is missing");
      request.schema = *schema;
      request.schema_member = "text.format.schema";
      of_format.pass_over({"name", "description", "strict"});
    } else if (type != "text") {
      of_format.fail("type", "must be text, json_object or json_schema");
    }
    of_format.refuse_others();
  }
  of.refuse_others();
}

/// A tool as templates take it.
Json read_tool(Fields& tool, ToolOffer& offer, CompletionRequest& request) {
  constexpr std::size_t kLongestName = 128;
  if (const std::string type = tool.text("type").value_or(""); type != "function")
    tool.fail("type", "is " + in_quotes(type) +
                          ": this server has no tools of its own, and calls functions alone");
  const std::string name = tool.text("name").value_or("");
  if (!is_tool_name(name, kLongestName))
    tool.fail("name", "must be 1 to 128 letters, digits, underscores, dashes and dots");
  Json function{{"name", name}};
  if (const auto description = tool.text("description")) function["description"] = *description;
  const Json* parameters = tool.any("parameters");
  if (parameters != nullptr) function["parameters"] = *parameters;
  offer.tools.push_back({name, parameters != nullptr ? *parameters : Json{{"type", "object"}}});
  if (tool.flag("defer_loading").value_or(false))
    request.warnings.emplace_back("'defer_loading' is not followed: all tools are in the prompt");
  tool.pass_over({"strict", "output_schema", "allowed_callers"});
  tool.refuse_others();
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_choice(Fields& fields, const Json& choice, ToolOffer& offer) {
  using Choice = ToolOffer::Choice;
  if (choice.is_object()) {
    Fields of(choice, "tool_choice.");
    if (const std::string type = of.text("type").value_or(""); type != "function")
      of.fail("type", "is " + in_quotes(type) + ": only a function can be chosen");
    offer.choice = Choice::kOne;
    offer.one = of.text("name").value_or("");
    of.refuse_others();
  } else if (choice == "none") {
    offer.choice = Choice::kNone;
  } else if (choice == "required") {
    offer.choice = Choice::kAny;
  } else if (choice != "auto") {
    fields.fail("tool_choice", "must be none, auto, required or a function");
  }
}

void read_offer(Fields& fields, CompletionRequest& request) {
  Json& repeated = request.response->repeated;
  ToolOffer offer;
  offer.described = Json::array();
  repeated["tools"] = Json::array();
  if (const Json* tools = fields.any("tools")) {
    check_tool_count(fields, *tools);
    repeated["tools"] = *tools;
    for (std::size_t i = 0; i < tools->size(); ++i) {
      Fields tool((*tools)[i], "tools[" + std::to_string(i) + "].");
      offer.described.push_back(read_tool(tool, offer, request));
    }
  }
  const Json* choice = fields.any("tool_choice");
  if (choice != nullptr) read_choice(fields, *choice, offer);
  repeated["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  request.one_call = fields.flag("parallel_tool_calls") == false;
  repeated["parallel_tool_calls"] = !request.one_call;
  offer_tools(fields, std::move(offer), request);
}

/// `include`: more that the reply shall have. What is of tools that this server has not is nowhere.
void read_include(Fields& fields, CompletionRequest& request) {
  static constexpr std::array<std::string_view, 6> kNowhere{
      "file_search_call.results",       "web_search_call.results",
      "web_search_call.action.sources", "computer_call_output.output.image_url",
      "message.input_image.image_url",  "code_interpreter_call.outputs"};
  if (fields.integer("top_logprobs", 0, 20).value_or(0) > 0)
    fields.fail("top_logprobs", "can be 0 alone: /v1/chat/completions has log probabilities");
  const Json* include = fields.any("include");
  if (include == nullptr) return;
  if (!include->is_array()) fields.fail("include", "must be a list");
  for (const Json& one : *include) {
    if (one == "reasoning.encrypted_content")
      request.response->seals_reasoning = true;
    else if (!one.is_string() || std::find(kNowhere.begin(), kNowhere.end(),
                                           one.get_ref<const std::string&>()) == kNowhere.end())
      fields.fail("include", "has " + exact_json_text(one) +
                                 ", which this server does not have here: only "
                                 "reasoning.encrypted_content");
  }
}

/// Members about a service: those that change no text, and hints that are not followed.
void read_service(Fields& fields, CompletionRequest& request) {
  Json& repeated = request.response->repeated;
  for (const char* name : {"metadata", "user", "safety_identifier", "prompt_cache_key"})
    repeated[name] = or_null(fields.any(name));
  if (repeated["metadata"].is_null()) repeated["metadata"] = Json::object();
  repeated["service_tier"] = "default";
  repeated["truncation"] = "disabled";
  repeated["background"] = false;
  fields.pass_over({"max_tool_calls", "prompt_cache_retention", "prompt_cache_options"});
  if (fields.flag("background").value_or(false))
    fields.fail("background", "can be false alone: a stream with 'resume' goes on without you");
  const auto hint = [&](const char* name, const char* why) {
    request.warnings.push_back(std::string("'").append(name) + "' is not followed: " + why);
  };
  if (const auto truncation = fields.text("truncation")) {
    if (*truncation == "auto")
      hint("truncation", "no part of a prompt is dropped");
    else if (*truncation != "disabled")
      fields.fail("truncation", "must be auto or disabled");
  }
  if (fields.any("context_management") != nullptr)
    hint("context_management", "no part of a prompt is dropped");
  if (const auto tier = fields.text("service_tier"); tier && *tier != "auto" && *tier != "default")
    hint("service_tier", "there is one");
}

void read_stream(Fields& fields, CompletionRequest& request) {
  request.stream = fields.flag("stream").value_or(false);
  request.resume = fields.flag("resume").value_or(false);
  if (request.resume && !request.stream)
    fields.fail("resume", "is for streams: set stream to true");
  const Json* options = fields.any("stream_options");
  if (options == nullptr) return;
  if (!request.stream) fields.fail("stream_options", "is for streams: set stream to true");
  Fields of(*options, "stream_options.");
  of.pass_over({"include_obfuscation"});
  of.refuse_others();
}

}  // namespace

CompletionRequest read_responses_request(const Json& body, const Defaults& defaults,
                                         const StoredResponses& stored) {
  Fields fields(body);
  CompletionRequest request;
  Json& repeated = request.response.emplace().repeated;
  request.model = fields.text("model");
  const Json history = read_history(fields, stored);
  read_input(fields, history, request);
  for (const char* name :
       {"instructions", "previous_response_id", "max_output_tokens", "temperature", "top_p"})
    repeated[name] = or_null(fields.any(name));
  read_variables(fields, request);
  read_reasoning(fields, request);
  read_text(fields, request);
  read_offer(fields, request);
  read_sampling(fields, defaults, request);
  request.most_tokens = fields.integer("max_output_tokens", 1, kMostTokens);
  request.response->stored = fields.flag("store").value_or(true);
  repeated["store"] = request.response->stored;
  read_include(fields, request);
  read_stream(fields, request);
  read_service(fields, request);
  fields.refuse_others();
  return request;
}

}  // namespace canopy::server
