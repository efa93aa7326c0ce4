#include "src/server/service.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "src/base/ambient.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"
#include "src/server/model_names.h"
#include "src/server/page.h"
#include "src/server/replies/descriptions.h"
#include "src/server/replies/replies.h"
#include "src/server/request/fields.h"

namespace canopy::server {

using nlohmann::json;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kRetryAfter = 5;  // seconds
constexpr const char* kIdHeader = "x-request-id";
// Routes whose paths end with a name.
constexpr std::string_view kStream = "/stream/", kResponse = "/responses/", kModel = "/models/";

std::string any_request_id() {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "req_%016llx",
                static_cast<unsigned long long>(any_seed()));
  return digits.data();
}

/// The client's own where it is one that a line of a log can hold.
std::string request_id(std::string_view asked) {
  constexpr std::size_t kMostBytes = 128;
  const bool sane = !asked.empty() && asked.size() <= kMostBytes &&
                    std::all_of(asked.begin(), asked.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
                    });
  return sane ? std::string(asked) : any_request_id();
}

void reply_json_to(http::Exchange& exchange, const json& body, int status = 200) {
  exchange.reply(status, kJson, json_text(body));
}

bool same_letters(std::string_view a, std::string_view b) {  // in upper or lower case
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

/// True if "host" or "host:port" is this machine whatever a name server answers: localhost, or an
/// address in digits. 127.evil.com is a name.
bool is_this_machine(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos &&
      host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    host = host.substr(0, colon);
  in_addr address{};
  return same_letters(host, "localhost") || host == "[::1]" ||
         (inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
          ntohl(address.s_addr) >> 24 == 127);
}

/// A token's text; its bytes where it holds a part of a character.
json piece_json(const Tokenizer& tokenizer, TokenId token) {
  const std::string_view piece = tokenizer.piece(token);
  if (tokenizer.is_special(token)) return tokenizer.token_string(token);
  if (is_utf8(piece)) return piece;
  json bytes = json::array();
  for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

/// Compares in a time that does not depend on how much was right.
bool same_key(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 1 : b[i % b.size()]));
  return differ == 0;
}

/// A part of a path with the characters that stand in it as %2F and the like.
std::string unescaped(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = part.data() + i + 1;
    const bool escape = part[i] == '%' && i + 2 < part.size() &&
                        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(byte) : part[i];
    if (escape) i += 2;
  }
  return out;
}

/// True for a path of Anthropic's API, whose errors have a form of their own.
bool is_anthropic(std::string_view path) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path == "/messages" || path.starts_with("/messages/");
}

json error_json(const ApiError& error, std::string_view path) {
  return is_anthropic(path) ? error.anthropic_body() : error.body();
}

}  // namespace

std::string Service::refuse(int status, const std::string& message, std::string_view path) const {
  RequestRecord record;
  record.id = any_request_id();
  record.status = status;
  record.reason = message;
  if (options_.on_request) options_.on_request(record);
  return json_text(error_json(ApiError(status, message), path));
}

void Service::ready(Engine& engine, Scheduler& scheduler, Metrics& metrics,
                    std::optional<chat::ChatTemplate> chat_template, std::string why_no_chat) {
  const std::lock_guard lock(mutex_);
  options_.context = engine.plan().context;
  model_.emplace(ServedModel{
      engine, scheduler, metrics, std::move(chat_template), std::move(why_no_chat), {}, {}});
  const Tokenizer& tokenizer = model_->tokenizer();
  for (TokenId token = 0; token < tokenizer.vocab(); ++token)
    model_->longest_token =
        std::max({model_->longest_token, tokenizer.piece(token).size(),
                  tokenizer.is_special(token) ? tokenizer.token_string(token).size() : 0});
  if (model_->chat_template) {
    model_->tool_form = find_tool_form(*model_->chat_template);
    model_->reasoning = chat::find_reasoning_tags(*model_->chat_template);
  }
  completions_.emplace(*model_, options_);
}

ServedModel& Service::model() {
  const std::lock_guard lock(mutex_);
  if (!model_) throw ApiError(503, "Loading model");
  return *model_;
}

