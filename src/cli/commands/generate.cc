// canopy generate: continues a prompt.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/beam_options.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/foreign_flag.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/prompt_cache_option.h"
#include "src/cli/options/values.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/energy_json.h"
#include "src/cli/output/generation_json.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/output/step_line.h"
#include "src/cli/ranks.h"
#include "src/engine/beam/beam_search.h"
#include "src/engine/ranks/plan_together.h"
#include "src/text/stop_strings.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy generate -m MODEL [-md DRAFT] (-p TEXT | -f FILE | --tokens 1,2,3) [FLAG "
    "...]\n"
    "       ... | canopy generate -m MODEL [FLAG ...]\n\n"
    "Continues a prompt, which is read from stdin where no flag gives one. With a draft model a\n"
    "tree of likely continuations is checked in each sweep over the model; the text is the\n"
    "model's own all the same: exactly plain decoding's at temperature 0, and distributed as the\n"
    "model's at any other.";

// Their texts wait in memory for the report.
constexpr int kMostSamples = 100'000;

/// --tokens. Throws UsageError.
std::vector<TokenId> parse_tokens(const std::string& flag, const std::string& text) {
  std::vector<TokenId> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    TokenId token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc() || token < 0 || (next != end && *next != ','))
      throw UsageError(flag + ": wants ids separated by commas, e.g. 1,2,3");
    tokens.push_back(token);
    if (next == end) return tokens;
    at = next + 1;
  }
}

struct Options {
  std::optional<std::string> prompt, file;
  std::optional<std::vector<TokenId>> tokens;
  std::optional<int> new_tokens;  // of each sample; nothing: until the model ends them
  int samples = 1, logprobs = 0;
  std::vector<std::string> stops;
  bool ignore_eos = false, json = false;
  std::optional<std::string> report, trace, route_trace;  // files
  PromptCacheOption prompt_cache;
  DecodeOptions decode;
  BeamOptions beams;
  RankOptions ranks;

  Flags flags();
  void check() const;  // throws UsageError where the flags contradict each other
};

Flags Options::flags() {
  const auto sample_count = [](const int& count) {
    if (count < 1 || count > kMostSamples)
      throw UsageError("--num-samples: must be between 1 and " + std::to_string(kMostSamples));
  };
  Flags all, text("Prompt and length");
  text.add_options()                                                           //
      ("prompt,p", into(prompt, "TEXT"), "the prompt; - reads it from stdin")  //
      ("file,f", into(file, "FILE"),
       "read the prompt from a file. One newline (LF or CR LF) at the end of a file or of stdin "
       "does "
       "not belong to the prompt, nor does a byte order mark at its beginning")  //
      ("tokens", into(tokens, "IDS", "--tokens", parse_tokens),
       "the prompt as token ids: 1,2,3")  //
      (kLengthFlag, length_into(new_tokens),
       "most tokens to generate, of each sample; -1: until the model ends the text or the context "
       "is full; also --max-tokens, --max-new-tokens")  //
      ("num-samples", into(samples, "K", sample_count),
       "continue the prompt K times, all in the same sweeps as far as memory goes: a JSON line for "
       "each, in order. Sample 0 is the text without this flag, given the same tree")  //
      ("stop", stops_into(stops),
       "end the text before this one, which is left out; may be repeated")       //
      (PromptCacheOption::kName, prompt_cache.flag(), PromptCacheOption::kHelp)  //
      ("ignore-eos", given(ignore_eos), "go on past the model's end tokens");
  Flags output("Output");
  output.add_options()                                                    //
      ("json", given(json), "print one JSON object instead of the text")  //
      ("report", into(report, "FILE"),                                    //
       "write that object to a file, beside the text (-: after it, on standard output); with "
       "--num-samples the totals, and all samples")  //
      ("trace", into(trace, "FILE"),
       "write what happened when: Chrome trace-event JSON, for Perfetto")  //
      ("route-trace", into(route_trace, "FILE"),
       "write which experts of a mixture the tokens chose, as lines of JSON")  //
      ("logprobs", into(logprobs, "K", at_least("--logprobs", 0)),
       "with --json, --report or --num-samples: each token's log probability and the K likeliest");
  add_foreign_prompt_flags(text);
  add_foreign(text, kNoWarmup);
  add_foreign(text, {"parallel", "N", "--num-samples K continues the prompt K times at once"});
  add_foreign(output, {"verbose,v", nullptr, "--report says all that is known of a run"});
  all.add(text);
  decode.add_flags(all);
  return all.add(decode.sampling.edit_flags()).add(beams.flags()).add(ranks.flags()).add(output);
}

