#include "src/server/service.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "src/base/ambient.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/engine/runtime.h"
#include "src/grammar/json_schema.h"
#include "src/server/fields.h"

namespace canopy::server {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr const char* kJson = "application/json; charset=utf-8";
// Between two looks whether a client has gone.
constexpr std::chrono::milliseconds kTick{200};
constexpr int kRetryAfter = 5;            // seconds
constexpr std::size_t kConstraints = 16;  // that are remembered, with their masks

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

std::string any_id(const char* prefix) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(any_seed()));
  return std::string(prefix) + digits.data();
}

void reply_json_to(http::Exchange& exchange, const json& body, int status = 200) {
  exchange.reply(status, kJson, json_text(body));
}

std::string event(const json& data) { return "data: " + json_text(data) + "\n\n"; }

/// The host of "http://host:port" or "host:port".
std::string_view host_of(std::string_view origin) {
  if (const std::size_t scheme = origin.find("://"); scheme != std::string_view::npos)
    origin.remove_prefix(scheme + 3);
  if (origin.starts_with('[')) return origin.substr(0, origin.find(']') + 1);
  return origin.substr(0, origin.find(':'));
}

bool is_this_machine(std::string_view host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

/// Compares in a time that does not tell how much was right.
bool same_key(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 1 : b[i % b.size()]));
  return differ == 0;
}

}  // namespace

struct Service::Answer {
  CompletionRequest request;
  ReplyHead head;
  std::shared_ptr<Job> job;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> before;  // echoed text, by choice
  std::optional<chat::Prompt> prompt;
  std::vector<News::Choice> texts;  // all there is of each choice, without its calls
  std::vector<std::vector<ToolCall>> calls;
  std::vector<ToolCallReader> readers;  // one for each choice, where there are tools
  std::optional<TokenId> calls_begin;   // the token
  Clock::time_point begun = Clock::now();

  /// Adds what is new, and turns it into what a client is told: text is not what calls were.
  void take(News& news, std::vector<std::vector<ToolCall>>& new_calls) {
    new_calls.assign(texts.size(), {});
    for (std::size_t i = 0; i < texts.size(); ++i) {
      News::Choice& more = news.choices[i];
      News::Choice& text = texts[i];
      if (!readers.empty()) find_calls(i, more, new_calls[i]);
      text.text += more.text;
      text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
      text.logprobs.insert(text.logprobs.end(), more.logprobs.begin(), more.logprobs.end());
      if (more.finish_reason.empty()) continue;
      text.finish_reason = more.finish_reason;
      text.sweeps = more.sweeps;
      text.first_sweep = more.first_sweep;
      text.time = more.time;
      text.cached_tokens = more.cached_tokens;
    }
  }
  void find_calls(std::size_t choice, News::Choice& more, std::vector<ToolCall>& found_calls) {
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
    all.insert(all.end(), found_calls.begin(), found_calls.end());
    if (ended && !all.empty() && more.finish_reason == "stop") more.finish_reason = "tool_calls";
  }
  Usage usage() const {
    Usage all;
    for (const auto& tokens : prompts) all.prompt_tokens += static_cast<int>(tokens.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      all.completion_tokens += static_cast<int>(texts[i].tokens.size());
      if (i % static_cast<std::size_t>(request.choices) == 0)
        all.cached_tokens += texts[i].cached_tokens;
    }
    return all;
  }
};

std::string Service::error_body(int status, const std::string& message) {
  return json_text(ApiError(status, message).body());
}

void Service::ready(Engine& engine, Scheduler& scheduler, Metrics& metrics,
                    std::optional<chat::ChatTemplate> chat_template, std::string why_no_chat) {
  const std::lock_guard lock(mutex_);
  model_.emplace(
      Model{engine, scheduler, metrics, std::move(chat_template), std::move(why_no_chat), {}});
  if (model_->chat_template) model_->tool_form = find_tool_form(*model_->chat_template);
}

Service::Model& Service::model() {
  const std::lock_guard lock(mutex_);
  if (!model_) throw ApiError(503, "Loading model");
  return *model_;
}

