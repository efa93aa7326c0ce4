// canopy serve: an HTTP server whose texts share sweeps.
#include <malloc.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/foreign_flag.h"
#include "src/cli/options/model/conversation.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/model/template_option.h"
#include "src/cli/options/prompt_cache_option.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/plan_words.h"
#include "src/cli/output/request_log.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/ranks.h"
#include "src/cli/version.h"
#include "src/hub/cache.h"
#include "src/server/replies/api_error.h"
#include "src/server/service.h"

namespace canopy::cli {

namespace {

constexpr const char* kUsage =
    "usage: canopy serve -m MODEL [-md DRAFT] [--port N] [--parallel N] [FLAG ...]\n\n"
    "Serves a model over HTTP, by the APIs of OpenAI, llama-server and Anthropic:\n"
    "/v1/chat/completions, /v1/completions, /v1/responses, /completion, /v1/messages, /v1/models,\n"
    "/health, /props, /slots, /tokenize, /detokenize, /apply-template, /metrics; a browser finds\n"
    "a page to chat on at /. Texts of all clients share the sweeps over the model.\n\n"
    "Each flag may stand in the environment, too: --ctx-size as CANOPY_ARG_CTX_SIZE. The words\n"
    "count where both say something.";

constexpr std::uint64_t kMostKeyBytes = 1u << 20;

constexpr std::chrono::seconds kLastReplies{2};  // to clients that read slowly, in the end

struct Options {
  std::string host = "127.0.0.1";
  int port = 8080, queue = 64, grace = 5;
  std::optional<int> parallel;
  std::optional<std::string> key_file;
  TemplateOption chat_template;
  std::vector<std::string> aliases, keys, origins;
  int ping = 5, connections = 256;
  std::optional<int> most_tokens, timeout;
  std::string log = "on";
  std::optional<std::string> log_file;
  bool verbose = false;
  PromptCacheOption prompt_cache;
  DecodeOptions decode;
  RankOptions ranks;

  Flags flags() {
    const auto not_empty = [](const char* flag) {
      return [flag](const std::string& text) {
        if (text.empty()) throw UsageError(std::string(flag) + ": is empty");
      };
    };
    const auto is_port = [](const int& value) {
      if (value < 0 || value > 65535) throw UsageError("--port: must be from 0 to 65535");
    };
    const auto is_alias = [](const std::string& name) {
      if (name.empty()) throw UsageError("--alias: is empty");
      if (std::count(name.begin(), name.end(), '*') > 1)
        throw UsageError("--alias: " + name + " has more than one *");
    };
    const auto is_on_or_off = [](const std::string& text) {
      if (text != "on" && text != "off") throw UsageError("--log: must be on or off");
    };
    Flags all, own("Server");
    own.add_options()                                                                 //
        ("host", into(host, "ADDRESS"), "address to listen on")                       //
        ("port", into(port, "N", is_port), "port to listen on; 0: any that is free")  //
        ("parallel", into(parallel, "N", at_least("--parallel", 1)),
         "most texts that share a sweep (default: 4, or fewer where memory is short)")  //
        ("queue", into(queue, "N", at_least("--queue", 0)),
         "texts that may wait; more are refused with status 429")  //
        ("alias,a", into_all(aliases, "NAME", is_alias),
         "the model's name for clients (default: of its folder); may be repeated: more names, a * "
         "in one is any text")  //
        ("api-key", into_all(keys, "KEY", not_empty("--api-key")),
         "clients must show this key; may be repeated")  //
        ("api-key-file", into(key_file, "FILE"), "the same, a line for each")(
            "cors-origin", into_all(origins, "ORIGIN", not_empty("--cors-origin")),
            "pages from there may use the server (*: from anywhere); may be repeated")  //
        (PromptCacheOption::kName, prompt_cache.flag(), PromptCacheOption::kHelp)       //
        ("sse-ping", into(ping, "SECONDS", at_least("--sse-ping", 1)),
         "a comment in streams that were silent for so long")  //
        ("connections", into(connections, "N", at_least("--connections", 1)),
         "connections at a time")  //
        ("n-predict,n", into(most_tokens, "N (=all there is room for)", at_least("--n-predict", 1)),
         "tokens of a text at most, whatever its client asks for")  //
        ("timeout", into(timeout, "SECONDS (=none)", at_least("--timeout", 1)),
         "time that a text may take; then it ends with what there is of it")  //
        ("log", into(log, "on|off", is_on_or_off),
         "a line on stderr for each request that asks for a text, or is refused")  //
        ("log-file", into(log_file, "FILE", not_empty("--log-file")),
         "these lines go there, after what it holds")                //
        ("verbose,v", given(verbose), "a line for all others, too")  //
        ("grace", into(grace, "SECONDS", at_least("--grace", 0)),
         "time that texts have to end when the server is stopped");
    chat_template.add_to(own);
    decode.model.default_context = conversation_context_words();
    decode.model.default_kv_memory = service_kv_words();
    add_foreign(own, kJinja);
    add_foreign(own, kNoWarmup);
    add_foreign(own, {"metrics", nullptr, "GET /metrics is always answered"});
    add_foreign(own, {"slots", nullptr, "GET /slots is always answered"});
    all.add(own);
    decode.add_flags(all);
    return all.add(decode.sampling.edit_flags()).add(ranks.flags());
  }
};

/// A header can hold it.
bool is_key(std::string_view text) {
  constexpr std::size_t kMostBytes = 8192;  // half of what a request's headers may have
  return text.size() <= kMostBytes && is_utf8(text) &&
         std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < ' ' || c == 127; });
}

