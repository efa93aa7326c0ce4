#include "src/server/completion_request.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/fields.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostStops = 16;
constexpr int kMostLogprobs = 20;
constexpr double kMostTemperature = 100;
constexpr int kMostTokens = 10'000'000;
constexpr std::size_t kMostBiases = 4096;

TokenId token_of(const Json& value, const std::string& name, int vocab, const Fields& fields) {
  if (!value.is_number_integer()) fields.fail(name, "must hold token ids");
  const std::optional<TokenId> id = integer_in<TokenId>(value);
  if (!id || *id < 0 || *id >= vocab)
    fields.fail(
        name, "has token " + value.dump() + ", outside the vocabulary of " + std::to_string(vocab));
  return *id;
}

/// {"50256": -100}, or [[50256, -100]] with false for "never".
std::vector<std::pair<TokenId, float>> read_biases(Fields& fields, int vocab) {
  const char* const name = "logit_bias";
  std::vector<std::pair<TokenId, float>> biases;
  const Json* value = fields.any(name);
  if (value == nullptr) return biases;
  if (!value->is_structured()) fields.fail(name, "must be an object of token ids and numbers");
  if (value->size() > kMostBiases)
    fields.fail(name, "has more than " + std::to_string(kMostBiases) + " entries");
  const auto add = [&](const Json& id, const Json& bias) {
    const TokenId token = token_of(id, name, vocab, fields);
    if (bias.is_boolean() && !bias.get<bool>())
      return biases.emplace_back(token, -std::numeric_limits<float>::infinity());
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 1e6))
      fields.fail(name, "has a bias that is not a number");
    return biases.emplace_back(token, bias.get<float>());
  };
  if (value->is_array()) {
    for (const Json& pair : *value) {
      if (!pair.is_array() || pair.size() != 2) fields.fail(name, "has an entry that is no pair");
      add(pair[0], pair[1]);
    }
    return biases;
  }
  for (const auto& [key, bias] : value->items()) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      fields.fail(name, "has a key that is no token id");
    add(id, bias);
  }
  return biases;
}

std::vector<std::string> read_stops(Fields& fields) {
  std::vector<std::string> stops;
  const Json* value = fields.any("stop");
  if (value == nullptr) return stops;
  const auto add = [&](const Json& one) {
    if (!one.is_string()) fields.fail("stop", "must be a string or a list of strings");
    if (one.get_ref<const std::string&>().empty()) fields.fail("stop", "is empty");
    stops.push_back(one);
  };
  if (value->is_array())
    for (const Json& one : *value) add(one);
  else
    add(*value);
  if (stops.size() > kMostStops)
    fields.fail("stop", "has more than " + std::to_string(kMostStops) + " strings");
  return stops;
}

void read_sampling(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  const auto set = [&](const char* name, double least, double most, float& value) {
    if (const auto given = fields.number(name, least, most)) value = static_cast<float>(*given);
  };
  Sampling& sampling = request.sampling = defaults.sampling;
  LogitEditing& edits = request.edits = defaults.edits;
  set("temperature", 0, kMostTemperature, sampling.temperature);
  set("top_p", 0, 1, sampling.top_p);
  if (sampling.top_p == 0) fields.fail("top_p", "must be above 0");
  set("min_p", 0, 1, sampling.min_p);
  set("typical_p", 0, 1, sampling.typical_p);
  if (sampling.typical_p == 0) fields.fail("typical_p", "must be above 0");
  if (const auto k = fields.integer("top_k", -1, std::numeric_limits<int>::max()))
    sampling.top_k = std::max(*k, 0);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    set(name, 0.01, 100, edits.repetition);
  set("presence_penalty", -2, 2, edits.presence);
  set("frequency_penalty", -2, 2, edits.frequency);
  const auto biases = read_biases(fields, defaults.vocab);
  edits.bias.insert(edits.bias.end(), biases.begin(), biases.end());
  if (const auto seed = fields.whole("seed")) request.seed = static_cast<std::uint64_t>(*seed);
  request.ignore_end = fields.flag("ignore_eos").value_or(false);
}

