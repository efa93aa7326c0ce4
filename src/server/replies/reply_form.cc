#include "src/server/replies/reply_form.h"

#include <chrono>
#include <utility>

namespace canopy::server {

using nlohmann::json;

std::string ReplyForm::progress(const JobUpdate& update) {
  const std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now() - answer_.begun;
  json chunk = empty_chunk();
  chunk["prompt_progress"] = {{"total", answer_.prompts.front().size()},
                              {"cache", update.cached_tokens},
                              {"processed", update.prompt_read},
                              {"time_ms", time.count()}};
  return written(chunk);
}

std::unique_ptr<ReplyForm> form_of(const Answer& answer, const ServedModel& model) {
  switch (answer.head.api) {
    case Api::kLlama:
      return llama_form(answer, model);
    case Api::kAnthropic:
      return anthropic_form(answer);
    case Api::kResponses:
      return responses_form(answer);
    case Api::kChat:
    case Api::kText:
      break;
  }
  return openai_form(answer, model);
}

}  // namespace canopy::server
