#include "src/server/completions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/types.h"
#include "src/grammar/schema/json_schema.h"
#include "src/server/model_names.h"
#include "src/server/replies/api_error.h"
#include "src/server/replies/reply_form.h"
#include "src/text/least_length.h"

namespace canopy::server {

using Json = nlohmann::ordered_json;

namespace {

// Between two looks whether a client has gone.
constexpr std::chrono::milliseconds kTick{200};
constexpr std::size_t kConstraints = 16;  // that are remembered, with their masks

std::string any_id(const char* prefix) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(any_seed()));
  return std::string(prefix) + digits.data();
}

/// Beginning of the ids of an API's answers.
const char* id_prefix(Api api) {
  switch (api) {
    case Api::kChat:
      return "chatcmpl-";
    case Api::kAnthropic:
      return "msg_";
    case Api::kResponses:
      return "resp_";
    case Api::kText:
    case Api::kLlama:
      break;
  }
  return "cmpl-";
}

/// The member of a request that its prompt is made of.
const char* prompt_member(Api api) {
  const bool text = api == Api::kText || api == Api::kLlama;
  return text ? "prompt" : api == Api::kResponses ? "input" : "messages";
}

/// Writes down what there is of an answer in the end, however that comes.
class Recording {
 public:
  Recording(const Answer& answer, RequestRecord& record) : answer_(answer), record_(record) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { answer_.describe(record_); }

 private:
  const Answer& answer_;
  RequestRecord& record_;
};

/// The readers of a stream: the client that asked for it and, where it may be resumed, its log.
class Listener {
 public:
  Listener(http::Exchange& exchange, std::shared_ptr<ResumableStream> log,
           const ServiceOptions& options)
      : exchange_(exchange), log_(std::move(log)), options_(options) {
    if (log_) log_->attach();
  }
  ~Listener() {
    if (log_ && here_) log_->detach();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool still_wanted() {
    if (here_ && exchange_.client_gone()) leave();
    return here_ || (log_ && !log_->abandoned(Clock::now()));
  }
  /// Some clients end a stream that has no chunk for long.
  bool wants_chunk() const { return Clock::now() - chunk_sent_ >= options_.data_ping; }
  /// Sends events to both. Without any, sends a comment if the stream was silent for long.
  void tell(const std::string& events) {
    const auto now = Clock::now();
    if (events.empty()) {
      if (here_ && now - sent_ >= options_.ping) {
        if (!exchange_.write(":\n\n")) leave();
        sent_ = now;
      }
      return;
    }
    sent_ = chunk_sent_ = now;
    if (!log_) {
      if (here_ && !exchange_.write(events)) leave();
      return;
    }
    log_->add(events);
    if (!here_) return;
    const ResumableStream::Events numbered = log_->after(seen_, std::chrono::milliseconds(0));
    seen_ = numbered.last;
    if (!exchange_.write(numbered.text)) leave();
  }
  void end() {
    if (log_) log_->end();
    exchange_.end_stream();
  }

 private:
  void leave() {
    here_ = false;
    if (log_) log_->detach();
  }

  http::Exchange& exchange_;
  const std::shared_ptr<ResumableStream> log_;
  const ServiceOptions& options_;
  bool here_ = true;
  std::size_t seen_ = 0;  // events that the client was sent
  Clock::time_point sent_ = Clock::now(), chunk_sent_ = sent_;
};

}  // namespace

chat::Prompt Completions::render(const CompletionRequest& request) const {
  if (!model_.chat_template) throw ApiError(400, model_.why_no_chat);
  try {
    return chat::render_prompt(*model_.chat_template, model_.tokenizer(), request.conversation,
                               local_time());
  } catch (const Error& error) {
    throw ApiError(400, std::string("the chat template: ") + reported(error),
                   request.response ? "input" : "messages");
  }
}

void Completions::prepare_calls(Answer& answer) const {
  if (!model_.tool_form)
    throw ApiError(400,
                   "this model's chat template writes no tool calls, or in a form that this server "
                   "does not know (it knows those of Hermes, Llama 3 and Mistral)",
                   "tools");
  if (*model_.tool_form != ToolForm::kMistral) return;
  const std::vector<TokenId> mark = model_.tokenizer().encode(kMistralCalls, AddSpecial::kNo);
  if (mark.size() != 1)
    throw ApiError(400, std::string("the tokenizer has no token ") + kMistralCalls, "tools");
  answer.calls_begin = mark.front();
  if (answer.request.must_call) answer.prompts.front().push_back(mark.front());
}

bool Completions::separates_reasoning(const CompletionRequest& request) const {
  // A schema, or a call that must be, holds from the first token on: there is no reasoning.
  return model_.reasoning && request.reasoning != ReasoningFormat::kInText && !request.schema &&
         !request.must_call;
}

