#include "src/server/replies/answer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace canopy::server {

void Answer::take(JobUpdate& update, std::vector<std::vector<ToolCall>>& new_calls) {
  new_calls.assign(texts.size(), {});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    JobUpdate::Choice& more = update.choices[i];
    JobUpdate::Choice& text = texts[i];
    if (!reasoners.empty()) find_reasoning(i, more);
    if (!readers.empty()) find_calls(i, more, new_calls[i]);
    if (more.prompt) text.prompt = more.prompt;
    text.reasoning += more.reasoning;
    text.reasoning_tokens += more.reasoning_tokens;
    text.text += more.text;
    text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
    text.logprobs.insert(text.logprobs.end(), more.logprobs.begin(), more.logprobs.end());
    if (more.finish_reason.empty()) continue;
    text.finish_reason = more.finish_reason;
    text.stopping_word = more.stopping_word;
    text.sweeps = more.sweeps;
    text.drafted = more.drafted;
    text.accepted = more.accepted;
    text.first_sweep = more.first_sweep;
    text.time = more.time;
    text.cached_tokens = more.cached_tokens;
    text.known_tokens = more.known_tokens;
  }
}

void Answer::find_reasoning(std::size_t choice, JobUpdate::Choice& more) {
  const std::string written = std::exchange(more.text, {});
  answers.resize(texts.size());
  char& answering = answers[choice];
  const auto add = [&](chat::ReasoningReader::Found found) {
    if (request.reasoning == ReasoningFormat::kSeparate) more.reasoning += found.reasoning;
    more.text += found.text;
    if (!found.text.empty()) answering = 1;
  };
  std::size_t from = 0;
  for (const std::size_t end : more.ends) {
    add(reasoners[choice].push(std::string_view(written).substr(from, end - from)));
    from = end;
    if (answering == 0) ++more.reasoning_tokens;
  }
  add(reasoners[choice].push(std::string_view(written).substr(from)));
  if (!more.finish_reason.empty()) add(reasoners[choice].end());
}

void Answer::find_calls(std::size_t choice, JobUpdate::Choice& more,
                        std::vector<ToolCall>& found_calls) {
  const bool begin = calls_begin && std::find(more.tokens.begin(), more.tokens.end(),
                                              *calls_begin) != more.tokens.end();
  const auto add = [&](ToolCallReader::Found found) {
    found_calls.insert(found_calls.end(), found.calls.begin(), found.calls.end());
    return std::move(found.text);
  };
  more.text = add(readers[choice].push(more.text, begin));
  const bool ended = !more.finish_reason.empty();
  if (ended) more.text += add(readers[choice].end());
  std::vector<ToolCall>& all = calls[choice];
  for (std::size_t i = 0; i < found_calls.size(); ++i) {
    const ToolCall& one = found_calls[i];
    if (!one.name.empty()) ++begun_calls[choice];
    if (request.one_call && begun_calls[choice] > 1) {
      found_calls.resize(i);
      break;
    }
    if (one.name.empty())
      all.back().arguments += one.arguments;
    else
      all.push_back(one);
  }
  if (ended && !all.empty() && more.finish_reason == "stop") more.finish_reason = "tool_calls";
}

Usage Answer::usage() const {
  Usage all;
  for (const auto& tokens : prompts) all.prompt_tokens += static_cast<int>(tokens.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    all.completion_tokens += static_cast<int>(texts[i].tokens.size());
    if (i % static_cast<std::size_t>(request.choices) == 0)
      all.cached_tokens += texts[i].cached_tokens;
  }
  return all;
}

void Answer::describe(RequestRecord& record) const {
  const Usage all = usage();
  const JobUpdate::Choice& first = texts.front();
  record.texts = true;
  record.prompt_tokens = all.prompt_tokens;
  record.completion_tokens = all.completion_tokens;
  record.cached_tokens = all.cached_tokens;
  const auto tokens = static_cast<double>(first.tokens.size());
  if (first.sweeps > 0) record.tokens_per_sweep = tokens / first.sweeps;
  if (tokens > 1)
    record.seconds_per_token = (first.time - first.first_sweep).count() / (tokens - 1);
  for (const JobUpdate::Choice& text : texts) {
    if (!record.finish.empty()) record.finish += ',';
    record.finish += text.finish_reason.empty() ? "cancelled" : text.finish_reason;
  }
}

}  // namespace canopy::server