void Service::handle(http::Exchange& exchange) {
  const auto fail = [&](const ApiError& error) {
    if (exchange.begun()) {  // of a stream: the status has been sent
      exchange.write(event(error.body()));
      exchange.end_stream();
      return;
    }
    if (error.status == 429 || error.status == 503) {
      exchange.add_header("Retry-After", std::to_string(kRetryAfter));
      exchange.add_header("x-should-retry", error.status == 503 ? "true" : "false");
    }
    exchange.reply(error.status, kJson, json_text(error.body()));
  };
  try {
    route(exchange);
  } catch (const ApiError& error) {
    fail(error);
  } catch (const Busy& busy) {
    fail(ApiError(busy.ending() ? 503 : 429, busy.what()));
  } catch (const std::bad_alloc&) {
    fail(ApiError(500, "out of memory"));
  } catch (const std::exception& error) {
    fail(ApiError(500, error.what()));
  }
}

void Service::check_access(http::Exchange& exchange) const {
  const http::Request& request = exchange.request();
  const std::string_view origin = request.header("origin"), host = request.header("host");
  // A page of another site must not use what listens on this machine alone, nor by a name that its
  // own server gave to this address.
  if (options_.loopback && !host.empty() && !is_this_machine(host_of(host)))
    throw ApiError(403, "this server answers requests to localhost alone");
  if (!origin.empty() && origin != "http://" + std::string(host)) {
    const bool known = std::any_of(options_.origins.begin(), options_.origins.end(),
                                   [&](const auto& one) { return one == "*" || one == origin; });
    if (!known)
      throw ApiError(403, "pages of " + std::string(origin) +
                              " may not use this server; --cors-origin allows them");
    exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
    exchange.add_header("Vary", "Origin");
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    exchange.add_header("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key");
  }
  static constexpr std::array kOpen{"/", "/health", "/v1/health", "/models", "/v1/models"};
  const bool open = std::find(kOpen.begin(), kOpen.end(), request.path) != kOpen.end();
  if (options_.keys.empty() || open || request.method == "OPTIONS") return;
  std::string_view key = request.header("x-api-key");
  if (const std::string_view bearer = request.header("authorization");
      bearer.starts_with("Bearer "))
    key = bearer.substr(7);
  const bool known = std::any_of(options_.keys.begin(), options_.keys.end(),
                                 [&](const std::string& one) { return same_key(one, key); });
  if (!known) throw ApiError(401, key.empty() ? "an API key is needed" : "the API key is wrong");
}

void Service::route(http::Exchange& exchange) {
  check_access(exchange);
  const http::Request& request = exchange.request();
  std::string path = request.path;
  if (path.starts_with("/v1/")) path.erase(0, 3);
  if (request.method == "OPTIONS") return exchange.reply(200, kJson, "");
  const bool get = request.method == "GET" || request.method == "HEAD";
  const auto body = [&] {
    try {
      return parse_ordered_json(request.body);
    } catch (const Error& error) {
      throw ApiError(400, std::string("the body: ") + error.what());
    }
  };
  struct Route {
    const char* path;
    bool get;
  };
  static constexpr Route kRoutes[] = {{"/health", true},       {"/models", true},
                                      {"/props", true},        {"/slots", true},
                                      {"/metrics", true},      {"/canopy/state", true},
                                      {"/completions", false}, {"/completion", false},
                                      {"/tokenize", false},    {"/chat/completions", false},
                                      {"/detokenize", false},  {"/apply-template", false}};
  const auto* const found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                         [&](const Route& one) { return path == one.path; });
  if (found == std::end(kRoutes)) throw ApiError(404, "there is no " + request.path);
  if (found->get != get || (!get && request.method != "POST"))
    throw ApiError(405, request.path + " takes " + (found->get ? "GET" : "POST"));

  if (path == "/health") {
    model();
    return reply_json_to(exchange, {{"status", "ok"}});
  }
  if (path == "/models") return reply_json_to(exchange, models_json());
  if (path == "/props") return reply_json_to(exchange, props_json());
  if (path == "/slots") return reply_json_to(exchange, slots_json());
  if (path == "/canopy/state") return reply_json_to(exchange, state_json());
  if (path == "/metrics")
    return exchange.reply(200, "text/plain; version=0.0.4; charset=utf-8", metrics_text());
  if (path == "/chat/completions") return complete(exchange, true);
  if (path == "/completions" || path == "/completion") return complete(exchange, false);

  const Json asked = body();
  Fields fields(asked);
  const Tokenizer& tokenizer = model().tokenizer();
  if (path == "/tokenize") {
    const auto content = fields.text("content");
    if (!content) fields.fail("content", "is missing");
    const bool special = fields.flag("add_special").value_or(false);
    const bool pieces = fields.flag("with_pieces").value_or(false);
    fields.refuse_others();
    json tokens = json::array();
    for (const TokenId id :
         tokenizer.encode(*content, special ? AddSpecial::kYes : AddSpecial::kNo)) {
      if (pieces)
        tokens.push_back({{"id", id}, {"piece", tokenizer.piece(id)}});
      else
        tokens.push_back(id);
    }
    return reply_json_to(exchange, {{"tokens", std::move(tokens)}});
  }
  if (path == "/detokenize") {
    const Json* list = fields.any("tokens");
    if (list == nullptr || !list->is_array()) fields.fail("tokens", "must be a list of ids");
    fields.refuse_others();
    std::vector<TokenId> tokens;
    for (const Json& id : *list) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() >= tokenizer.vocab())
        fields.fail("tokens", "holds something that is no token id");
      tokens.push_back(id.get<TokenId>());
    }
    return reply_json_to(exchange, {{"content", tokenizer.decode(tokens, AddSpecial::kYes)}});
  }
  const CompletionRequest chat = read_chat_request(asked, options_.defaults);
  reply_json_to(exchange, {{"prompt", render(chat).text}});
}