std::shared_ptr<const TokenConstraint> Completions::least_length(
    const CompletionRequest& request) const {
  if (request.least_tokens == 0) return nullptr;
  std::vector<TokenId> ends = request.stop_tokens;
  for (TokenId token = 0; token < model_.tokenizer().vocab() && !request.ignore_end; ++token)
    if (model_.tokenizer().ends_text(token)) ends.push_back(token);
  if (ends.empty()) return nullptr;
  return std::make_shared<LeastLength>(request.least_tokens, std::move(ends),
                                       options_.defaults.vocab);
}

std::shared_ptr<const TokenConstraint> Completions::constraint_of(
    const CompletionRequest& request) {
  if (!request.schema && !request.must_call) return least_length(request);
  std::string key = request.schema ? exact_json_text(*request.schema) : "";
  if (request.must_call)
    for (const Tool& tool : request.tools)
      key += "\n" + tool.name + exact_json_text(tool.parameters);
  const std::lock_guard lock(mutex_);
  for (auto one = constraints_.begin(); one != constraints_.end(); ++one)
    if (one->first == key) {
      constraints_.splice(constraints_.begin(), constraints_, one);
      return one->second;
    }
  if (!vocabulary_) vocabulary_ = std::make_shared<grammar::VocabularyTrie>(model_.tokenizer());
  try {
    auto wanted = std::make_shared<const grammar::Grammar>(
        request.schema ? grammar::json_grammar(*request.schema)
                       : call_grammar(*model_.tool_form, request.tools));
    constraints_.emplace_front(std::move(key), grammar::constrain(std::move(wanted), vocabulary_));
  } catch (const Error& error) {
    throw ApiError(400, reported(error), request.schema ? request.schema_member : "tools");
  }
  if (constraints_.size() > kConstraints) constraints_.pop_back();
  return constraints_.front().second;
}

void Completions::refuse_length(std::size_t tokens, const char* param) const {
  throw ApiError(400,
                 "the prompt has " + std::to_string(tokens) + " tokens; the context has room for " +
                     std::to_string(options_.context),
                 param,
                 {{"type", "exceed_context_size_error"},
                  {"n_prompt_tokens", tokens},
                  {"n_ctx", options_.context}});
}

void Completions::check_length(const std::string& text, const char* param) const {
  const std::size_t least = text.size() / model_.longest_token;
  if (least >= static_cast<std::size_t>(options_.context)) refuse_length(least, param);
}

JobRequest Completions::job_of(Answer& answer) {
  const CompletionRequest& request = answer.request;
  const std::shared_ptr<const TokenConstraint> constraint = constraint_of(request);
  JobRequest job;
  job.stops = request.stops;
  job.stop_tokens = request.stop_tokens;
  job.least_tokens = request.least_tokens;
  if (options_.timeout) job.deadline = answer.begun + *options_.timeout;
  job.top_logprobs = request.logprobs.value_or(0);
  int least_room = options_.context;
  for (const std::vector<TokenId>& tokens : answer.prompts) {
    if (tokens.empty()) throw ApiError(400, "the prompt has no tokens", "prompt");
    const int room = options_.context - static_cast<int>(tokens.size());
    if (room < 1) refuse_length(tokens.size(), prompt_member(answer.head.api));
    Request one;
    one.prompt = tokens;
    one.sampling = request.sampling;
    one.edits = request.edits;
    one.edits.constraint = constraint;
    one.reproducible = request.seed.has_value();
    one.seed = request.seed ? *request.seed : any_seed();
    one.max_new_tokens =
        std::min({request.most_tokens.value_or(room), options_.most_tokens.value_or(room), room});
    least_room = std::min(least_room, room);
    one.ignore_end = request.ignore_end;
    one.logprobs = request.logprobs ? std::max(1, *request.logprobs) : 0;
    if (request.echo) one.prompt_logprobs = request.logprobs;
    for (int i = 0; i < request.choices; ++i) {
      one.sequence = static_cast<std::uint32_t>(i);
      job.texts.push_back(one);
    }
  }
  if (request.most_tokens.value_or(0) > least_room)
    answer.request.warnings.push_back("the context (-c) has room for a text of " +
                                      std::to_string(least_room) + " tokens, not of " +
                                      std::to_string(*request.most_tokens));
  return job;
}

