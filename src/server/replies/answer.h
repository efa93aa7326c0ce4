#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/chat_prompt.h"
#include "src/chat/reasoning.h"
#include "src/server/replies/replies.h"
#include "src/server/request/completion_request.h"
#include "src/server/request_record.h"

namespace canopy::server {

/// A job on its way, and all that its replies are made of. One thread.
struct Answer {
  CompletionRequest request;
  ReplyHead head;
  std::shared_ptr<Job> job;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> before;  // echoed text, by choice
  std::optional<chat::Prompt> prompt;
  std::vector<JobUpdate::Choice> texts;  // all there is of each choice, without its calls
  std::vector<std::vector<ToolCall>> calls;
  std::vector<int> begun_calls;                  // by choice: reported or not
  std::vector<ToolCallReader> readers;           // one for each choice, where there are tools
  std::vector<chat::ReasoningReader> reasoners;  // one for each choice, where it is separated
  std::vector<char> answers;                     // by choice: set once its reasoning is over
  std::optional<TokenId> calls_begin;            // the token
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();

  /// Adds what is new, and changes it into what the client gets: text without what calls were.
  void take(JobUpdate& update, std::vector<std::vector<ToolCall>>& new_calls);
  Usage usage() const;
  /// Adds to a request's record.
  void describe(RequestRecord& record) const;

 private:
  void find_reasoning(std::size_t choice, JobUpdate::Choice& more);
  void find_calls(std::size_t choice, JobUpdate::Choice& more, std::vector<ToolCall>& found_calls);
};

}  // namespace canopy::server
