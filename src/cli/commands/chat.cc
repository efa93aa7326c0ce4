// canopy chat: a conversation with a model.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>

#include "src/base/ambient.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/chat/chat_prompt.h"
#include "src/chat/reasoning.h"
#include "src/cli/chat/answer_text.h"
#include "src/cli/chat/line_reader.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/foreign_flag.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/conversation.h"
#include "src/cli/options/model/template_option.h"
#include "src/cli/options/prompt_cache_option.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/output/step_line.h"
#include "src/cli/output/table.h"
#include "src/cli/ranks.h"
#include "src/text/stop_strings.h"

namespace canopy::cli {

using nlohmann::ordered_json;

namespace {

constexpr const char* kUsage =
    "usage: canopy chat -m MODEL [-md DRAFT] [-sys TEXT] [FLAG ...]\n\n"
    "Talks with a model, by its own chat template. A line is a message; one that ends with a\n"
    "backslash goes on in the next. Ctrl-C stops an answer and keeps what there is of it; Ctrl-D\n"
    "ends. What comes from a pipe is answered line by line. /help lists the commands.\n"
    "A model that reasons before it answers has its reasoning shown dim on a terminal, and left "
    "out\n"
    "elsewhere.";

constexpr const char* kHelp =
    "/help          these commands\n"
    "/system TEXT   another system prompt; the conversation begins anew\n"
    "/regen         another answer to the last message\n"
    "/undo          forget the last message and its answer\n"
    "/clear         begin anew\n"
    "/save FILE     write the conversation as JSON\n"
    "/load FILE     go on from such a file\n"
    "/reasoning     show or hide the reasoning before an answer\n"
    "/stats         what the last answer cost\n"
    "/plan          how the model is run, and where the memory lies\n"
    "/quit          end, as Ctrl-D does\n";

struct Options {
  std::optional<std::string> system;
  TemplateOption chat_template;
  std::vector<std::string> stops;
  std::optional<int> new_tokens;
  bool hide_reasoning = false;
  PromptCacheOption prompt_cache;
  DecodeOptions decode;
  RankOptions ranks;

  Flags flags() {
    Flags all, own("Conversation");
    own.add_options()                                                                          //
        ("system-prompt", into(system, "TEXT"), "the first message, to the model; also -sys")  //
        ("stop", stops_into(stops), "end an answer before this text; may be repeated")         //
        (PromptCacheOption::kName, prompt_cache.flag(), PromptCacheOption::kHelp)              //
        (kLengthFlag, length_into(new_tokens, -1),
         "most tokens of an answer; -1: until the model ends it or the context is full")  //
        ("hide-reasoning", given(hide_reasoning),
         "do not show what a model reasons before it answers; it counts and is saved all the same");
    chat_template.add_to(own);
    decode.model.default_context = conversation_context_words();
    add_foreign(own, kJinja);
    add_foreign(own, kNoWarmup);
    add_foreign(own, {"parallel", "N", "a conversation is one text"});
    add_foreign(own, {"verbose,v", nullptr, "/stats and /plan say what there is to know"});
    all.add(own);
    decode.add_flags(all);
    return all.add(decode.sampling.edit_flags()).add(ranks.flags());
  }
};

ordered_json message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

/// An error of a sweep that ranks share: they go apart, and there is no other answer. Not an Error,
/// after which a conversation goes on.
class RanksParted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A conversation and the engine that continues it.
class Chat {
 public:
  Chat(const Options& asked, Engine& engine, chat::ChatTemplate chat_template, int context)
      : asked_(asked),
        engine_(engine),
        template_(std::move(chat_template)),
        context_(context),
        reasoning_(chat::find_reasoning_tags(template_)),
        shows_reasoning_(!asked.hide_reasoning),
        progress_(asked.decode.model.progress) {
    if (reasoning_) named_ = chat::special_tokens_of(*reasoning_, tokenizer());
    begin_anew();
  }

  /// Reads and answers until the input ends; the exit code.
  int run(LineReader& lines, Interrupt& interrupt);
  const LearnedAcceptance& learned() const { return learned_; }

