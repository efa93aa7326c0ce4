#include <string>
#include <utility>

#include "src/server/request/anthropic_turns.h"
#include "src/server/request/chat_fields.h"
#include "src/server/request/sampling_fields.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

/// The switch of templates for reasoning, by each of its names. Without a word it is off, and what
/// a model reasons nevertheless is left out: clients read the first block as the answer.
void read_thinking(Fields& fields, CompletionRequest& request) {
  bool on = false, shown = true;
  if (const Json* thinking = fields.any("thinking")) {
    Fields of(*thinking, "thinking.");
    const std::string type = of.text("type").value_or("");
    on = type == "enabled" || type == "adaptive";
    if (!on && type != "disabled") of.fail("type", "must be enabled, adaptive or disabled");
    if (of.integer("budget_tokens", 1, kMostTokens))
      request.warnings.emplace_back(
          "'thinking.budget_tokens' is not followed: max_tokens bounds a text with its reasoning");
    if (const auto display = of.text("display")) {
      shown = *display == "summarized";
      if (!shown && *display != "omitted") of.fail("display", "must be summarized or omitted");
    }
    of.refuse_others();
  }
  for (const char* name : {"enable_thinking", "thinking"})
    request.conversation.variables[name] = on;
  request.reasoning = on && shown ? ReasoningFormat::kSeparate : ReasoningFormat::kLeftOut;
}

/// `output_config`: the effort for templates that have one, and a schema.
void read_output(Fields& fields, CompletionRequest& request) {
  const Json* config = fields.any("output_config");
  if (config == nullptr) return;
  Fields of(*config, "output_config.");
  if (const auto effort = of.text("effort"))
    request.conversation.variables["reasoning_effort"] = *effort;
  if (const Json* format = of.any("format")) {
    Fields of_format(*format, "output_config.format.");
    if (of_format.text("type").value_or("") != "json_schema")
      of_format.fail("type", "must be json_schema");
    const Json* schema = of_format.any("schema");
    if (schema == nullptr) of_format.fail("schema", "is missing");
    request.schema = *schema;
    request.schema_member = "output_config.format.schema";
    of_format.refuse_others();
  }
  of.refuse_others();
}

/// Members about a service: those that change no text, and hints that are not followed.
void read_service(Fields& fields, CompletionRequest& request) {
  fields.pass_over({"metadata", "cache_control", "diagnostics"});
  if (const auto tier = fields.text("service_tier");
      tier && *tier != "auto" && *tier != "standard_only")
    fields.fail("service_tier", "must be auto or standard_only");
  const auto hint = [&](const char* name, const char* why) {
    request.warnings.push_back(std::string("'").append(name) + "' is not followed: " + why);
  };
  if (fields.any("context_management") != nullptr)
    hint("context_management", "no part of a prompt is dropped");
  if (fields.any("inference_geo") != nullptr) hint("inference_geo", "there is one place");
  if (const auto speed = fields.text("speed"); speed && *speed != "standard")
    hint("speed", "there is one");
  if (const Json* servers = fields.any("mcp_servers"); servers != nullptr && !servers->empty())
    fields.fail("mcp_servers", "is not supported: this server calls no tools itself");
}

/// A tool as templates take it.
Json read_tool(Fields& tool, ToolOffer& offer, CompletionRequest& request) {
  constexpr std::size_t kLongestName = 128;
  if (const auto type = tool.text("type"); type && *type != "custom")
    tool.fail("type", "is " + *type + ": this server has no tools of its own");
  const std::string name = tool.text("name").value_or("");
  if (!is_tool_name(name, kLongestName))
    tool.fail("name", "must be 1 to 128 letters, digits, underscores, dashes and dots");
  const Json* schema = tool.any("input_schema");
  if (schema == nullptr || !schema->is_object()) tool.fail("input_schema", "must be an object");
  offer.tools.push_back({name, *schema});
  Json function{{"name", name}};
  if (const auto description = tool.text("description")) function["description"] = *description;
  function["parameters"] = *schema;
  if (tool.any("input_examples") != nullptr)
    request.warnings.emplace_back("'input_examples' of tools are left out: no template has them");
  if (tool.flag("defer_loading").value_or(false))
    request.warnings.emplace_back("'defer_loading' is not followed: all tools are in the prompt");
  tool.pass_over({"cache_control", "strict", "eager_input_streaming", "allowed_callers"});
  tool.refuse_others();
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_offer(Fields& fields, CompletionRequest& request) {
  using Choice = ToolOffer::Choice;
  ToolOffer offer;
  offer.described = Json::array();
  if (const Json* tools = fields.any("tools")) {
    check_tool_count(fields, *tools);
    for (std::size_t i = 0; i < tools->size(); ++i) {
      Fields tool((*tools)[i], "tools[" + std::to_string(i) + "].");
      offer.described.push_back(read_tool(tool, offer, request));
    }
  }
  if (const Json* choice = fields.any("tool_choice")) {
    Fields of(*choice, "tool_choice.");
    const std::string type = of.text("type").value_or("");
    const auto name = of.text("name");
    if (type == "any")
      offer.choice = Choice::kAny;
    else if (type == "none")
      offer.choice = Choice::kNone;
    else if (type == "tool")
      offer.choice = Choice::kOne, offer.one = name.value_or("");
    else if (type != "auto")
      of.fail("type", "must be auto, any, tool or none");
    request.one_call = of.flag("disable_parallel_tool_use").value_or(false);
    of.refuse_others();
  }
  offer_tools(fields, std::move(offer), request);
}

}  // namespace

CompletionRequest read_anthropic_request(const Json& body, const Defaults& defaults,
                                         AnthropicAsk ask) {
  Fields fields(body);
  CompletionRequest request;
  request.model = fields.text("model");
  read_turns(fields, request);
  read_thinking(fields, request);
  read_output(fields, request);
  read_offer(fields, request);
  read_sampling(fields, defaults, request);
  request.most_tokens = fields.integer("max_tokens", 1, kMostTokens);
  if (!request.most_tokens && ask == AnthropicAsk::kText) fields.fail("max_tokens", "is missing");
  request.stops = read_stops(fields, {"stop_sequences"});
  request.stream = fields.flag("stream").value_or(false);
  request.resume = fields.flag("resume").value_or(false);
  if (request.resume && !request.stream)
    fields.fail("resume", "is for streams: set stream to true");
  read_service(fields, request);
  fields.refuse_others();
  return request;
}

}  // namespace canopy::server
