#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/server/replies/reply_form.h"

namespace canopy::server {

using nlohmann::json;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kSignature = "canopy";  // no server checks it here

json usage_of(const Answer& answer) {
  const Usage usage = answer.usage();
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", usage.completion_tokens}};
}

/// The reason for which a text ended, and the stop string, if that is it.
json stop_of(const JobUpdate::Choice& ended) {
  const bool by_word = ended.finish_reason == "stop" && !ended.stopping_word.empty();
  const char* const reason = ended.finish_reason == "tool_calls" ? "tool_use"
                             : ended.finish_reason == "length"   ? "max_tokens"
                             : by_word                           ? "stop_sequence"
                                                                 : "end_turn";
  return {{"stop_reason", reason}, {"stop_sequence", by_word ? json(ended.stopping_word) : json()}};
}

json thinking_block(const std::string& thinking, const char* signature) {
  return {{"type", "thinking"}, {"thinking", thinking}, {"signature", signature}};
}

json text_block(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

/// A call whose input is still to come.
json call_block(const ToolCall& call) {
  return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", json::object()}};
}

/// Arguments as an object, with the digits and the order that they have; nothing if they were cut
/// off, or are no JSON that is read here.
std::optional<Json> input_of(const std::string& arguments) {
  try {
    Json input = parse_ordered_json(arguments, LargeIntegers::kKept);
    if (input.is_object()) return input;
  } catch (const Error&) {
  }
  return std::nullopt;
}

/// Messages. A text has one choice, and its blocks come one after the other.
class AnthropicForm final : public ReplyForm {
 public:
  using ReplyForm::ReplyForm;

  std::string whole() const override {
    const JobUpdate::Choice& text = answer_.texts.front();
    Json reply = message();
    reply.update(Json(stop_of(text)));
    Json& content = reply["content"];
    if (!text.reasoning.empty()) content.emplace_back(thinking_block(text.reasoning, kSignature));
    std::size_t from = 0;
    const auto say = [&](std::size_t to) {
      if (to > from) content.emplace_back(text_block(text.text.substr(from, to - from)));
      from = to;
    };
    std::vector<std::string> unread;
    for (const ToolCall& call : answer_.calls.front()) {
      say(call.at);
      content.emplace_back(call_block(call));
      if (std::optional<Json> input = input_of(call.arguments))
        content.back()["input"] = *std::move(input);
      else
        unread.push_back("the input of " + call.id + " is no JSON object: " + call.arguments);
    }
    say(text.text.size());
    for (std::string& warning : unread) reply["warnings"].push_back(std::move(warning));
    return exact_json_text(reply);
  }

  std::string first() override {
    return written({{"type", "message_start"}, {"message", message()}}) + idle();
  }

  std::string more(const JobUpdate& update,
                   const std::vector<std::vector<ToolCall>>& new_calls) override {
    const JobUpdate::Choice& added = update.choices.front();
    const std::string& text = answer_.texts.front().text;
    std::string out;
    if (!added.reasoning.empty()) {
      if (open_ != Block::kThinking) begin(Block::kThinking, thinking_block("", ""), out);
      add({{"type", "thinking_delta"}, {"thinking", added.reasoning}}, out);
    }
    std::size_t from = text.size() - added.text.size();
    const auto say = [&](std::size_t to) {
      if (to <= from) return;
      if (open_ != Block::kText) begin(Block::kText, text_block(""), out);
      add({{"type", "text_delta"}, {"text", text.substr(from, to - from)}}, out);
      from = to;
    };
    for (const ToolCall& call : new_calls.front()) {
      if (!call.name.empty()) {  // the first piece of it
        say(call.at);
        begin(Block::kCall, call_block(call), out);
      }
      if (!call.arguments.empty())
        add({{"type", "input_json_delta"}, {"partial_json", call.arguments}}, out);
    }
    say(text.size());
    if (!added.finish_reason.empty()) end(out);
    return out;
  }

  std::string last() override {
    return written({{"type", "message_delta"},
                    {"delta", stop_of(answer_.texts.front())},
                    {"usage", usage_of(answer_)}}) +
           written({{"type", "message_stop"}});
  }

 protected:
  json empty_chunk() const override { return {{"type", "ping"}}; }
  json error_json(const ApiError& why) const override { return why.anthropic_body(); }
  std::string written(const json& chunk) override {
    return "event: " + chunk["type"].get<std::string>() + "\n" + event(chunk);
  }

 private:
  enum class Block : std::uint8_t { kNone, kThinking, kText, kCall };

  /// The message, without its content.
  json message() const {
    json out{{"id", answer_.head.id},       {"type", "message"},         {"role", "assistant"},
             {"model", answer_.head.model}, {"content", json::array()},  {"stop_reason", nullptr},
             {"stop_sequence", nullptr},    {"usage", usage_of(answer_)}};
    if (!answer_.request.warnings.empty()) out["warnings"] = answer_.request.warnings;
    return out;
  }

  void begin(Block kind, json block, std::string& out) {
    end(out);
    open_ = kind;
    out += written(
        {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }

  void add(json delta, std::string& out) {
    out +=
        written({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  /// Ends the block that is open, if one is.
  void end(std::string& out) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking)
      add({{"type", "signature_delta"}, {"signature", kSignature}}, out);
    out += written({{"type", "content_block_stop"}, {"index", index_++}});
    open_ = Block::kNone;
  }

  Block open_ = Block::kNone;
  int index_ = 0;  // of the block that is open, or comes next
};

}  // namespace

std::unique_ptr<ReplyForm> anthropic_form(const Answer& answer) {
  return std::make_unique<AnthropicForm>(answer);
}

}  // namespace canopy::server