void Options::check() const {
  const int prompts = prompt.has_value() + file.has_value() + tokens.has_value();
  if (prompts > 1 || (prompts == 0 && isatty(STDIN_FILENO) == 1))
    throw UsageError("give one prompt: -p TEXT, -f FILE, --tokens IDS, or a text on stdin");
  if (samples > 1 && decode.sampling.sampling().temperature == 0)
    throw UsageError(
        "--num-samples: at temperature 0 all samples are the same; give --temp 1, say");
  if (samples > 1 && json)
    throw UsageError(
        "--json: --num-samples prints a JSON line for each sample already; the totals "
        "go to --report FILE");
  beams.check(decode);
  if (beams.beams && (!stops.empty() || logprobs > 0 || prompt_cache.file))
    throw UsageError(
        "--num-beams: a beam search does not go with --stop, --logprobs or --prompt-cache");
  if (json && report == "-")
    throw UsageError("--report -: --json prints the same object; leave one of them out");
  if (route_trace == "-") throw UsageError("--route-trace -: give a file");
  if (trace == "-") throw UsageError("--trace -: standard output is for the text; give a file");
  if (logprobs > 0 && samples == 1 && !json && !report)
    throw UsageError("--logprobs: needs --json, --report FILE or --num-samples");
}

/// Nothing where the prompt is given as tokens.
std::optional<std::string> prompt_text(const Options& options, const std::stop_token& stop) {
  if (options.tokens) return std::nullopt;
  if (options.prompt && options.prompt != "-") return options.prompt;
  std::string text = read_text(options.file.value_or("-"), kMostTextBytes, stop);
  if (text.empty() && !options.prompt && !options.file)
    throw UsageError("standard input is empty, and no flag gives a prompt: -p, -f or --tokens");
  if (text.ends_with('\n')) text.resize(text.size() - (text.ends_with("\r\n") ? 2 : 1));
  return text;
}

std::vector<TokenId> encode_prompt(const std::optional<std::string>& text, const Options& options,
                                   const ModelFiles& models, const std::stop_token& stop) {
  if (text) {
    options.decode.model.require_room_to_encode(*text, "the prompt");
    std::vector<TokenId> tokens = models.tokenizer->encode(*text, AddSpecial::kYes, stop);
    if (tokens.empty())
      throw Error("the prompt is empty and this model has no token to begin with: give it a text");
    return tokens;
  }
  const int vocab = models.target.config().vocab;
  for (const TokenId token : *options.tokens)
    if (token >= vocab)
      throw UsageError("--tokens: " + std::to_string(token) + " is outside the vocabulary of " +
                       std::to_string(vocab));
  return *options.tokens;
}

/// Writes a JSON line for each sample, in their order: as soon as it and all before it are there.
class SampleLines {
 public:
  SampleLines(ProgressLine& out, int samples, const std::vector<std::string>& stops)
      : out_(&out), stops_(stops), lines_(static_cast<std::size_t>(samples)) {}

  void add(std::size_t sample, const Tokenizer& tokenizer, const TextReport& report) {
    json line = text_json(tokenizer, report, stops_);
    line["index"] = sample;
    lines_[sample] = json_text(line) + "\n";
    for (; next_ < lines_.size() && !lines_[next_].empty(); ++next_) write(next_);
  }
  /// Writes the lines that wait for one that will not come.
  void flush() {
    for (; next_ < lines_.size(); ++next_) write(next_);
  }

 private:
  void write(std::size_t sample) { out_->write(std::exchange(lines_[sample], {})); }

  ProgressLine* out_;
  const std::vector<std::string>& stops_;
  std::vector<std::string> lines_;
  std::size_t next_ = 0;
};

json report_json(const Engine& engine, const BatchReport& report, const Request& request,
                 const std::vector<std::string>& stops) {
  const Tokenizer& tokenizer = *engine.models().tokenizer;
  json out = costs_json(engine, report);
  out["prompt_tokens"] = request.prompt.size();
  out["seed"] = request.seed;
  out["reproducible"] =
      !engine.plan().changes() && (request.reproducible || request.sampling.temperature == 0);
  if (report.texts.size() == 1) {
    out.update(text_json(tokenizer, report.texts.front(), stops));
    out.update(steps_json(report.texts.front()));
    return out;
  }
  out["samples"] = json::array();
  for (std::size_t i = 0; i < report.texts.size(); ++i) {
    if (report.texts[i].finish_reason == "cancelled") continue;
    out["samples"].push_back(text_json(tokenizer, report.texts[i], stops));
    out["samples"].back()["index"] = i;
  }
  return out;
}

