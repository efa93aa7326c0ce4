#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/chat/chat_prompt.h"
#include "src/grammar/token_mask.h"
#include "src/server/http/server.h"
#include "src/server/replies/answer.h"
#include "src/server/replies/api_error.h"
#include "src/server/replies/reply_form.h"
#include "src/server/resumable.h"
#include "src/server/served_model.h"
#include "src/server/stored_responses.h"

namespace canopy::server {

/// Answers requests for texts. Any thread.
class Completions {
 public:
  /// Both must outlive it.
  Completions(ServedModel& model, const ServiceOptions& options)
      : model_(model), options_(options) {}

  /// Replies, whole or in pieces. Throws ApiError, Busy.
  void complete(http::Exchange& exchange, Api api, RequestRecord& record);
  /// Replies with the number of tokens of the prompt that a text of Anthropic's API would have.
  /// Throws ApiError.
  void count(http::Exchange& exchange);
  /// Goes on with a stream that was asked for with `resume`, after the event that the client names
  /// by Last-Event-ID. Throws ApiError.
  void resume(http::Exchange& exchange, const std::string& id);
  /// Replies with a response that is stored, or, to DELETE, drops it. Throws ApiError 404.
  void stored_response(http::Exchange& exchange, const std::string& id);
  /// Renders a chat request by the model's template. Throws ApiError.
  chat::Prompt render(const CompletionRequest& request) const;

 private:
  CompletionRequest read(const nlohmann::ordered_json& body, Api api) const;
  /// Reads the prompts. Nothing is on its way yet.
  Answer prepare(const CompletionRequest& request, Api api);
  void submit(Answer& answer);
  JobRequest job_of(Answer& answer);
  [[noreturn]] void refuse_length(std::size_t tokens, const char* param) const;
  /// Refuses a text that has too many tokens whatever they are: before they take any memory.
  void check_length(const std::string& text, const char* param) const;
  void prepare_calls(Answer& answer) const;
  bool separates_reasoning(const CompletionRequest& request) const;
  /// The request's least length as a mask; null: nothing needs one.
  std::shared_ptr<const TokenConstraint> least_length(const CompletionRequest& request) const;
  /// The request's schema, call or least length as a mask; null: nothing is asked for.
  std::shared_ptr<const TokenConstraint> constraint_of(const CompletionRequest& request);
  void reply_whole(http::Exchange& exchange, Answer& answer, RequestRecord& record);
  void reply_in_pieces(http::Exchange& exchange, Answer& answer, RequestRecord& record);
  /// True if the time is over and no token has come.
  bool too_late(const Answer& answer) const;
  ApiError timeout_error() const;
  ApiError failure(const std::string& why) const;  // of a text
  void remember(const Answer& answer);
  /// Keeps an answer that has ended, if it is a response that is to be stored.
  void store(const Answer& answer, const ReplyForm& form);

  ServedModel& model_;
  const ServiceOptions& options_;
  ResumableStreams streams_;
  StoredResponses responses_;
  std::mutex mutex_;  // of what follows
  chat::AnswerMemory answers_;
  std::shared_ptr<const grammar::VocabularyTrie> vocabulary_;  // once somebody needs it
  /// The masks that were used last, the newest first, by what was asked for.
  std::list<std::pair<std::string, std::shared_ptr<const TokenConstraint>>> constraints_;
};

}  // namespace canopy::server
