#include "src/server/request/completion_request.h"

#include <utility>

#include "src/server/request/chat_fields.h"
#include "src/server/request/fields.h"
#include "src/server/request/other_fields.h"
#include "src/server/request/sampling_fields.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostLogprobs = 20;

void read_common(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  read_sampling(fields, defaults, request);
  for (const char* name :
       {"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens", "num_predict"})
    if (const auto most = fields.integer(name, -1, kMostTokens)) {
      if (*most == 0 && !request.echo)
        fields.fail(name, "must be at least 1; with echo it can be 0, in a completion");
      if (*most >= 0) request.most_tokens = *most;
    }
  request.choices = fields.integer("n", 1, defaults.most_choices).value_or(1);
  request.stops = read_stops(fields, {"stop", "stopping_strings", "stop_sequence"});
  request.stream = fields.flag("stream").value_or(false);
  if (const Json* options = fields.any("stream_options")) {
    if (!request.stream) fields.fail("stream_options", "is for streams: set stream to true");
    Fields of_stream(*options, "stream_options.");
    request.include_usage = of_stream.flag("include_usage").value_or(false);
    request.usage_in_chunks = of_stream.flag("continuous_usage_stats").value_or(false);
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
    request.warnings.emplace_back(
        "'cache_prompt' is not followed: what is remembered changes no text");
  if (const auto best = fields.integer("best_of", 1, defaults.most_choices);
      best && *best != request.choices)
    fields.fail("best_of", "is not supported with another n");
  // Fields of use to a service that knows its users.
  fields.pass_over({"user", "metadata", "store", "safety_identifier", "prompt_cache_key",
                    "prompt_cache_retention"});
  if (const auto tier = fields.text("service_tier"); tier && *tier != "auto" && *tier != "default")
    request.warnings.emplace_back("'service_tier' is not followed: there is one");
}

/// Reads what is left, after all members that a route has of its own.
void read_rest(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
  read_ends(fields, defaults, request);
  read_others(fields, request);
  fields.refuse_others();
}

void read_prompts(Fields& fields, const Defaults& defaults, CompletionRequest& request) {
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
}

void check_choices(const Fields& fields, const Defaults& defaults,
                   const CompletionRequest& request) {
  if (std::ssize(request.prompts) * request.choices > defaults.most_choices)
    fields.fail("prompt",
                "asks for more than " + std::to_string(defaults.most_choices) + " texts at once");
}

}  // namespace

static void read_reasoning(Fields& fields, CompletionRequest& request) {
  if (const auto format = fields.text("reasoning_format")) {
    if (*format == "none")
      request.reasoning = ReasoningFormat::kInText;
    else if (*format != "auto" && *format != "deepseek")
      fields.fail("reasoning_format", "must be \"auto\", \"deepseek\" or \"none\"");
  }
  if (fields.flag("include_reasoning") == false) request.reasoning = ReasoningFormat::kLeftOut;
}

static void read_continuation(Fields& fields, chat::Conversation& conversation) {
  const char* const name = "continue_final_message";
  if (!fields.flag(name).value_or(false)) return;
  if (conversation.add_generation_prompt)
    fields.fail(name, "needs add_generation_prompt: false, which would begin another message");
  const Json& last = conversation.messages.back();
  if (last["role"] != "assistant" || !last.contains("content") || !last["content"].is_string() ||
      last.contains("tool_calls"))
    fields.fail(name, "needs a last message of the assistant that is a text, without calls");
  conversation.continue_final_message = true;
}

CompletionRequest read_chat_request(const Json& body, const Defaults& defaults) {
  Fields fields(body);
  CompletionRequest request;
  read_messages(fields, request);
  read_reasoning(fields, request);
  read_common(fields, defaults, request);
  const bool wanted = fields.flag("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, kMostLogprobs)) {
    if (!wanted && *top > 0) fields.fail("top_logprobs", "needs logprobs: true");
    if (wanted) request.logprobs = *top;
  } else if (wanted) {
    request.logprobs = 0;
  }
  read_variables(fields, request);
  if (const auto effort = fields.text("reasoning_effort")) {
    Json& variables = request.conversation.variables;
    if (!variables.contains("reasoning_effort")) variables["reasoning_effort"] = *effort;
  }
  if (fields.flag("echo").value_or(false)) fields.fail("echo", "is not supported in a chat");
  if (fields.flag("add_special_tokens").value_or(false))
    fields.fail("add_special_tokens", "can be false alone: they are the template's");
  request.conversation.add_generation_prompt = fields.flag("add_generation_prompt").value_or(true);
  read_continuation(fields, request.conversation);
  read_format(fields, request);
  read_tools(fields, request);
  if (const auto modalities = fields.any("modalities"); modalities && *modalities != Json{"text"})
    fields.fail("modalities", "can be [\"text\"] alone");
  read_rest(fields, defaults, request);
  return request;
}

CompletionRequest read_text_request(const Json& body, const Defaults& defaults) {
  Fields fields(body);
  CompletionRequest request;
  read_prompts(fields, defaults, request);
  request.echo = fields.flag("echo").value_or(false);
  read_common(fields, defaults, request);
  check_choices(fields, defaults, request);
  if (const auto top = fields.integer("logprobs", 0, kMostLogprobs)) request.logprobs = *top;
  if (!fields.flag("add_special_tokens").value_or(true))
    fields.fail("add_special_tokens", "can be true alone");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.fail("suffix", "is not supported");
  read_rest(fields, defaults, request);
  return request;
}

CompletionRequest read_llama_request(const Json& body, const Defaults& defaults) {
  Fields fields(body);
  CompletionRequest request;
  read_prompts(fields, defaults, request);
  if (const auto top = fields.integer("n_probs", 0, kMostLogprobs); top && *top > 0)
    request.logprobs = *top;
  request.return_tokens = fields.flag("return_tokens").value_or(false);
  if (const Json* schema = fields.any("json_schema"); schema != nullptr && !schema->empty())
    request.schema = *schema, request.schema_member = "json_schema";
  read_common(fields, defaults, request);
  check_choices(fields, defaults, request);
  read_rest(fields, defaults, request);
  return request;
}

}  // namespace canopy::server