std::vector<std::string> all_keys(const Options& asked, const std::stop_token& stop) {
  std::vector<std::string> keys = asked.keys;
  if (!asked.key_file) return keys;
  std::istringstream lines(read_file(*asked.key_file, kMostKeyBytes, FileKind::kOfUser, stop));
  const std::size_t before = keys.size();
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    if (!is_key(line))
      throw Error(*asked.key_file + ": line " + std::to_string(number) + " is no key");
    keys.push_back(line);
  }
  if (keys.size() == before) throw Error(*asked.key_file + ": holds no key");
  return keys;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Lets the last replies through: what they are made of goes next.
struct EndOfService {
  http::Server& server;
  ~EndOfService() { server.end(kLastReplies); }
};

/// None where the model has no template: it serves completions alone. Throws Error for a bad one.
std::optional<chat::ChatTemplate> find_template(const Options& asked, const Checkpoint& model,
                                                std::string& why_none,
                                                const std::stop_token& stop) {
  try {
    return asked.chat_template.load(model, stop);
  } catch (const Error& error) {
    if (asked.chat_template.given()) throw;
    why_none = server::reported(error);
    aside() << "note: there is no chat, only completions: " << why_none << "\n";
    return std::nullopt;
  }
}

/// A model's name of its file's: "big-00001-of-00003.gguf" is "big".
std::string name_of(std::string file) {
  constexpr std::string_view kEnd = ".gguf", kPart = "-00001-of-00001";
  if (!file.ends_with(kEnd)) return file;
  file.erase(file.size() - kEnd.size());
  const std::size_t part = file.size() - std::min(file.size(), kPart.size());
  std::string digits = file.substr(part);
  for (char& c : digits)
    if (c >= '0' && c <= '9') c = '0';
  if (digits == "-00000-of-00000") file.erase(part);
  return file;
}

server::ServiceOptions service_options(const Options& asked, const Checkpoint& model,
                                       const PlanRequest& plan) {
  server::ServiceOptions options;
  options.origins = asked.origins;
  options.loopback = is_loopback(asked.host);
  options.ping = std::chrono::seconds(asked.ping);
  options.context = plan.context;
  for (const std::string& alias : asked.aliases)
    if (options.model_name.empty() && alias.find('*') == alias.npos)
      options.model_name = alias;
    else
      options.aliases.push_back(alias);
  if (options.model_name.empty())
    options.model_name =
        name_of(hub::name_in_cache(model.root()).empty()
                    ? std::filesystem::weakly_canonical(model.root()).filename().string()
                    : model_name(model));
  options.most_tokens = asked.most_tokens;
  if (asked.timeout) options.timeout = std::chrono::seconds(*asked.timeout);
  options.build = version_line();
  options.defaults.sampling = asked.decode.sampling.sampling();
  options.defaults.edits = asked.decode.sampling.edits();
  options.defaults.vocab = model.config().vocab;
  return options;
}