Answer Completions::prepare(const CompletionRequest& request, Api api) {
  if (request.model) check_model(options_, *request.model);
  Answer answer;
  answer.request = request;
  if (options_.most_tokens && request.most_tokens > options_.most_tokens)
    answer.request.warnings.push_back("a text has " + std::to_string(*options_.most_tokens) +
                                      " tokens at most here (-n)");
  answer.head = {api, any_id(id_prefix(api)), options_.model_name, std::time(nullptr)};
  if (request.prompts.empty()) {
    answer.prompt = render(request);
    check_length(answer.prompt->text, prompt_member(api));
    chat::AnswerMemory::Beginning beginning;
    {
      const std::lock_guard lock(mutex_);
      beginning = answers_.find(*answer.prompt);
    }
    answer.prompts.push_back(
        chat::encode(*answer.prompt, std::move(beginning), model_.tokenizer()));
  }
  if (!request.tools.empty()) prepare_calls(answer);
  for (const auto& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    if (text != nullptr) check_length(*text, "prompt");
    answer.prompts.push_back(text != nullptr ? model_.tokenizer().encode(*text, AddSpecial::kYes)
                                             : std::get<std::vector<TokenId>>(prompt));
  }
  return answer;
}

void Completions::submit(Answer& answer) {
  const CompletionRequest& request = answer.request;
  JobRequest job = job_of(answer);
  if (answer.prompt && separates_reasoning(request)) {
    job.named = chat::special_tokens_of(*model_.reasoning, model_.tokenizer());
    const chat::Conversation& asked = request.conversation;
    const bool open = asked.continue_final_message
                          ? chat::leaves_open(*model_.reasoning,
                                              asked.messages.back()["content"].get<std::string>())
                          : chat::opens_reasoning(*model_.reasoning, answer.prompt->text);
    answer.reasoners.assign(job.texts.size(), chat::ReasoningReader(*model_.reasoning, open));
  }
  for (const std::vector<TokenId>& tokens : answer.prompts)
    answer.before.insert(answer.before.end(), static_cast<std::size_t>(request.choices),
                         request.echo ? model_.tokenizer().decode(tokens, AddSpecial::kNo) : "");
  answer.texts.resize(job.texts.size());
  answer.calls.resize(job.texts.size());
  answer.begun_calls.resize(job.texts.size());
  if (!request.tools.empty())
    answer.readers.assign(
        job.texts.size(),
        ToolCallReader(*model_.tool_form, request.tools, request.must_call,
                       request.stream ? TellCalls::kAsWritten : TellCalls::kWhole));
  answer.job = model_.scheduler.submit(job);
}

CompletionRequest Completions::read(const Json& body, Api api) const {
  switch (api) {
    case Api::kText:
      return read_text_request(body, options_.defaults);
    case Api::kLlama:
      return read_llama_request(body, options_.defaults);
    case Api::kAnthropic:
      return read_anthropic_request(body, options_.defaults, AnthropicAsk::kText);
    case Api::kResponses:
      return read_responses_request(body, options_.defaults, responses_);
    case Api::kChat:
      break;
  }
  return read_chat_request(body, options_.defaults);
}

void Completions::complete(http::Exchange& exchange, Api api, RequestRecord& record) {
  const Json body = parse_body(exchange.request());
  Answer answer = prepare(read(body, api), api);
  submit(answer);
  if (answer.request.stream)
    reply_in_pieces(exchange, answer, record);
  else
    reply_whole(exchange, answer, record);
}

void Completions::count(http::Exchange& exchange) {
  const CompletionRequest request = read_anthropic_request(parse_body(exchange.request()),
                                                           options_.defaults, AnthropicAsk::kCount);
  const Answer answer = prepare(request, Api::kAnthropic);
  const Json counted{{"input_tokens", answer.usage().prompt_tokens}};
  exchange.reply(200, kJson, json_text(counted));
}

bool Completions::too_late(const Answer& answer) const {
  return options_.timeout && Clock::now() - answer.begun >= *options_.timeout &&
         std::all_of(answer.texts.begin(), answer.texts.end(),
                     [](const JobUpdate::Choice& text) { return text.tokens.empty(); });
}

ApiError Completions::timeout_error() const {
  return {503, "no token came within the " + std::to_string(options_.timeout->count()) +
                   " seconds that a text has here (--timeout)"};
}

ApiError Completions::failure(const std::string& why) const {
  return {model_.scheduler.broken() ? 503 : 500, reported(why)};
}

void Completions::remember(const Answer& answer) {
  if (!answer.prompt) return;
  const std::lock_guard lock(mutex_);
  for (const JobUpdate::Choice& text : answer.texts)
    answers_.remember(*answer.prompt, answer.prompts.front(), text.tokens, model_.tokenizer());
}

void Completions::store(const Answer& answer, const ReplyForm& form) {
  if (!answer.request.response || !answer.request.response->stored) return;
  Json items = answer.request.response->items;
  for (Json& item : response_output(answer)) items.push_back(std::move(item));
  responses_.add(answer.head.id, {form.whole(), exact_json_text(items)});
}