chat::Prompt Service::render(const CompletionRequest& request) {
  Model& m = model();
  if (!m.chat_template) throw ApiError(400, m.why_no_chat);
  try {
    return chat::render_prompt(*m.chat_template, m.tokenizer(), request.conversation, local_time());
  } catch (const Error& error) {
    throw ApiError(400, std::string("the chat template: ") + error.what(), "messages");
  }
}

void Service::prepare_calls(Answer& answer) {
  const Model& m = model();
  if (!m.tool_form)
    throw ApiError(400,
                   "this model's chat template writes no tool calls, or in a form that this server "
                   "does not know (it knows those of Hermes, Llama 3 and Mistral)",
                   "tools");
  if (*m.tool_form != ToolForm::kMistral) return;
  const std::vector<TokenId> mark = m.tokenizer().encode(kMistralCalls, AddSpecial::kNo);
  if (mark.size() != 1)
    throw ApiError(400, std::string("the tokenizer has no token ") + kMistralCalls, "tools");
  answer.calls_begin = mark.front();
  if (answer.request.must_call) answer.prompts.front().push_back(mark.front());
}

std::shared_ptr<const TokenConstraint> Service::constraint_of(const CompletionRequest& request) {
  if (!request.schema && !request.must_call) return nullptr;
  Model& m = model();
  std::string key = request.schema ? json_text(*request.schema) : "";
  if (request.must_call)
    for (const Tool& tool : request.tools) key += "\n" + tool.name + json_text(tool.parameters);
  const std::lock_guard lock(mutex_);
  for (auto one = constraints_.begin(); one != constraints_.end(); ++one)
    if (one->first == key) {
      constraints_.splice(constraints_.begin(), constraints_, one);
      return one->second;
    }
  if (!vocabulary_) vocabulary_ = std::make_shared<grammar::VocabularyTrie>(m.tokenizer());
  try {
    auto wanted = std::make_shared<const grammar::Grammar>(
        request.schema ? grammar::json_grammar(*request.schema)
                       : call_grammar(*m.tool_form, request.tools));
    constraints_.emplace_front(std::move(key), grammar::constrain(std::move(wanted), vocabulary_));
  } catch (const Error& error) {
    throw ApiError(400, error.what(), request.schema ? "response_format" : "tools");
  }
  if (constraints_.size() > kConstraints) constraints_.pop_back();
  return constraints_.front().second;
}