/// Reports why the text is not longer, where the user may wonder; returns the exit code. `room`:
/// tokens that fit the context after the prompt.
int tell_the_end(const BatchReport& report, const Options& wanted, int context, int room) {
  const auto cancelled =
      std::count_if(report.texts.begin(), report.texts.end(),
                    [](const TextReport& text) { return text.finish_reason == "cancelled"; });
  const bool full = std::any_of(report.texts.begin(), report.texts.end(), [&](const auto& one) {
    return one.finish_reason == "length" && std::ssize(one.tokens) == room;
  });
  if (full && wanted.new_tokens != room)
    aside() << "note: the text ends where the context of " << context
            << " tokens is full; -c N makes room for more\n";
  if (cancelled == 0) return 0;
  std::cerr << "canopy generate: stopped after " << report.tokens << " tokens";
  if (wanted.samples > 1)
    std::cerr << ": " << wanted.samples - cancelled << " of " << wanted.samples
              << " samples are complete";
  std::cerr << "\n";
  return Interrupt::exit_code();
}

/// Its prompt and its length are known when the model is.
Request request_of(const Options& asked) {
  Request request;
  const std::optional<std::uint64_t>& seed = asked.decode.sampling.seed;
  request.sampling = asked.decode.sampling.sampling();
  request.edits = asked.decode.sampling.edits();
  request.reproducible = seed.has_value();
  request.seed = seed ? *seed : any_seed();
  request.ignore_end = asked.ignore_eos;
  request.logprobs = asked.logprobs;
  return request;
}

/// Files that a run leaves next to the text. They are opened before the work.
struct Records {
  std::optional<TextOutput> report;
  std::optional<Trace> trace;
  std::optional<RouteTrace> routes;
  std::optional<EnergyMeter> energy;

  /// The engine is to write to them.
  Records(const Options& asked, EngineOptions& options) {
    if (asked.report) report.emplace(*asked.report);
    if (asked.trace) options.trace = &trace.emplace(*asked.trace);
    if (asked.route_trace) options.routes = &routes.emplace(*asked.route_trace);
    if (asked.json || asked.report) options.energy = &energy.emplace();
  }
  /// `more`: members besides those of every generation.
  void write(const Options& asked, const Engine& engine, const BatchReport& done,
             const Request& request, const json& more = json::object()) {
    if (trace) trace->close();
    if (routes) routes->close();
    if (!energy) return;
    json costs = report_json(engine, done, request, asked.stops);
    costs.update(more);
    costs["energy"] = energy_json(*energy, done);
    const std::string object = json_text(costs, 2) + "\n";
    if (asked.json) std::cout << object;
    if (report) report->write(object);
  }
};

/// Plans for these models and loads them. Throws Error, Stopped.
std::unique_ptr<Engine> load(const Options& asked, ModelFiles models, EngineOptions& options,
                             ProgressLine& progress, const std::stop_token& stop) {
  if (!options.plan.beams)
    options.plan.cost = std::make_shared<CostModel>(
        asked.decode.find_assumptions(models, options, progress, stop).profile,
        network_of(models.target, options.cluster));
  const auto on_load = [&](std::uint64_t done, std::uint64_t all) {
    progress.show_loading(done, all);
  };
  return std::make_unique<Engine>(std::move(models), options, on_load, stop);
}

/// Writes the texts as they grow, unless they are to stand in an object.
BatchReport continue_prompt(const Options& asked, const Request& request, Engine& engine,
                            ProgressLine& progress, const std::stop_token& stop) {
  const Tokenizer& tokenizer = *engine.models().tokenizer;
  const bool as_text = asked.samples == 1 && !asked.json;
  std::vector<ShownText> texts;
  for (int i = 0; i < asked.samples; ++i) texts.emplace_back(tokenizer, asked.stops);
  SampleLines lines(progress, asked.samples, asked.stops);
  GenerateEvents events;
  StepLine steps(engine, asked.samples, asked.new_tokens);
  events.on_step = [&](const StepProgress& step) { steps.show(step, progress); };
  if (asked.samples > 1)
    events.on_text = [&](std::size_t sample, const TextReport& done) {
      lines.add(sample, tokenizer, done);
    };
  if (as_text || !asked.stops.empty())
    events.on_token = [&](std::size_t sample, TokenId token) {
      const std::string more = texts[sample].push(token);
      if (as_text) progress.write(more);
      return !texts[sample].stopped();
    };
  std::vector<Request> requests(static_cast<std::size_t>(asked.samples), request);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].sequence = static_cast<std::uint32_t>(i);

  if (!asked.json) progress.make_way_for_text();
  progress.show("prefill: " + std::to_string(request.prompt.size()) + " tokens");
  BatchReport report = engine.generate(requests, events, stop);
  lines.flush();
  const bool cut_off = report.texts.front().finish_reason != "stop";
  if (as_text) progress.write(texts.front().end(cut_off) + "\n");
  progress.end();
  return report;
}