void Completions::reply_whole(http::Exchange& exchange, Answer& answer, RequestRecord& record) {
  std::vector<std::vector<ToolCall>> new_calls;
  const Recording recording(answer, record);
  while (true) {
    std::optional<JobUpdate> update = answer.job->take(kTick);
    if (exchange.client_gone()) return model_.scheduler.cancel(*answer.job);
    if (!update && too_late(answer)) {
      model_.scheduler.cancel(*answer.job);
      throw timeout_error();
    }
    if (!update) continue;
    answer.take(*update, new_calls);
    if (!update->error.empty()) throw failure(update->error);
    if (update->ended) break;
  }
  remember(answer);
  const std::unique_ptr<ReplyForm> form = form_of(answer, model_);
  store(answer, *form);
  exchange.reply(200, kJson, form->whole());
}

void Completions::reply_in_pieces(http::Exchange& exchange, Answer& answer, RequestRecord& record) {
  const Recording recording(answer, record);
  exchange.add_header("Cache-Control", "no-cache");
  exchange.add_header("X-Accel-Buffering", "no");
  exchange.begin_stream("text/event-stream");
  const std::shared_ptr<ResumableStream> log =
      answer.request.resume ? streams_.add(answer.head.id) : nullptr;
  Listener listener(exchange, log, options_);
  const std::unique_ptr<ReplyForm> form = form_of(answer, model_);
  std::string out = form->first();
  int prompt_told = -1;
  bool ended = false;
  std::vector<std::vector<ToolCall>> new_calls;
  while (!ended) {
    std::optional<JobUpdate> update = answer.job->take(out.empty() ? kTick : kTick * 0);
    if (!listener.still_wanted()) return model_.scheduler.cancel(*answer.job);
    std::optional<ApiError> error;
    if (!update && too_late(answer)) {
      model_.scheduler.cancel(*answer.job);
      error = timeout_error();
    }
    if (update) {
      answer.take(*update, new_calls);
      ended = update->ended;
      if (answer.request.return_progress && update->prompt_read > prompt_told) {
        prompt_told = update->prompt_read;
        out += form->progress(*update);
      }
      out += form->more(*update, new_calls);
      if (!update->error.empty()) error = failure(update->error);
    }
    if (error) {
      record.reason = error->message;
      listener.tell(out + form->error(*error));
      return listener.end();
    }
    if (out.empty() && listener.wants_chunk()) out = form->idle();
    listener.tell(std::exchange(out, {}));
  }
  remember(answer);
  store(answer, *form);
  listener.tell(form->last());
  listener.end();
}

void Completions::stored_response(http::Exchange& exchange, const std::string& id) {
  const http::Request& request = exchange.request();
  if (request.query.find("stream=true") != request.query.npos)
    throw ApiError(400, "a response that is stored comes whole: 'stream' is not supported here",
                   "stream");
  const auto found = responses_.find(id);
  if (!found) throw ApiError(404, responses_.why_none(id), "response_id");
  if (request.method != "DELETE") return exchange.reply(200, kJson, found->reply);
  responses_.remove(id);
  const Json gone{{"id", id}, {"object", "response"}, {"deleted", true}};
  exchange.reply(200, kJson, json_text(gone));
}

void Completions::resume(http::Exchange& exchange, const std::string& id) {
  const std::shared_ptr<ResumableStream> log = streams_.find(id);
  if (!log) throw ApiError(404, "there is no stream " + id + " to resume", "id");
  const std::string seen_text = exchange.request().header("last-event-id").empty()
                                    ? std::string("0")
                                    : std::string(exchange.request().header("last-event-id"));
  std::size_t seen = 0;
  const auto [end, error] =
      std::from_chars(seen_text.data(), seen_text.data() + seen_text.size(), seen);
  if (error != std::errc() || end != seen_text.data() + seen_text.size())
    throw ApiError(400, "Last-Event-ID: is not the number of an event", "Last-Event-ID");
  exchange.add_header("Cache-Control", "no-cache");
  exchange.begin_stream("text/event-stream");
  log->attach();
  auto sent = Clock::now();
  bool alive = true, ended = false;
  while (alive && !ended) {
    ResumableStream::Events events = log->after(seen, kTick);
    seen = events.last;
    ended = events.ended;
    if (events.text.empty() && Clock::now() - sent >= options_.ping) events.text = ":\n\n";
    if (!events.text.empty()) sent = Clock::now();
    alive = exchange.write(events.text) && !exchange.client_gone();
  }
  log->detach();
  exchange.end_stream();
}

}  // namespace canopy::server