Service::Answer Service::begin(const CompletionRequest& request, bool chat) {
  Model& m = model();
  if (request.model && *request.model != options_.model_name)
    throw ApiError(
        404, "there is no model '" + *request.model + "' here, only '" + options_.model_name + "'",
        "model");
  Answer answer;
  answer.request = request;
  answer.head = {chat, any_id(chat ? "chatcmpl-" : "cmpl-"), options_.model_name,
                 std::time(nullptr)};
  if (chat) {
    answer.prompt = render(request);
    const std::lock_guard lock(mutex_);
    answer.prompts.push_back(answers_.encode(*answer.prompt, m.tokenizer()));
  }
  if (!request.tools.empty()) prepare_calls(answer);
  for (const auto& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    answer.prompts.push_back(text != nullptr ? m.tokenizer().encode(*text, AddSpecial::kYes)
                                             : std::get<std::vector<TokenId>>(prompt));
  }
  const std::shared_ptr<const TokenConstraint> constraint = constraint_of(request);
  JobRequest job;
  job.stops = request.stops;
  for (const std::vector<TokenId>& tokens : answer.prompts) {
    if (tokens.empty()) throw ApiError(400, "the prompt has no tokens", "prompt");
    const int room = options_.context - static_cast<int>(tokens.size());
    if (room < 1)
      throw ApiError(400,
                     "the prompt has " + std::to_string(tokens.size()) +
                         " tokens; the context has room for " + std::to_string(options_.context),
                     chat ? "messages" : "prompt",
                     {{"type", "exceed_context_size_error"},
                      {"n_prompt_tokens", tokens.size()},
                      {"n_ctx", options_.context}});
    Request one;
    one.prompt = tokens;
    one.sampling = request.sampling;
    one.edits = request.edits;
    one.edits.constraint = constraint;
    one.reproducible = request.seed.has_value();
    one.seed = request.seed ? *request.seed : any_seed();
    one.max_new_tokens = std::min(request.most_tokens.value_or(room), room);
    one.ignore_end = request.ignore_end;
    one.logprobs = request.logprobs ? std::max(1, *request.logprobs) : 0;
    for (int i = 0; i < request.choices; ++i) {
      one.sequence = static_cast<std::uint32_t>(i);
      job.texts.push_back(one);
      answer.before.push_back(request.echo ? m.tokenizer().decode(tokens, AddSpecial::kNo) : "");
    }
  }
  answer.texts.resize(job.texts.size());
  answer.calls.resize(job.texts.size());
  if (!request.tools.empty())
    answer.readers.assign(job.texts.size(),
                          ToolCallReader(*m.tool_form, request.tools, request.must_call));
  answer.job = m.scheduler.submit(job);
  return answer;
}

void Service::complete(http::Exchange& exchange, bool chat) {
  Json body;
  try {
    body = parse_ordered_json(exchange.request().body);
  } catch (const Error& error) {
    throw ApiError(400, std::string("the body: ") + error.what());
  }
  model();
  Answer answer = begin(chat ? read_chat_request(body, options_.defaults)
                             : read_text_request(body, options_.defaults),
                        chat);
  if (answer.request.stream)
    reply_in_pieces(exchange, answer);
  else
    reply_whole(exchange, answer);
}

void Service::remember(const Answer& answer) {
  if (!answer.prompt) return;
  const std::lock_guard lock(mutex_);
  for (const News::Choice& text : answer.texts)
    answers_.remember(*answer.prompt, answer.prompts.front(), text.tokens, model_->tokenizer());
}

void Service::reply_whole(http::Exchange& exchange, Answer& answer) {
  Model& m = model();
  std::vector<std::vector<ToolCall>> new_calls;
  while (true) {
    std::optional<News> news = answer.job->take(kTick);
    if (exchange.client_gone()) return m.scheduler.cancel(*answer.job);
    if (!news) continue;
    answer.take(*news, new_calls);
    if (!news->error.empty()) throw ApiError(500, news->error);
    if (news->ended) break;
  }
  remember(answer);
  const Usage usage = answer.usage();
  for (std::size_t i = 0; i < answer.texts.size(); ++i)
    answer.texts[i].text = answer.before[i] + answer.texts[i].text;
  json reply = reply_json(answer.head, answer.texts, answer.calls,
                          answer.request.logprobs.has_value(), m.tokenizer());
  reply["usage"] = usage_json(usage);
  reply["timings"] = timings_json(answer.texts.front(), usage, m.scheduler.link_rate());
  reply_json_to(exchange, reply);
}

