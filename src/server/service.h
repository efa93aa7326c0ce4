#pragma once
// Room src/server: the engine over HTTP: routes of OpenAI, llama-server and Anthropic, a page,
// metrics, a log.
// In: requests as JSON. Out: replies and streams; texts of many clients share the sweeps of one
// Session.
// Must not know: flags, the disk, kernels.
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/server/completions.h"
#include "src/server/http/server.h"
#include "src/server/served_model.h"

namespace canopy::server {

/// The routes. Before ready() it answers that the model is loading.
class Service {
 public:
  explicit Service(ServiceOptions options) : options_(std::move(options)) {}

  /// Answers requests from now on with these, which must outlive all calls of handle().
  void ready(Engine& engine, Scheduler& scheduler, Metrics& metrics,
             std::optional<chat::ChatTemplate> chat_template, std::string why_no_chat);
  /// Replies to one request. Any thread; throws nothing.
  void handle(http::Exchange& exchange);
  /// The body of an error, of a request that the HTTP server refused; `path`: "" where it could
  /// not be read.
  std::string refuse(int status, const std::string& message, std::string_view path) const;

 private:
  void route(http::Exchange& exchange, RequestRecord& record);
  void check_access(http::Exchange& exchange) const;
  ServedModel& model();  // throws ApiError 503

  // One for each route.
  void front(http::Exchange& exchange);  // the page
  void health(http::Exchange& exchange);
  void models(http::Exchange& exchange);
  void one_model(http::Exchange& exchange, const std::string& name);  // throws ApiError 404
  void props(http::Exchange& exchange);
  void slots(http::Exchange& exchange);
  void metrics(http::Exchange& exchange);
  void state(http::Exchange& exchange);
  void tokenize(http::Exchange& exchange);
  void detokenize(http::Exchange& exchange);
  void tokenizer_info(http::Exchange& exchange);
  void apply_template(http::Exchange& exchange);
  void count_tokens(http::Exchange& exchange);

  ServiceOptions options_;  // the context is known when the model is there
  std::mutex mutex_;        // until the model is there; then it stays as it is
  std::optional<ServedModel> model_;
  std::optional<Completions> completions_;
};

}  // namespace canopy::server