json beams_json(const BeamReport& report, const Tokenizer& tokenizer) {
  json beams = json::array();
  for (const FoundText& text : report.texts)
    beams.push_back({{"text", shown_text(tokenizer, text.tokens, {}, !text.ended)},
                     {"tokens", text.tokens},
                     {"log_probability", text.log_probability},
                     {"score", text.score},
                     {"finish_reason", text.ended ? "stop" : "length"}});
  return {{"beams", std::move(beams)},
          {"target_rows", report.target_rows},
          {"drafted_rows", report.drafted_rows}};
}

/// Writes the best text in the end: until then beams may still overtake each other. The exit code.
int search_beams(const Options& asked, const Request& request, Engine& engine, Records& records,
                 ProgressLine& progress, const std::stop_token& stop) {
  const Tokenizer& tokenizer = *engine.models().tokenizer;
  progress.show("prefill: " + std::to_string(request.prompt.size()) + " tokens");
  StepLine steps(engine, 1, asked.new_tokens);
  BeamReport report;
  try {
    report = engine.search(
        {request.prompt, asked.beams.penalty(), request.max_new_tokens, request.ignore_end},
        [&](const StepProgress& step) { steps.show(step, progress); }, stop);
  } catch (const Stopped&) {
    progress.clear();
    std::cerr << "canopy generate: stopped before the search was over, so there is no text\n";
    return Interrupt::exit_code();
  }
  progress.clear();
  if (!asked.json) {
    const FoundText& best = report.texts.front();
    progress.write(shown_text(tokenizer, best.tokens, {}, !best.ended) + "\n");
  }
  records.write(asked, engine, report.batch, request, beams_json(report, tokenizer));
  return 0;
}

/// `cluster`: of the ranks that share the model; null: there is one process.
int generate(Options& asked, const Interrupt& interrupt, Cluster* cluster) {
  EngineOptions options = asked.decode.engine_options();
  asked.ranks.put_into(options, cluster);
  options.plan.max_sequences = asked.samples;
  options.plan.reuses_texts = asked.prompt_cache.file.has_value();
  Request request = request_of(asked);
  const std::optional<std::string> text = prompt_text(asked, interrupt.token());

  ModelFiles models = asked.decode.open(options.plan, interrupt.token());
  asked.decode.sampling.check_tokens(models.target.config().vocab);
  request.prompt = encode_prompt(text, asked, models, interrupt.token());
  options.plan.max_prompt = static_cast<int>(request.prompt.size());
  fit_context(asked.new_tokens, models.target.config(), options.plan);
  int room = options.plan.context - options.plan.max_prompt;
  request.max_new_tokens = asked.new_tokens.value_or(room);
  options.plan.beams = asked.beams.room(asked.decode, request.max_new_tokens);
  if (options.plan.beams) options.plan.least_context = 0;  // their room is for all these tokens

  ProgressLine progress(asked.decode.model.progress);
  Records records(asked, options);
  std::unique_ptr<Engine> engine;
  try {
    engine = load(asked, std::move(models), options, progress, interrupt.token());
  } catch (const Stopped&) {
    progress.clear();
    std::cerr << "canopy generate: stopped before the first token\n";
    return Interrupt::exit_code();
  }
  progress.clear();
  print_notes(*engine);
  room = engine->plan().context - options.plan.max_prompt;
  request.max_new_tokens = std::min(request.max_new_tokens, room);
  asked.prompt_cache.load(*engine);
  if (options.plan.beams)
    return search_beams(asked, request, *engine, records, progress, interrupt.token());
  const BatchReport report = continue_prompt(asked, request, *engine, progress, interrupt.token());
  records.write(asked, *engine, report, request);
  asked.prompt_cache.save(*engine);
  asked.decode.learn(*engine, options.plan, report.learned);
  return tell_the_end(report, asked, engine->plan().context, room);
}

}  // namespace

int run_generate(const std::vector<std::string>& words) {
  Options asked;
  const auto parse_words = [&](GivenFlags& given) {
    if (!parse(words, kUsage, asked.flags(), given)) return false;
    asked.check();
    return true;
  };
  return run_shared({"canopy generate", asked.ranks, asked.decode.model, parse_words,
                     [&](Interrupt& interrupt, Cluster* cluster) {
                       return generate(asked, interrupt, cluster);
                     }});
}

}  // namespace canopy::cli