void Service::handle(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  RequestRecord record;
  record.id = request_id(request.header(kIdHeader));
  record.method = request.method;
  record.path = request.path;
  exchange.add_header(kIdHeader, record.id);
  const bool anthropic = is_anthropic(request.path);
  if (anthropic) exchange.add_header("request-id", record.id);
  const auto begun = std::chrono::steady_clock::now();
  const auto fail = [&](const ApiError& error) {
    record.reason = error.message;
    if (exchange.begun()) {  // of a stream: the status has been sent
      exchange.write((anthropic ? "event: error\n" : "") + event(error_json(error, request.path)));
      exchange.end_stream();
      return;
    }
    if (error.status == 429 || error.status == 503) {
      exchange.add_header("Retry-After", std::to_string(kRetryAfter));
      exchange.add_header("x-should-retry", "true");
    }
    exchange.reply(anthropic ? error.anthropic_status() : error.status, kJson,
                   json_text(error_json(error, request.path)));
  };
  try {
    route(exchange, record);
  } catch (const ApiError& error) {
    fail(error);
  } catch (const Busy& busy) {
    fail(ApiError(busy.ending() ? 503 : 429, reported(busy)));
  } catch (const std::bad_alloc&) {
    fail(ApiError(500, "out of memory"));
  } catch (const std::exception& error) {
    fail(ApiError(500, reported(error)));
  }
  if (!options_.on_request) return;
  record.status = exchange.status();
  record.time = std::chrono::steady_clock::now() - begun;
  options_.on_request(record);
}

void Service::check_access(http::Exchange& exchange) const {
  const http::Request& request = exchange.request();
  const std::string_view origin = request.header("origin"), host = request.header("host");
  // A page of another site must not use what listens on this machine alone, nor by a name that its
  // own server gave to this address.
  if (options_.loopback && !host.empty() && !is_this_machine(host))
    throw ApiError(403, "this server answers requests to localhost alone");
  const bool own =
      origin == "http://" + std::string(host) || origin == "https://" + std::string(host);
  if (!origin.empty() && !own) {
    const bool known = std::any_of(options_.origins.begin(), options_.origins.end(),
                                   [&](const auto& one) { return one == "*" || one == origin; });
    if (!known)
      throw ApiError(403, "pages of " + std::string(origin) +
                              " may not use this server; --cors-origin allows them");
    exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
    exchange.add_header("Vary", "Origin");
    exchange.add_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    exchange.add_header("Access-Control-Allow-Headers",
                        "Authorization, Content-Type, X-Api-Key, X-Request-Id, Anthropic-Version, "
                        "Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access");
    exchange.add_header("Access-Control-Expose-Headers", kIdHeader);
  }
  static constexpr std::array kOpen{"/", "/health", "/v1/health", "/models", "/v1/models"};
  const bool open = std::find(kOpen.begin(), kOpen.end(), request.path) != kOpen.end() ||
                    request.path.starts_with(kModel) || request.path.starts_with("/v1/models/");
  if (options_.keys.empty() || open || request.method == "OPTIONS") return;
  std::string_view key = request.header("x-api-key");
  if (const std::string_view bearer = request.header("authorization");
      same_letters(bearer.substr(0, 7), "Bearer "))
    key = bearer.substr(7);
  const bool known = std::any_of(options_.keys.begin(), options_.keys.end(),
                                 [&](const std::string& one) { return same_key(one, key); });
  if (!known) throw ApiError(401, key.empty() ? "an API key is needed" : "the API key is wrong");
}

void Service::route(http::Exchange& exchange, RequestRecord& record) {
  check_access(exchange);
  const http::Request& request = exchange.request();
  if (request.method == "OPTIONS") return exchange.reply(200, kJson, "");
  std::string path = request.path;
  if (path.starts_with("/v1/")) path.erase(0, 3);
  struct Route {
    const char *path, *method;
    void (Service::*answer)(http::Exchange&);  // null: by `texts`
    Api texts = {};
  };
  static constexpr Route kRoutes[] = {{"/", "GET", &Service::front},
                                      {"/health", "GET", &Service::health},
                                      {"/models", "GET", &Service::models},
                                      {"/props", "GET", &Service::props},
                                      {"/slots", "GET", &Service::slots},
                                      {"/metrics", "GET", &Service::metrics},
                                      {"/canopy/state", "GET", &Service::state},
                                      {"/chat/completions", "POST", nullptr, Api::kChat},
                                      {"/completions", "POST", nullptr, Api::kText},
                                      {"/completion", "POST", nullptr, Api::kLlama},
                                      {"/responses", "POST", nullptr, Api::kResponses},
                                      {"/messages", "POST", nullptr, Api::kAnthropic},
                                      {"/messages/count_tokens", "POST", &Service::count_tokens},
                                      {"/tokenize", "POST", &Service::tokenize},
                                      {"/detokenize", "POST", &Service::detokenize},
                                      {"/tokenizer_info", "GET", &Service::tokenizer_info},
                                      {"/apply-template", "POST", &Service::apply_template}};
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (path.starts_with(kStream) && request.method == "GET") {
    model();
    return completions_->resume(exchange, path.substr(kStream.size()));
  }
  if (path.starts_with(kResponse) && (reads || request.method == "DELETE")) {
    model();
    return completions_->stored_response(exchange, path.substr(kResponse.size()));
  }
  if (path.starts_with(kModel) && reads) return one_model(exchange, path.substr(kModel.size()));
  const auto* const found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                         [&](const Route& one) { return path == one.path; });
  if (found == std::end(kRoutes)) throw ApiError(404, "there is no " + request.path);
  const std::string_view asked = request.method, method = asked == "HEAD" ? "GET" : asked;
  if (method != found->method) {
    exchange.add_header("Allow", found->method);
    throw ApiError(405, request.path + " takes " + found->method + " alone");
  }
  if (found->answer != nullptr) return (this->*found->answer)(exchange);
  model();
  completions_->complete(exchange, found->texts, record);
}

