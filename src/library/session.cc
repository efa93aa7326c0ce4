#include "src/engine/session.h"

#include <utility>

#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/library/model_impl.h"
#include "src/measure/measurement_cache.h"
#include "src/text/stop_strings.h"

namespace canopy::api {

struct Session::Impl {
  explicit Impl(std::shared_ptr<Model::Impl> opened) : model(std::move(opened)) {
    if (model->in_session.exchange(true))
      throw Error("this model has a session already: end that one, or admit to it");
    session.emplace(model->engine.open_session());
  }
  ~Impl() {
    if (model->learns) keep_what_was_learned();
    session.reset();
    model->in_session = false;
  }

  void keep_what_was_learned() noexcept {
    const auto on_note = [&](const std::string& note) { add_note(model->notes, note); };
    try {
      keep_routes(model->engine);
      keep_acceptance({model->engine.models(), model->planned_for, model->asked},
                      session->learned(), on_note);
    } catch (const Error& e) {
      on_note(std::string("what texts have shown is not kept for later plans: ") + e.what());
    }
  }

  std::shared_ptr<Model::Impl> model;
  std::optional<canopy::Session> session;
};

namespace {

canopy::Request engine_request(const Request& request, const ModelFiles& models) {
  require(request.temperature >= 0, "Request::temperature: must be at least 0");
  require(request.top_k >= 0, "Request::top_k: must be at least 0");
  require(request.top_p > 0 && request.top_p <= 1, "Request::top_p: must be above 0 and at most 1");
  require(request.min_p >= 0 && request.min_p <= 1, "Request::min_p: must be from 0 to 1");
  require(request.typical_p > 0 && request.typical_p <= 1,
          "Request::typical_p: must be above 0 and at most 1");
  require(request.max_new_tokens >= 0, "Request::max_new_tokens: must be at least 0");
  require(
      request.max_new_tokens > 0 || request.prompt_logprobs,
      "Request::max_new_tokens: is 0, and the prompt is not to be scored: nothing is asked for");
  require(request.logprobs >= 0, "Request::logprobs: must be at least 0");
  require(request.prompt_logprobs.value_or(0) >= 0, "Request::prompt_logprobs: must be at least 0");
  require(request.prompt.empty() || request.tokens.empty(),
          "Request: give the prompt as text or as tokens, not both");
  canopy::Request asked;
  asked.prompt = request.tokens.empty() ? models.tokenizer->encode(request.prompt, AddSpecial::kYes)
                                        : request.tokens;
  const int vocab = models.target.config().vocab;
  for (const TokenId token : asked.prompt)
    if (token < 0 || token >= vocab)
      throw Error("Request: token " + std::to_string(token) + " is outside the vocabulary of " +
                  std::to_string(vocab));
  asked.sampling = {request.temperature, request.top_k, request.top_p, request.min_p,
                    request.typical_p};
  asked.edits.repetition = request.repetition_penalty;
  asked.edits.presence = request.presence_penalty;
  asked.edits.frequency = request.frequency_penalty;
  asked.edits.bias = request.logit_bias;
  asked.logprobs = request.logprobs;
  asked.prompt_logprobs = request.prompt_logprobs;
  asked.reproducible = request.seed.has_value();
  asked.seed = request.seed ? *request.seed : any_seed();
  asked.max_new_tokens = request.max_new_tokens;
  asked.ignore_end = request.ignore_end;
  return asked;
}

/// A maker of text from a request's tokens, for as long as the engine reports them.
class Teller {
 public:
  Teller(const Tokenizer& tokenizer, const Request& request, Events events)
      : shown_(tokenizer, request.stop), events_(std::move(events)) {}

  /// False: a stop string has ended the text.
  bool take(TokenId token) {
    tell(shown_.push(token));
    return !shown_.stopped();
  }
  void end(const TextReport& report) {
    tell(shown_.end(report.finish_reason != "stop"));
    if (!events_.on_end) return;
    events_.on_end({std::move(text_), report.tokens, logprobs(report.logprobs),
                    logprobs(report.prompt_logprobs), report.cached_tokens, report.finish_reason,
                    report.steps, report.step_ends.back()});
  }
  void fail(const std::string& what) {
    if (events_.on_error) events_.on_error(what);
  }

 private:
  void tell(const std::string& piece) {
    text_ += piece;
    if (events_.on_text && !piece.empty()) events_.on_text(piece);
  }
  static std::vector<TokenLogprobs> logprobs(std::span<const TokenReport> reports) {
    std::vector<TokenLogprobs> told;
    for (const TokenReport& token : reports) {
      TokenLogprobs& one = told.emplace_back();
      one.chosen = {token.chosen.token, token.chosen.logprob};
      for (const canopy::TokenLogprob& other : token.top)
        one.top.push_back({other.token, other.logprob});
    }
    return told;
  }

  ShownText shown_;
  Events events_;
  std::string text_;
};

}  // namespace

Session::Session(const Model& model) : impl_(std::make_unique<Impl>(model.impl_)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Ticket Session::admit(const Request& request, Events events) {
  const ModelFiles& models = impl_->model->engine.models();
  const auto teller = std::make_shared<Teller>(*models.tokenizer, request, std::move(events));
  RequestEvents told;
  told.on_token = [teller](TokenId token, const TokenReport*) { return teller->take(token); };
  told.on_end = [teller](const TextReport& report) { teller->end(report); };
  told.on_error = [teller](const std::string& what) { teller->fail(what); };
  return impl_->session->admit(engine_request(request, models), std::move(told));
}

void Session::cancel(Ticket ticket) { impl_->session->cancel(ticket); }

bool Session::step(std::stop_token stop) {
  try {
    return impl_->session->step(std::move(stop));
  } catch (const Stopped&) {
    return false;
  }
}

void Session::run(std::stop_token stop) {
  while (step(stop)) {
  }
}

}  // namespace canopy::api
