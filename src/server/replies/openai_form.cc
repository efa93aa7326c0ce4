#include <utility>

#include "src/base/json_text.h"
#include "src/server/replies/reply_form.h"

namespace canopy::server {

using nlohmann::json;

namespace {

/// Chats and completions.
class OpenAiForm final : public ReplyForm {
 public:
  OpenAiForm(const Answer& answer, const ServedModel& model) : ReplyForm(answer), model_(model) {}

  std::string whole() const override {
    std::vector<JobUpdate::Choice> texts = answer_.texts;
    for (std::size_t i = 0; i < texts.size(); ++i)
      texts[i].text = answer_.before[i] + texts[i].text;
    json reply = reply_json(answer_.head, texts, answer_.calls,
                            answer_.request.logprobs.has_value(), tokenizer());
    reply["usage"] = usage_json(answer_.usage());
    reply["timings"] = timings_json(texts.front(), answer_.usage(), link_rate());
    if (!answer_.request.warnings.empty()) reply["warnings"] = answer_.request.warnings;
    return json_text(reply);
  }

  std::string first() override {
    std::string out;
    for (std::size_t i = 0; i < answer_.texts.size(); ++i) {
      // An echo with log probabilities comes when the prompt has been read.
      const std::string before = answer_.request.scores_prompts() ? "" : answer_.before[i];
      const json delta =
          is_chat() ? json{{"role", "assistant"}, {"content", nullptr}} : json{{"content", before}};
      const bool warns = i == 0 && !answer_.request.warnings.empty();
      if (!is_chat() && before.empty() && !warns) continue;
      json chunk = chunk_json(answer_.head, static_cast<int>(i), delta, nullptr);
      if (warns) chunk["warnings"] = answer_.request.warnings;
      out += event(chunk);
    }
    return out;
  }

  std::string more(const JobUpdate& update,
                   const std::vector<std::vector<ToolCall>>& new_calls) override {
    const ReplyHead& head = answer_.head;
    std::string out;
    const auto send = [&](json chunk) {
      if (answer_.request.usage_in_chunks) chunk["usage"] = usage_json(answer_.usage());
      out += event(chunk);
    };
    offsets_.resize(answer_.texts.size());
    for (std::size_t i = 0; i < update.choices.size(); ++i) {
      const JobUpdate::Choice& added = update.choices[i];
      const int index = static_cast<int>(i);
      if (!added.reasoning.empty())
        send(chunk_json(head, index, reasoning_json(added.reasoning), nullptr));
      const std::string text = (added.prompt ? answer_.before[i] : "") + added.text;
      const bool reports = added.prompt || !added.logprobs.empty();
      if (!text.empty() || reports) {
        json chunk =
            chunk_json(head, index, {{"content", text}}, nullptr,
                       reports ? logprobs_json(head.api, added, tokenizer(), offsets_[i]) : json());
        if (answer_.request.timings_per_token)
          chunk["timings"] = timings_json(answer_.texts[i], answer_.usage(), link_rate());
        send(std::move(chunk));
      }
      if (const std::vector<ToolCall>& calls = new_calls[i]; !calls.empty()) {
        const json pieces = call_pieces_json(calls, answer_.calls[i].size());
        send(chunk_json(head, index, {{"tool_calls", pieces}}, nullptr));
      }
      if (!added.finish_reason.empty())
        send(chunk_json(head, index, json::object(), added.finish_reason));
    }
    return out;
  }

  std::string last() override {
    std::string out;
    if (answer_.request.include_usage) {
      json chunk = empty_chunk_json(answer_.head);
      chunk["usage"] = usage_json(answer_.usage());
      chunk["timings"] = timings_json(answer_.texts.front(), answer_.usage(), link_rate());
      out += event(chunk);
    }
    return out + "data: [DONE]\n\n";
  }

 protected:
  json empty_chunk() const override { return chunk_json(answer_.head, 0, json::object(), nullptr); }

 private:
  bool is_chat() const { return answer_.head.api == Api::kChat; }
  const Tokenizer& tokenizer() const { return model_.tokenizer(); }
  double link_rate() const { return model_.scheduler.link_rate(); }

  const ServedModel& model_;
  std::vector<std::size_t> offsets_;  // of the next token reported with logprobs, by choice
};

}  // namespace

std::unique_ptr<ReplyForm> openai_form(const Answer& answer, const ServedModel& model) {
  return std::make_unique<OpenAiForm>(answer, model);
}

}  // namespace canopy::server
