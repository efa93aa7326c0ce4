#pragma once
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/chat_prompt.h"
#include "src/grammar/token_mask.h"
#include "src/server/completion_request.h"
#include "src/server/http/server.h"
#include "src/server/replies.h"
#include "src/server/scheduler.h"

namespace canopy::server {

struct ServiceOptions {
  std::string model_name;
  Defaults defaults;
  std::vector<std::string> keys;               // none: everybody may ask
  std::vector<std::string> origins;            // of pages that may ask; "*": any
  bool loopback = true;                        // only this machine can connect
  std::chrono::milliseconds ping{5000};        // between comments in a stream that is silent
  std::chrono::milliseconds data_ping{25000};  // between chunks: some clients count them alone
  int context = 0;
};

/// The routes. Before ready() it answers that the model is loading.
class Service {
 public:
  explicit Service(ServiceOptions options) : options_(std::move(options)) {}

  /// What is asked from now on is answered by these, which must outlive all calls of handle().
  void ready(Engine& engine, Scheduler& scheduler, Metrics& metrics,
             std::optional<chat::ChatTemplate> chat_template, std::string why_no_chat);
  /// Replies to one request. Any thread; throws nothing.
  void handle(http::Exchange& exchange);
  /// The body of an error.
  static std::string error_body(int status, const std::string& message);

 private:
  struct Model {
    Engine& engine;
    Scheduler& scheduler;
    Metrics& metrics;
    std::optional<chat::ChatTemplate> chat_template;
    std::string why_no_chat;
    std::optional<ToolForm> tool_form;
    const Tokenizer& tokenizer() const { return *engine.models().tokenizer; }
  };
  /// A job on its way, and all that its replies are made of.
  struct Answer;

  void route(http::Exchange& exchange);
  void check_access(http::Exchange& exchange) const;
  Model& model();  // throws ApiError 503
  void complete(http::Exchange& exchange, bool chat);
  Answer begin(const CompletionRequest& request, bool chat);
  void reply_whole(http::Exchange& exchange, Answer& answer);
  void reply_in_pieces(http::Exchange& exchange, Answer& answer);
  void remember(const Answer& answer);
  chat::Prompt render(const CompletionRequest& request);
  void prepare_calls(Answer& answer);
  /// The request's schema, or call, as a mask; null: nothing is asked for.
  std::shared_ptr<const TokenConstraint> constraint_of(const CompletionRequest& request);

  nlohmann::json models_json();
  nlohmann::json props_json();
  nlohmann::json slots_json();
  nlohmann::json state_json();
  std::string metrics_text();

  const ServiceOptions options_;
  mutable std::mutex mutex_;  // of what follows
  std::optional<Model> model_;
  chat::AnswerMemory answers_;
  std::shared_ptr<const grammar::VocabularyTrie> vocabulary_;  // once somebody needs it
  /// The masks that were used last, the newest first, by what was asked for.
  std::list<std::pair<std::string, std::shared_ptr<const TokenConstraint>>> constraints_;
};

}  // namespace canopy::server