 private:
  bool obey(const std::string& line, Interrupt& interrupt);  // false: to end
  void say(const std::string& text, Interrupt& interrupt);
  void answer(Interrupt& interrupt);
  void regenerate(Interrupt& interrupt);
  void undo();
  void begin_anew();
  void save(const std::string& file) const;
  void load(const std::string& file, const std::stop_token& stop);
  void show_stats() const;
  void show_plan() const;
  const Tokenizer& tokenizer() const { return *engine_.models().tokenizer; }
  bool ends_with(const char* role) const {
    return !messages_.empty() && messages_.back().value("role", "") == role;
  }

  const Options& asked_;
  Engine& engine_;
  const chat::ChatTemplate template_;
  const int context_;
  const std::optional<chat::ReasoningTags> reasoning_;
  std::vector<TokenId> named_;  // special tokens that its tags are written with
  bool shows_reasoning_;
  ProgressLine progress_;
  ordered_json messages_ = ordered_json::array();
  chat::AnswerMemory memory_;
  std::optional<BatchReport> last_;
  int last_prompt_ = 0;
  std::uint32_t answers_ = 0;
  LearnedAcceptance learned_;
};

void Chat::begin_anew() {
  messages_ = ordered_json::array();
  if (asked_.system) messages_.push_back(message("system", *asked_.system));
}

void Chat::answer(Interrupt& interrupt) {
  const chat::Prompt prompt =
      chat::render_prompt(template_, tokenizer(), {.messages = messages_}, local_time());
  Request request;
  request.prompt = chat::encode(prompt, memory_.find(prompt), tokenizer(), interrupt.token());
  const int room = context_ - static_cast<int>(request.prompt.size());
  if (room < 1)
    throw Error("the conversation has " + std::to_string(request.prompt.size()) +
                " tokens and the context " + std::to_string(context_) +
                ": /undo or /clear, or begin with a larger -c");
  const std::optional<std::uint64_t>& seed = asked_.decode.sampling.seed;
  request.sampling = asked_.decode.sampling.sampling();
  request.edits = asked_.decode.sampling.edits();
  request.reproducible = seed.has_value();
  request.seed = seed ? *seed : any_seed();
  request.sequence = answers_++ % StepRng::kSequences;
  request.max_new_tokens = asked_.new_tokens ? std::min(*asked_.new_tokens, room) : room;

  ShownText shown(tokenizer(), asked_.stops, named_);
  AnswerText text(progress_, shows_reasoning_, reasoning_, prompt.text);
  StepLine steps(engine_, 1, std::nullopt);
  GenerateEvents events;
  events.on_step = [&](const StepProgress& step) { steps.show(step, progress_); };
  events.on_token = [&](std::size_t, TokenId token) {
    text.push(shown.push(token));
    return !shown.stopped();
  };
  progress_.make_way_for_text();
  progress_.show("reading " + std::to_string(request.prompt.size()) + " tokens");
  try {
    last_ = engine_.generate({&request, 1}, events, interrupt.token());
  } catch (const Error& error) {
    if (engine_.cluster()) throw RanksParted(error.what());
    throw;
  }
  const TextReport& report = last_->texts.front();
  text.push(shown.end(report.finish_reason != "stop"));
  text.end();
  progress_.write("\n");
  progress_.end();
  learned_.add(last_->learned);
  last_prompt_ = static_cast<int>(request.prompt.size());
  if (!shown.stopped()) memory_.remember(prompt, request.prompt, report.tokens, tokenizer());
  messages_.push_back(message("assistant", text.answer()));
  if (!text.reasoning().empty()) messages_.back()["reasoning_content"] = text.reasoning();
  if (report.finish_reason == "length" && std::ssize(report.tokens) == room)
    aside() << "note: the context of " << context_ << " tokens is full; -c N makes room for more\n";
  if (report.finish_reason == "cancelled" && !Interrupt::terminated()) interrupt.renew();
}

void Chat::say(const std::string& text, Interrupt& interrupt) {
  messages_.push_back(message("user", to_utf8(text)));
  try {
    answer(interrupt);
  } catch (const Error&) {  // as if it had not been said
    messages_.erase(messages_.size() - 1);
    throw;
  }
}

void Chat::regenerate(Interrupt& interrupt) {
  if (!ends_with("assistant")) throw Error("there is no answer yet");
  const ordered_json old = messages_.back();
  messages_.erase(messages_.size() - 1);
  try {
    answer(interrupt);
  } catch (const Error&) {
    messages_.push_back(old);
    throw;
  }
}

void Chat::undo() {
  if (ends_with("assistant")) messages_.erase(messages_.size() - 1);
  if (!ends_with("user")) throw Error("there is no message to forget");
  messages_.erase(messages_.size() - 1);
}

void Chat::save(const std::string& file) const {
  write_file(file, json_text(messages_, 2) + "\n");
  std::cerr << "saved " << messages_.size() << " messages to " << file << "\n";
}

void Chat::load(const std::string& file, const std::stop_token& stop) {
  const std::string text = read_file(file, kMostTextBytes, FileKind::kOfUser, stop);
  ordered_json loaded = in_context("reading " + file, [&] { return parse_ordered_json(text); });
  const auto is_message = [](const ordered_json& one) {
    return one.is_object() && one.contains("role") && one["role"].is_string() &&
           one.contains("content");
  };
  if (!loaded.is_array() || !std::all_of(loaded.begin(), loaded.end(), is_message))
    throw Error(file + ": is not a list of messages, each with a role and a content");
  messages_ = std::move(loaded);
  std::cerr << "loaded " << messages_.size() << " messages from " << file << "\n";
}

void Chat::show_stats() const {
  if (!last_) throw Error("there is no answer yet");
  const TextReport& text = last_->texts.front();
  const Seconds time = last_->prefill + last_->decode;
  const auto tokens = static_cast<double>(text.tokens.size());
  std::cerr << "prompt: " << last_prompt_ << " tokens, of which " << text.cached_tokens
            << " were there already";
  if (text.known_tokens > text.cached_tokens)
    std::cerr << " (what was said is another from token " << text.known_tokens + 1 << " on)";
  std::cerr << "; first sweep " << fixed(last_->prefill.count(), 2) << " s\n"
            << "answer: " << text.tokens.size() << " tokens in " << text.steps << " sweeps and "
            << fixed(time.count(), 2) << " s: " << fixed(tokens / std::max(1, text.steps), 2)
            << " tokens per sweep";
  if (last_->decode_tokens > 0)
    std::cerr << ", " << fixed(last_->decode.count() / last_->decode_tokens, 3)
              << " s per token after the first sweep";
  const LinkReport& link = last_->link;
  if (link.disk_bytes > 0)
    std::cerr << "\nlink: " << format_size(link.disk_bytes) << " from disk, busy "
              << fixed(100 * (link.busy / last_->decode), 0) << " % of the time";
  std::cerr << "\n";
}

void Chat::show_plan() const {
  const Plan& plan = engine_.plan();
  std::cerr << "method " << name(plan.method) << ", tree of " << plan.policy.shape.size()
            << " nodes in " << plan.policy.shape.levels() << " levels; context " << context_
            << "\n";
  if (plan.prediction)
    std::cerr << "predicted: " << fixed(plan.prediction->best.per_token().count(), 3)
              << " s per token\n";
  const auto show = [](const char* where, std::uint64_t budget,
                       const std::vector<LedgerEntry>& ledger) {
    std::cerr << where << ", budget " << format_size(budget) << ":\n";
    for (const LedgerEntry& entry : ledger)
      std::cerr << "  " << format_size(entry.bytes) << "  " << entry.what << "\n";
  };
  show("memory", plan.memory, plan.ledger);
  if (plan.device) show("GPU memory", plan.device->memory, plan.device->ledger);
}

bool Chat::obey(const std::string& line, Interrupt& interrupt) {
  const std::size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  const auto needs_file = [&] {
    if (rest.empty()) throw Error(command + ": name a file");
    return rest;
  };
  if (command == "/quit" || command == "/exit" || command == "/bye") return false;
  if (command == "/help") {
    std::cerr << kHelp;
  } else if (command == "/system") {
    begin_anew();
    messages_ = ordered_json::array();
    if (!rest.empty()) messages_.push_back(message("system", rest));
  } else if (command == "/regen") {
    regenerate(interrupt);
  } else if (command == "/undo") {
    undo();
  } else if (command == "/clear") {
    begin_anew();
  } else if (command == "/save") {
    save(needs_file());
  } else if (command == "/load") {
    load(needs_file(), interrupt.token());
  } else if (command == "/reasoning") {
    shows_reasoning_ = !shows_reasoning_;
    std::cerr << "reasoning is " << (shows_reasoning_ ? "shown" : "hidden") << " from now on\n";
  } else if (command == "/stats") {
    show_stats();
  } else if (command == "/plan") {
    show_plan();
  } else {
    throw Error(command +
                ": no such command; /help lists them, and a space before the / makes it "
                "a message");
  }
  return true;
}

int Chat::run(LineReader& lines, Interrupt& interrupt) {
  bool failed = false;
  while (true) {
    std::optional<std::string> line;
    try {
      line = lines.read("> ", interrupt.token());
    } catch (const Stopped&) {
      if (Interrupt::terminated() || !lines.on_terminal()) return Interrupt::exit_code();
      interrupt.renew();
      std::cerr << "\n(Ctrl-D or /quit ends)\n";
      continue;
    }
    if (!line) break;
    if (line->empty()) continue;
    try {
      if (line->front() != '/')
        say(*line, interrupt);
      else if (!obey(*line, interrupt))
        break;
    } catch (const Stopped&) {
      if (Interrupt::terminated() || !lines.on_terminal()) return Interrupt::exit_code();
      interrupt.renew();
    } catch (const Error& error) {
      failed = true;
      std::cerr << "canopy chat: " << error.what() << "\n";
    }
    if (interrupt.token().stop_requested()) return Interrupt::exit_code();
  }
  if (lines.on_terminal()) std::cerr << "\n";
  return failed && !lines.on_terminal() ? 1 : 0;  // who types has seen it; a script has not
}

/// Names the file where lines are kept; nowhere if there is no folder for it.
std::filesystem::path history_file() {
  try {
    std::filesystem::create_directories(cache_dir());
    return cache_dir() / "chat_history";
  } catch (const std::exception&) {
    return {};
  }
}

int chat_with(Options& asked, Interrupt& interrupt, Cluster* cluster) {
  EngineOptions options = asked.decode.engine_options();
  asked.ranks.put_into(options, cluster);
  ModelFiles models = asked.decode.open(options.plan, interrupt.token());
  chat::ChatTemplate chat_template = asked.chat_template.load(models.target, interrupt.token());
  plan_conversations(models, asked.decode, options.plan);
  const std::unique_ptr<Engine> loaded =
      load_for_conversations(asked.decode, std::move(models), options, interrupt.token());
  Engine& engine = *loaded;
  asked.prompt_cache.load(engine);
  LineReader lines(history_file());
  if (lines.on_terminal())
    aside() << "chat template of " << chat_template.origin() << "; /help lists the commands\n";
  Chat chat(asked, engine, std::move(chat_template), engine.plan().context);
  const int code = chat.run(lines, interrupt);
  asked.prompt_cache.save(engine);
  asked.decode.learn(engine, options.plan, chat.learned());
  return code;
}

}  // namespace

int run_chat(const std::vector<std::string>& words) {
  Options asked;
  const auto parse_words = [&](GivenFlags& given) {
    return parse(words, kUsage, asked.flags(), given);
  };
  return run_shared({"canopy chat", asked.ranks, asked.decode.model, parse_words,
                     [&](Interrupt& interrupt, Cluster* cluster) {
                       return chat_with(asked, interrupt, cluster);
                     }});
}

}  // namespace canopy::cli
