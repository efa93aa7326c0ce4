#include <algorithm>
#include <utility>

#include "src/base/json.h"
#include "src/server/replies/reply_form.h"
#include "src/server/request/response_items.h"

namespace canopy::server {

using nlohmann::json;
using Json = nlohmann::ordered_json;

namespace {

/// An item of a response's output.
struct Item {
  enum class Kind : std::uint8_t { kNone, kReasoning, kMessage, kCall } kind = Kind::kNone;
  std::string text;  // of a call: its arguments
  std::string name, call_id;
};

/// The id of an item, by its place in the output and the response's id.
std::string id_of(const Item& item, const ReplyHead& head, std::size_t index) {
  const char* const prefix = item.kind == Item::Kind::kReasoning ? "rs_"
                             : item.kind == Item::Kind::kMessage ? "msg_"
                                                                 : "fc_";
  return prefix + head.id.substr(head.id.find('_') + 1) + "_" + std::to_string(index);
}

Json part_of(const Item& item) {
  if (item.kind == Item::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

/// An item as it is now: without a text it has just begun.
Json item_json(const Item& item, const Answer& answer, std::size_t index, const char* status) {
  Json out{{"id", id_of(item, answer.head, index)}};
  if (item.kind == Item::Kind::kCall) {
    out.update({{"type", "function_call"},
                {"status", status},
                {"call_id", item.call_id},
                {"name", item.name},
                {"arguments", item.text}});
    return out;
  }
  if (item.kind == Item::Kind::kReasoning)
    out.update({{"type", "reasoning"}, {"status", status}, {"summary", Json::array()}});
  else
    out.update({{"type", "message"}, {"status", status}, {"role", "assistant"}});
  out["content"] = Json::array();
  if (item.text.empty()) return out;
  out["content"].push_back(part_of(item));
  const ResponseTerms& terms = *answer.request.response;
  if (item.kind == Item::Kind::kReasoning && terms.seals_reasoning)
    out["encrypted_content"] = sealed_reasoning(item.text);
  return out;
}

bool is_cut_off(const Answer& answer) { return answer.texts.front().finish_reason == "length"; }

Json usage_of(const Answer& answer) {
  const Usage usage = answer.usage();
  const JobUpdate::Choice& text = answer.texts.front();
  return {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details",
       {{"reasoning_tokens", text.reasoning.empty() ? 0 : text.reasoning_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

/// The response without its output.
Json response_json(const Answer& answer, const char* status) {
  Json out{
      {"id", answer.head.id},       {"object", "response"},    {"created_at", answer.head.created},
      {"status", status},           {"error", nullptr},        {"incomplete_details", nullptr},
      {"model", answer.head.model}, {"output", Json::array()}, {"usage", nullptr}};
  out.update(answer.request.response->repeated);
  if (!answer.request.warnings.empty()) out["warnings"] = answer.request.warnings;
  return out;
}

Json ended_json(const Answer& answer) {
  Json out = response_json(answer, is_cut_off(answer) ? "incomplete" : "completed");
  if (is_cut_off(answer)) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["output"] = response_output(answer);
  out["usage"] = usage_of(answer);
  return out;
}

/// Responses. A text has one choice, and its items come one after the other.
class ResponsesForm final : public ReplyForm {
 public:
  using ReplyForm::ReplyForm;

  std::string whole() const override { return exact_json_text(ended_json(answer_)); }

  std::string first() override {
    std::string out =
        send({{"type", "response.created"}, {"response", response_json(answer_, kRuns)}});
    out += idle();  // after it: events have numbers
    return out;
  }

  std::string more(const JobUpdate& update,
                   const std::vector<std::vector<ToolCall>>& new_calls) override {
    const JobUpdate::Choice& added = update.choices.front();
    const std::string& text = answer_.texts.front().text;
    std::string out;
    add(Item::Kind::kReasoning, added.reasoning, out);
    std::size_t from = text.size() - added.text.size();
    const auto say = [&](std::size_t to) {
      if (to > from) add(Item::Kind::kMessage, text.substr(from, to - from), out);
      from = std::max(from, to);
    };
    for (const ToolCall& call : new_calls.front()) {
      if (!call.name.empty()) {  // the first piece of it
        say(call.at);
        begin({Item::Kind::kCall, "", call.name, call.id}, out);
      }
      add(Item::Kind::kCall, call.arguments, out);
    }
    say(text.size());
    if (!added.finish_reason.empty()) end(is_cut_off(answer_) ? "incomplete" : "completed", out);
    return out;
  }

  std::string last() override {
    return send({{"type", is_cut_off(answer_) ? "response.incomplete" : "response.completed"},
                 {"response", ended_json(answer_)}});
  }

 protected:
  // It says what clients know already.
  json empty_chunk() const override {
    return {{"type", "response.in_progress"}, {"response", response_json(answer_, kRuns)}};
  }
  json error_json(const ApiError& why) const override {
    Json response = response_json(answer_, "failed");
    response["error"] = {{"code", "server_error"}, {"message", why.message}};
    return {{"type", "response.failed"}, {"response", std::move(response)}};
  }
  std::string written(const json& chunk) override { return send(chunk); }

 private:
  static constexpr const char* kRuns = "in_progress";

  /// Writes an event with the next number.
  std::string send(Json data) {
    data["sequence_number"] = sequence_++;
    return "event: " + data["type"].get<std::string>() + "\ndata: " + exact_json_text(data) +
           "\n\n";
  }

  /// Writes an event about the item that is open.
  std::string of_item(const char* type, Json more) {
    Json data{
        {"type", type}, {"item_id", id_of(open_, answer_.head, index_)}, {"output_index", index_}};
    if (open_.kind != Item::Kind::kCall) data["content_index"] = 0;
    data.update(more);
    return send(std::move(data));
  }

  void begin(Item item, std::string& out) {
    end("completed", out);
    open_ = std::move(item);
    out += send({{"type", "response.output_item.added"},
                 {"output_index", index_},
                 {"item", item_json(open_, answer_, index_, kRuns)}});
    if (open_.kind != Item::Kind::kCall)
      out += of_item("response.content_part.added", {{"part", part_of(open_)}});
  }

  /// Adds to the item that is open, if it is of this kind; else to a new one.
  void add(Item::Kind kind, const std::string& text, std::string& out) {
    if (text.empty()) return;
    if (open_.kind != kind) begin({kind, "", "", ""}, out);
    open_.text += text;
    Json delta{{"delta", text}};
    if (kind == Item::Kind::kMessage) delta["logprobs"] = Json::array();
    out += of_item((event_name() + ".delta").c_str(), std::move(delta));
  }

  /// Ends the item that is open, if one is.
  void end(const char* status, std::string& out) {
    if (open_.kind == Item::Kind::kNone) return;
    Json done{{open_.kind == Item::Kind::kCall ? "arguments" : "text", open_.text}};
    if (open_.kind == Item::Kind::kCall) done["name"] = open_.name;
    if (open_.kind == Item::Kind::kMessage) done["logprobs"] = Json::array();
    out += of_item((event_name() + ".done").c_str(), std::move(done));
    if (open_.kind != Item::Kind::kCall)
      out += of_item("response.content_part.done", {{"part", part_of(open_)}});
    out += send({{"type", "response.output_item.done"},
                 {"output_index", index_},
                 {"item", item_json(open_, answer_, index_, status)}});
    open_ = {};
    ++index_;
  }

  std::string event_name() const {
    return open_.kind == Item::Kind::kReasoning ? "response.reasoning_text"
           : open_.kind == Item::Kind::kMessage ? "response.output_text"
                                                : "response.function_call_arguments";
  }

  Item open_;
  std::size_t index_ = 0;  // of the item that is open, or comes next
  int sequence_ = 0;       // of the next event
};

}  // namespace

Json response_output(const Answer& answer) {
  const JobUpdate::Choice& text = answer.texts.front();
  std::vector<Item> items;
  if (!text.reasoning.empty()) items.push_back({Item::Kind::kReasoning, text.reasoning, "", ""});
  std::size_t from = 0;
  const auto say = [&](std::size_t to) {
    if (to > from)
      items.push_back({Item::Kind::kMessage, text.text.substr(from, to - from), "", ""});
    from = std::max(from, to);
  };
  for (const ToolCall& call : answer.calls.front()) {
    say(call.at);
    items.push_back({Item::Kind::kCall, call.arguments, call.name, call.id});
  }
  say(text.text.size());
  Json out = Json::array();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool cut = is_cut_off(answer) && i + 1 == items.size();
    out.push_back(item_json(items[i], answer, i, cut ? "incomplete" : "completed"));
  }
  return out;
}

std::unique_ptr<ReplyForm> responses_form(const Answer& answer) {
  return std::make_unique<ResponsesForm>(answer);
}

}  // namespace canopy::server