void Service::front(http::Exchange& exchange) {
  exchange.add_header("Content-Security-Policy", page_policy());
  exchange.add_header("X-Content-Type-Options", "nosniff");
  exchange.add_header("Referrer-Policy", "no-referrer");
  exchange.add_header("Cache-Control", "no-cache");
  exchange.reply(200, "text/html; charset=utf-8", std::string(page()));
}

void Service::health(http::Exchange& exchange) {
  if (model().scheduler.ending()) throw Busy(true, "the server is stopping");
  reply_json_to(exchange, {{"status", "ok"}});
}

void Service::models(http::Exchange& exchange) {
  const std::lock_guard lock(mutex_);
  reply_json_to(exchange, models_json(options_, model_ ? &*model_ : nullptr));
}

void Service::one_model(http::Exchange& exchange, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::string asked = unescaped(name);
  check_model(options_, asked);
  json one = models_json(options_, model_ ? &*model_ : nullptr)["data"][0];
  one["id"] = asked;
  reply_json_to(exchange, one);
}

void Service::props(http::Exchange& exchange) {
  reply_json_to(exchange, props_json(options_, model()));
}

void Service::slots(http::Exchange& exchange) {
  reply_json_to(exchange, slots_json(options_, model()));
}

void Service::metrics(http::Exchange& exchange) {
  exchange.reply(200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(model()));
}

void Service::state(http::Exchange& exchange) { reply_json_to(exchange, state_json(model())); }

void Service::tokenize(http::Exchange& exchange) {
  const Tokenizer& tokenizer = model().tokenizer();
  const Json asked = parse_body(exchange.request());
  Fields fields(asked);
  // The names are llama-server's, or vLLM's, which adds special tokens unless asked not to.
  const auto content = fields.text("content");
  const auto prompt = content ? std::nullopt : fields.text("prompt");
  if (!content && !prompt) fields.fail("content", "is missing");
  const bool special = content ? fields.flag("add_special").value_or(false)
                               : fields.flag("add_special_tokens").value_or(true);
  const bool pieces = fields.flag("with_pieces").value_or(false);
  fields.refuse_others();
  json tokens = json::array();
  for (const TokenId id : tokenizer.encode(content ? *content : *prompt,
                                           special ? AddSpecial::kYes : AddSpecial::kNo)) {
    if (pieces)
      tokens.push_back({{"id", id}, {"piece", piece_json(tokenizer, id)}});
    else
      tokens.push_back(id);
  }
  reply_json_to(exchange, {{"tokens", std::move(tokens)}});
}

void Service::detokenize(http::Exchange& exchange) {
  const Tokenizer& tokenizer = model().tokenizer();
  const Json asked = parse_body(exchange.request());
  Fields fields(asked);
  const Json* list = fields.any("tokens");
  if (list == nullptr || !list->is_array()) fields.fail("tokens", "must be a list of ids");
  fields.refuse_others();
  std::vector<TokenId> tokens;
  for (const Json& id : *list) {
    const std::optional<TokenId> token = integer_in<TokenId>(id);
    if (!token || *token < 0 || *token >= tokenizer.vocab())
      fields.fail("tokens", "holds something that is no token id");
    tokens.push_back(*token);
  }
  const std::string text = tokenizer.decode(tokens, AddSpecial::kYes);
  reply_json_to(exchange, {{"content", text}, {"prompt", text}});  // llama-server's name, vLLM's
}

void Service::tokenizer_info(http::Exchange& exchange) {
  reply_json_to(exchange, tokenizer_json(model()));
}

void Service::apply_template(http::Exchange& exchange) {
  model();
  const CompletionRequest request =
      read_chat_request(parse_body(exchange.request()), options_.defaults);
  reply_json_to(exchange, {{"prompt", completions_->render(request).text}});
}

void Service::count_tokens(http::Exchange& exchange) {
  model();
  completions_->count(exchange);
}

}  // namespace canopy::server