void Service::reply_in_pieces(http::Exchange& exchange, Answer& answer) {
  Model& m = model();
  const ReplyHead& head = answer.head;
  exchange.add_header("Cache-Control", "no-cache");
  exchange.add_header("X-Accel-Buffering", "no");
  exchange.begin_stream("text/event-stream");
  std::string out;
  for (std::size_t i = 0; i < answer.texts.size(); ++i) {
    const json delta = head.chat ? json{{"role", "assistant"}, {"content", nullptr}}
                                 : json{{"content", answer.before[i]}};
    if (head.chat || !answer.before[i].empty())
      out += event(chunk_json(head, static_cast<int>(i), delta, nullptr));
  }
  auto sent = Clock::now(), chunk_sent = sent;
  int prompt_told = -1;
  bool ended = false;
  std::vector<std::vector<ToolCall>> new_calls;
  while (!ended) {
    std::optional<News> news = answer.job->take(kTick);
    if (exchange.client_gone()) return m.scheduler.cancel(*answer.job);
    if (news) {
      answer.take(*news, new_calls);
      ended = news->ended;
      if (answer.request.return_progress && news->prompt_read != prompt_told && !ended &&
          answer.texts.front().tokens.empty()) {
        prompt_told = news->prompt_read;
        json chunk = chunk_json(head, 0, json::object(), nullptr);
        const std::chrono::duration<double, std::milli> time = Clock::now() - answer.begun;
        chunk["prompt_progress"] = {{"total", answer.prompts.front().size()},
                                    {"cache", news->cached_tokens},
                                    {"processed", news->prompt_read},
                                    {"time_ms", time.count()}};
        out += event(chunk);
      }
      for (std::size_t i = 0; i < news->choices.size(); ++i) {
        const News::Choice& more = news->choices[i];
        const int index = static_cast<int>(i);
        if (!more.text.empty() || !more.logprobs.empty()) {
          json chunk =
              chunk_json(head, index, {{"content", more.text}}, nullptr,
                         more.logprobs.empty() ? json() : logprobs_json(head, more, m.tokenizer()));
          if (answer.request.timings_per_token)
            chunk["timings"] =
                timings_json(answer.texts[i], answer.usage(), m.scheduler.link_rate());
          out += event(chunk);
        }
        if (const std::vector<ToolCall>& calls = new_calls[i]; !calls.empty()) {
          const std::size_t before = answer.calls[i].size() - calls.size();
          out +=
              event(chunk_json(head, index, {{"tool_calls", calls_json(calls, before)}}, nullptr));
        }
        if (!more.finish_reason.empty())
          out += event(chunk_json(head, index, json::object(), more.finish_reason));
      }
      if (!news->error.empty()) {
        exchange.write(out);
        throw ApiError(500, news->error);
      }
    }
    const auto now = Clock::now();
    if (out.empty() && now - chunk_sent >= options_.data_ping)
      out = event(chunk_json(head, 0, json::object(), nullptr));
    const bool chunk = !out.empty();
    if (!chunk && now - sent >= options_.ping) out = ":\n\n";
    if (out.empty()) continue;
    if (!exchange.write(out)) return m.scheduler.cancel(*answer.job);
    out.clear();
    sent = now;
    if (chunk) chunk_sent = now;
  }
  remember(answer);
  if (answer.request.include_usage) {
    json chunk = empty_chunk_json(head);
    chunk["usage"] = usage_json(answer.usage());
    chunk["timings"] = timings_json(answer.texts.front(), answer.usage(), m.scheduler.link_rate());
    out += event(chunk);
  }
  exchange.write(out + "data: [DONE]\n\n");
  exchange.end_stream();
}

json Service::models_json() {
  json one{{"id", options_.model_name},
           {"object", "model"},
           {"created", std::time(nullptr)},
           {"owned_by", "canopy"}};
  const std::lock_guard lock(mutex_);
  if (model_) {
    const ModelConfig& config = model_->engine.models().target.config();
    std::uint64_t bytes = 0, elements = 0;
    for (const TensorEntry& tensor : model_->engine.models().target.tensors()) {
      std::uint64_t count = 1;
      for (const std::int64_t extent : tensor.shape) count *= static_cast<std::uint64_t>(extent);
      elements += count;
      bytes += tensor.bytes;
    }
    one["meta"] = {{"n_vocab", config.vocab},
                   {"n_ctx", options_.context},
                   {"n_ctx_train", config.max_positions},
                   {"n_embd", config.dim},
                   {"n_params", elements},
                   {"size", bytes}};
  }
  return {{"object", "list"}, {"data", json::array({std::move(one)})}};
}

