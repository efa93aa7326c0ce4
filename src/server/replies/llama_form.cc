#include "src/base/json_text.h"
#include "src/server/replies/descriptions.h"
#include "src/server/replies/reply_form.h"

namespace canopy::server {

using nlohmann::json;

namespace {

const std::vector<TokenId>& prompt_of(const Answer& answer, std::size_t choice) {
  return answer.prompts[choice / static_cast<std::size_t>(answer.request.choices)];
}

json base(const Answer& answer, std::size_t choice, const JobUpdate::Choice& of,
          const Tokenizer& tokenizer) {
  json out{{"index", choice},
           {"content", of.text},
           {"tokens", answer.request.return_tokens ? json(of.tokens) : json::array()},
           {"stop", false},
           {"id_slot", -1},
           {"tokens_predicted", answer.texts[choice].tokens.size()},
           {"tokens_evaluated", prompt_of(answer, choice).size()}};
  if (answer.request.logprobs && !of.logprobs.empty()) {
    std::size_t offset = 0;
    out["completion_probabilities"] = logprobs_json(Api::kChat, of, tokenizer, offset)["content"];
  }
  return out;
}

json settings_json(const CompletionRequest& request) {
  json out = params_json(request.sampling, request.edits);
  const int most = request.most_tokens.value_or(-1);
  out.update({{"n_predict", most},
              {"max_tokens", most},
              {"seed", request.seed ? json(*request.seed) : json(-1)},
              {"stop", request.stops},
              {"ignore_eos", request.ignore_end},
              {"stream", request.stream},
              {"n_probs", request.logprobs.value_or(0)},
              {"timings_per_token", request.timings_per_token}});
  return out;
}

const char* stop_type(const JobUpdate::Choice& ended) {
  if (ended.finish_reason == "length") return "limit";
  return ended.stopping_word.empty() ? "eos" : "word";
}

json end_json(const Answer& answer, std::size_t choice, const Tokenizer& tokenizer,
              double link_bytes_per_second) {
  const JobUpdate::Choice& ended = answer.texts[choice];
  json out = base(answer, choice, answer.request.stream ? JobUpdate::Choice() : ended, tokenizer);
  const auto prompt = static_cast<int>(prompt_of(answer, choice).size());
  const Usage usage{.prompt_tokens = prompt,
                    .cached_tokens = ended.cached_tokens,
                    .completion_tokens = static_cast<int>(ended.tokens.size())};
  out.update({{"stop", true},
              {"model", answer.head.model},
              {"generation_settings", settings_json(answer.request)},
              {"prompt", tokenizer.decode(prompt_of(answer, choice), AddSpecial::kYes)},
              {"has_new_line", ended.text.find('\n') != std::string::npos},
              {"truncated", false},
              {"stop_type", stop_type(ended)},
              {"stopping_word", ended.stopping_word},
              {"tokens_cached", ended.cached_tokens},
              {"timings", timings_json(ended, usage, link_bytes_per_second)}});
  if (!answer.request.warnings.empty()) out["warnings"] = answer.request.warnings;
  return out;
}

/// Texts of /completion.
class LlamaForm final : public ReplyForm {
 public:
  LlamaForm(const Answer& answer, const ServedModel& model) : ReplyForm(answer), model_(model) {}

  std::string whole() const override {
    json replies = json::array();
    for (std::size_t i = 0; i < answer_.texts.size(); ++i)
      replies.push_back(end_json(answer_, i, tokenizer(), link_rate()));
    return json_text(replies.size() == 1 ? replies[0] : replies);
  }

  std::string first() override { return {}; }
  std::string last() override { return {}; }

  std::string more(const JobUpdate& update,
                   const std::vector<std::vector<ToolCall>>& /*new_calls*/) override {
    std::string out;
    for (std::size_t i = 0; i < update.choices.size(); ++i) {
      const JobUpdate::Choice& added = update.choices[i];
      if (!added.text.empty() || !added.logprobs.empty()) {
        json piece = base(answer_, i, added, tokenizer());
        if (answer_.request.timings_per_token)
          piece["timings"] = timings_json(answer_.texts[i], answer_.usage(), link_rate());
        out += event(piece);
      }
      if (!added.finish_reason.empty())
        out += event(end_json(answer_, i, tokenizer(), link_rate()));
    }
    return out;
  }

 protected:
  json empty_chunk() const override { return base(answer_, 0, JobUpdate::Choice(), tokenizer()); }

 private:
  const Tokenizer& tokenizer() const { return model_.tokenizer(); }
  double link_rate() const { return model_.scheduler.link_rate(); }

  const ServedModel& model_;
};

}  // namespace

std::unique_ptr<ReplyForm> llama_form(const Answer& answer, const ServedModel& model) {
  return std::make_unique<LlamaForm>(answer, model);
}

}  // namespace canopy::server