std::string url_of(const std::string& host, int port) {
  const bool numbers = host.find(':') != std::string::npos;  // of IPv6
  return "http://" + (numbers ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

int serve(Options& asked, const Interrupt& interrupt, Cluster* cluster) try {
  EngineOptions options = asked.decode.engine_options();
  asked.ranks.put_into(options, cluster);
  std::vector<std::string> keys = all_keys(asked, interrupt.token());
  ModelFiles models = asked.decode.open(options.plan, interrupt.token());
  std::string why_no_chat;
  std::optional<chat::ChatTemplate> chat_template =
      find_template(asked, models.target, why_no_chat, interrupt.token());
  PlanRequest& plan = options.plan;
  plan_conversations(models, asked.decode, plan);
  server::ServiceOptions served = service_options(asked, models.target, plan);
  served.keys = std::move(keys);
  fit_service(asked.parallel, asked.connections, asked.decode, plan);
  served.defaults.most_choices = plan.max_sequences + asked.queue;
  std::optional<RequestLog> log;
  if (asked.log == "on") {
    log.emplace(asked.log_file, asked.verbose ? LogRequests::kAll : LogRequests::kTextsAndErrors);
    served.on_request = [&log](const server::RequestRecord& record) { log->write(record); };
  }
  if (!served.loopback && served.keys.empty())
    std::cerr << "warning: whoever reaches " << asked.host
              << " may use this server; --api-key KEY asks for a key\n";

  server::Service service(served);
  http::Limits limits;
  limits.connections = asked.connections;
  limits.body_bytes = largest_request(plan.context);
  http::Server http(
      asked.host, static_cast<std::uint16_t>(asked.port), limits,
      [&](http::Exchange& exchange) { service.handle(exchange); },
      [&](int status, const std::string& message, std::string_view path) {
        return service.refuse(status, message, path);
      });
  const std::string url = url_of(asked.host, http.port());
  std::cerr << "listening on " << url << ", loading\n";

  const std::unique_ptr<Engine> loaded =
      load_for_conversations(asked.decode, std::move(models), options, interrupt.token());
  Engine& engine = *loaded;
  asked.prompt_cache.load(engine);
  server::Metrics metrics;
  server::Scheduler scheduler(engine, engine.plan().max_sequences + asked.queue, metrics);
  service.ready(engine, scheduler, metrics, std::move(chat_template), std::move(why_no_chat));
  std::cerr << "serving " << served.model_name << " on " << url << ": " << in_words(engine.plan())
            << "\n";
  {
    const EndOfService end{http};
    scheduler.run(interrupt.token(), std::chrono::seconds(asked.grace), [&](int texts) {
      if (texts > 0)
        std::cerr << "stopping within " << asked.grace << " seconds, texts on their way: " << texts
                  << "; stop again to end at once\n";
    });
  }
  asked.prompt_cache.save(engine);
  asked.decode.learn(engine, plan, scheduler.learned());
  std::cerr << "stopped\n";
  return 0;                 // this is how a server ends
} catch (const Stopped&) {  // before it served
  if (cluster) throw;       // other ranks are to know
  std::cerr << "stopped\n";
  return 0;
}

}  // namespace

int run_serve(const std::vector<std::string>& words) {
  Options asked;
  const auto parse_words = [&](GivenFlags& given) {
    return parse(words, kUsage, asked.flags(), given, Environment::kTaken);
  };
  mallopt(M_ARENA_MAX, 2);  // each connection has a thread, and should not have an arena
  return run_shared(
      {"canopy serve", asked.ranks, asked.decode.model, parse_words,
       [&](Interrupt& interrupt, Cluster* cluster) { return serve(asked, interrupt, cluster); }});
}

}  // namespace canopy::cli