json Service::props_json() {
  Model& m = model();
  const Plan& plan = m.engine.plan();
  const Sampling& sampling = options_.defaults.sampling;
  const auto ledger = [](const std::vector<LedgerEntry>& entries) {
    json out = json::array();
    for (const LedgerEntry& entry : entries)
      out.push_back({{"what", entry.what}, {"bytes", entry.bytes}});
    return out;
  };
  json out{{"default_generation_settings",
            {{"n_ctx", options_.context},
             {"params",
              {{"temperature", sampling.temperature},
               {"top_k", sampling.top_k},
               {"top_p", sampling.top_p},
               {"min_p", sampling.min_p},
               {"typical_p", sampling.typical_p},
               {"repeat_penalty", options_.defaults.edits.repetition}}}}},
           {"total_slots", plan.max_sequences},
           {"model_path", m.engine.models().target.root().string()},
           {"chat_template", m.chat_template ? json(m.chat_template->origin()) : json()},
           {"build_info", "canopy"}};
  out["canopy"] = {{"method", name(plan.method)},
                   {"device", m.engine.device_name()},
                   {"tree_nodes", plan.policy.shape.size()},
                   {"resident_bytes", plan.resident_bytes},
                   {"sweep_bytes", plan.sweep_bytes},
                   {"memory_bytes", plan.memory},
                   {"ledger", ledger(plan.ledger)}};
  if (plan.device) out["canopy"]["gpu_ledger"] = ledger(plan.device->ledger);
  return out;
}

json Service::slots_json() {
  Model& m = model();
  const int running = m.scheduler.sweep().last.texts;
  json out = json::array();
  for (int i = 0; i < m.engine.plan().max_sequences; ++i)
    out.push_back({{"id", i},
                   {"n_ctx", options_.context},
                   {"speculative", m.engine.plan().method != SpeculationMethod::kNone},
                   {"is_processing", i < std::min(running, m.scheduler.texts())}});
  return out;
}

json Service::state_json() {
  Model& m = model();
  const SweepState now = m.scheduler.sweep();
  const Plan& plan = m.engine.plan();
  json trees = json::array();
  for (const CheckedTree& tree : now.last.trees) {
    json tokens = json::array();
    for (const TokenId token : tree.tokens) tokens.push_back(shown_token(m.tokenizer(), token));
    trees.push_back({{"text", tree.text},
                     {"parents", tree.parents},
                     {"tokens", std::move(tokens)},
                     {"path", tree.path},
                     {"next", shown_token(m.tokenizer(), tree.next)}});
  }
  const SweepReport& last = now.last;
  const LinkReport& link = last.link;
  return {{"sweep",
           {{"running", now.running},
            {"count", now.sweeps},
            {"layer", now.layer},
            {"layers", now.layers}}},
          {"last",
           {{"seconds", last.time.count()},
            {"compute_seconds", last.compute.count()},
            {"drafting_seconds", last.drafting.count()},
            {"texts", last.texts},
            {"tokens", last.tokens},
            {"prompt_rows", last.prompt_rows},
            {"tree_nodes", last.tree_nodes},
            {"link",
             {{"disk_bytes", link.disk_bytes},
              {"upload_bytes", link.upload_bytes},
              {"busy_seconds", (plan.device ? link.upload_busy : link.busy).count()},
              {"stall_seconds", link.stall.count()}}},
            {"trees", std::move(trees)}}},
          {"texts", {{"all", m.scheduler.texts()}, {"most_sharing", plan.max_sequences}}},
          {"kv", {{"blocks", plan.kv_blocks}, {"free", now.free_kv_blocks}}}};
}

std::string Service::metrics_text() {
  Model& m = model();
  const SweepState sweep = m.scheduler.sweep();
  const Plan& plan = m.engine.plan();
  Gauges now;
  now.texts = m.scheduler.texts();
  now.running = std::min(now.texts, plan.max_sequences);
  now.kv_blocks = plan.kv_blocks;
  now.free_kv_blocks = sweep.free_kv_blocks;
  for (const LedgerEntry& entry : plan.ledger) now.memory[entry.what] += entry.bytes;
  if (plan.device)
    for (const LedgerEntry& entry : plan.device->ledger)
      now.memory["gpu: " + entry.what] += entry.bytes;
  return m.metrics.text(now);
}

}  // namespace canopy::server