void read_common(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  read_sampling(fields, defaults, request);
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})
    if (const auto most = fields.integer(name, -1, kMostTokens)) {
      if (*most == 0) fields.fail(name, "must be at least 1");
      if (*most > 0) request.most_tokens = *most;
    }
  request.choices = fields.integer("n", 1, defaults.most_choices).value_or(1);
  request.stops = read_stops(fields);
  request.stream = fields.flag("stream").value_or(false);
  if (const Json* options = fields.any("stream_options")) {
    if (!request.stream) fields.fail("stream_options", "is for streams: set stream to true");
    Fields of_stream(*options, "stream_options.");
    request.include_usage = of_stream.flag("include_usage").value_or(false);
    of_stream.pass_over({"include_obfuscation"});
    of_stream.refuse_others();
  }
  request.return_progress = fields.flag("return_progress").value_or(false);
  if (request.return_progress && !request.stream)
    fields.fail("return_progress", "is for streams: set stream to true");
  request.timings_per_token = fields.flag("timings_per_token").value_or(false);
  request.resume = fields.flag("resume").value_or(false);
  if (request.resume && !request.stream)
    fields.fail("resume", "is for streams: set stream to true");
  request.model = fields.text("model");
  if (fields.flag("cache_prompt") == false)
    fields.fail("cache_prompt", "cannot be switched off: what is remembered changes no text");
  if (const auto best = fields.integer("best_of", 1, defaults.most_choices);
      best && *best != request.choices)
    fields.fail("best_of", "is not supported beside another n");
  // What only tells a service about its user.
  fields.pass_over({"user", "metadata", "store", "safety_identifier", "prompt_cache_key",
                    "prompt_cache_retention"});
  if (const auto tier = fields.text("service_tier"); tier && *tier != "auto" && *tier != "default")
    fields.fail("service_tier", "can be auto alone");
}

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
  // Most templates take a string alone; parts are its pieces.
  for (Json& message : request.conversation.messages) {
    if (!message.contains("content") || !message["content"].is_array()) continue;
    std::string text;
    for (const Json& part : message["content"]) text += part["text"].get_ref<const std::string&>();
    message["content"] = text;
  }
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

}  // namespace

CompletionRequest read_chat_request(const Json& body, const Defaults& defaults) {
  Fields fields(body);
  CompletionRequest request;
  read_messages(fields, request);
  read_common(fields, defaults, request);
  const bool wanted = fields.flag("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, kMostLogprobs)) {
    if (!wanted && *top > 0) fields.fail("top_logprobs", "needs logprobs: true");
    if (wanted) request.logprobs = *top;
  } else if (wanted) {
    request.logprobs = 0;
  }
  if (const Json* variables = fields.any("chat_template_kwargs")) {
    if (!variables->is_object()) fields.fail("chat_template_kwargs", "must be an object");
    request.conversation.variables = *variables;
  }
  request.conversation.add_generation_prompt = fields.flag("add_generation_prompt").value_or(true);
  read_format(fields, request);
  read_tools(fields, request);
  if (const auto modalities = fields.any("modalities"); modalities && *modalities != Json{"text"})
    fields.fail("modalities", "can be [\"text\"] alone");
  fields.refuse_others();
  return request;
}

CompletionRequest read_text_request(const Json& body, const Defaults& defaults) {
  Fields fields(body);
  CompletionRequest request;
  const Json* prompt = fields.any("prompt");
  if (prompt == nullptr) fields.fail("prompt", "is missing");
  const auto tokens_of = [&](const Json& list) {
    std::vector<TokenId> tokens;
    for (const Json& id : list) tokens.push_back(token_of(id, "prompt", defaults.vocab, fields));
    return tokens;
  };
  const auto is_tokens = [](const Json& list) {
    return list.is_array() && !list.empty() && list[0].is_number();
  };
  const auto add = [&](const Json& one) {
    if (one.is_string())
      request.prompts.emplace_back(one.get<std::string>());
    else if (is_tokens(one))
      request.prompts.emplace_back(tokens_of(one));
    else
      fields.fail("prompt", "must be a string, a list of token ids, or a list of these");
  };
  if (prompt->is_array() && !is_tokens(*prompt))
    for (const Json& one : *prompt) add(one);
  else
    add(*prompt);
  if (request.prompts.empty()) fields.fail("prompt", "is an empty list");
  read_common(fields, defaults, request);
  if (std::ssize(request.prompts) * request.choices > defaults.most_choices)
    fields.fail("prompt",
                "asks for more than " + std::to_string(defaults.most_choices) + " texts at once");
  if (const auto top = fields.integer("logprobs", 0, kMostLogprobs)) request.logprobs = *top;
  request.echo = fields.flag("echo").value_or(false);
  if (request.echo && request.logprobs)
    fields.fail("echo", "is not supported with logprobs: a prompt's are not computed");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.fail("suffix", "is not supported");
  fields.refuse_others();
  return request;
}

}  // namespace canopy::server
