// canopy bench: prefill and decoding speed of a model, in the habit of llama-bench.
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/ambient.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/energy_json.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/table.h"
#include "src/machine/process_memory.h"
#include "src/measure/calibration_prompts.h"
#include "src/measure/timed_prompts.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr int kGenerationPrompt = 32;  // tokens that a tg test continues
constexpr const char* kUsage =
    "usage: canopy bench -m MODEL [-md DRAFT] [-p 512] [-n 128] [-r 5] [FLAG ...]\n"
    "       canopy bench WHAT [FLAG ...]      canopy bench WHAT --help\n\n"
    "Measures tokens per second: ppN takes a prompt of N tokens up to its first new token, tgN\n"
    "generates N tokens after a prompt of 32, the first step left out. Prompts are of the texts\n"
    "that come with the program, each run's its own, so that nothing of them was read before; "
    "tests\n"
    "take turns. WHAT is decode (all\n"
    "methods of speculation on the same prompts), link (sweeps without computing, beside raw "
    "reads)\n"
    "or offload (steps of a model's shape, without its weights, on a GPU).";

struct Options {
  std::string prompts = "512", generations = "128", format = "md";
  int repetitions = 5;
  bool no_warmup = false;
  DecodeOptions decode;

  Flags flags() {
    const auto known = [](const std::string& text) {
      if (text != "md" && text != "csv" && text != "json" && text != "jsonl")
        throw UsageError("--output: wants md, csv, json or jsonl, not '" + text + "'");
    };
    Flags what("What to measure");
    what.add_options()  //
        ("n-prompt,p", into(prompts, "LIST"),
         "prompt lengths, with commas between; 0: none")                                  //
        ("n-gen,n", into(generations, "LIST"), "numbers of tokens to generate; 0: none")  //
        ("repetitions,r", into(repetitions, "N", at_least("--repetitions", 1)),
         "times for each")  //
        ("no-warmup", given(no_warmup), "leave out the run before the first that is measured");
    Flags output("Output");
    output.add_options()("output,o", into(format, "FORMAT", known), "md, csv, json or jsonl");
    Flags all;
    all.add(what);
    decode.add_flags(all);
    return all.add(output);
  }
};

/// One test: its samples in tokens per second, and what they cost.
struct Test {
  bool prefill;
  int tokens;
  std::vector<double> rates = {}, seconds = {};
  double steps = 0, decoded = 0, bytes = 0, busy = 0, time = 0;
  double paid = 0;  // tokens that the joules were used for
  Joules joules = {};

  std::string name() const { return (prefill ? "pp" : "tg") + std::to_string(tokens); }
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - mean(values), 2);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

/// Adds tests of these numbers of tokens, with commas between; 0 is none.
void add_tests(std::string_view flag, const std::string& lengths, bool prefill,
               std::vector<Test>& tests) {
  for (const int length : parse_numbers(flag, lengths, 0, kMostTokens))
    if (length > 0) tests.push_back({.prefill = prefill, .tokens = length});
}

class ModelBench {
 public:
  ModelBench(const DecodeOptions& flags, std::vector<Test>& tests, const Interrupt& interrupt)
      : sampling_(flags.sampling),
        tests_(tests),
        stop_(interrupt.token()),
        progress_(flags.model.progress) {
    EngineOptions options = flags.engine_options();
    int longest = 0, context = 0;
    for (const Test& test : tests) {
      const int prompt = test.prefill ? test.tokens : kGenerationPrompt;
      longest = std::max(longest, prompt);
      context = std::max(context, prompt + generated(test));
    }
    options.plan.max_prompt = longest;
    if (options.plan.context == 0) options.plan.context = context;
    if (options.plan.context < context)
      throw UsageError("--ctx-size: the longest test takes " + std::to_string(context) + " tokens");
    ModelFiles models = flags.open(options.plan, stop_);
    prompts_.emplace(*models.tokenizer, default_prompts());
    Assumptions assumed = flags.find_assumptions(models, options, progress_, stop_);
    options.plan.cost = std::make_shared<CostModel>(std::move(assumed.profile));
    options.energy = &energy_;
    engine_.emplace(
        std::move(models), options,
        [&](std::uint64_t done, std::uint64_t all) { progress_.show_loading(done, all); }, stop_);
    progress_.clear();
    print_notes(*engine_);
    print_energy_note(energy_);
  }

  const Engine& engine() const { return *engine_; }
  const EnergyMeter& energy() const { return energy_; }

  void run(int repetitions, bool warm_up) {
    if (warm_up) run(tests_.front(), -1);
    for (int i = 0; i < repetitions; ++i)
      for (Test& test : tests_) {
        progress_.show(test.name() + ", " + std::to_string(i + 1) + " of " +
                       std::to_string(repetitions));
        run(test, i);
      }
    progress_.clear();
  }

 private:
  static int generated(const Test& test) { return test.prefill ? 1 : 1 + test.tokens; }

  /// A repetition below 0 counts for nothing.
  void run(Test& test, int repetition) {
    Request request;
    request.prompt = prompts_->next(test.prefill ? test.tokens : kGenerationPrompt);
    request.sampling = sampling_.sampling();
    request.seed = sampling_.seed.value_or(0);
    request.max_new_tokens = generated(test);
    request.ignore_end = true;
    GenerateEvents events;
    events.on_step = [&](const StepProgress& step) {
      if (step.new_tokens > 0 || progress_.wants_glimpse())
        progress_.show(test.name() +
                       (repetition < 0 ? ", warm-up" : ", " + std::to_string(repetition + 1)) +
                       ": " + std::to_string(step.total_tokens) + " tokens in " +
                       std::to_string(step.step) + " steps");
    };
    const BatchReport report = engine_->generate({&request, 1}, events, stop_);
    if (stop_.stop_requested()) throw Stopped();
    require(report.texts.front().cached_tokens == 0, "a run's prompt was read by one before it");
    if (repetition < 0) return;
    const Seconds time = test.prefill ? report.prefill : report.decode;
    const double tokens_done = test.prefill ? test.tokens : report.decode_tokens;
    test.seconds.push_back(time.count());
    test.rates.push_back(tokens_done / time.count());
    test.joules += test.prefill ? report.prefill_energy : report.decode_energy;
    test.paid += tokens_done;
    if (test.prefill) return;
    test.steps += report.sweeps - 1;
    test.decoded += report.decode_tokens;
    test.bytes += static_cast<double>(report.link.disk_bytes);
    test.busy += report.link.busy.count();
    test.time += report.decode.count();
  }

  const SamplingOptions sampling_;
  std::vector<Test>& tests_;
  std::stop_token stop_;
  ProgressLine progress_;
  EnergyMeter energy_;
  std::optional<Engine> engine_;
  std::optional<TimedPrompts> prompts_;  // of the engine's tokenizer
};

json row_json(const Test& test, const ModelBench& bench, const std::string& model) {
  const Engine& engine = bench.engine();
  const Plan& plan = engine.plan();
  const Checkpoint& target = engine.models().target;
  std::uint64_t size = 0;
  for (const TensorEntry& tensor : target.tensors()) size += tensor.bytes;
  json row{{"build_version", CANOPY_VERSION},
           {"cpu_info", engine.device_name()},
           {"model_filename", model},
           {"model_type", target.config().architecture},
           {"model_size", size},
           {"model_n_params", parameters(target)},
           {"n_threads", engine.placement().threads},
           {"memory_bytes", plan.memory},
           {"resident_bytes", plan.resident_bytes},
           {"sweep_bytes", plan.sweep_bytes},
           {"spec", name(plan.method)},
           {"exact", !plan.changes()},
           {"changes", plan.changes() ? json(*plan.changes()) : json()},
           {"tree_size", plan.policy.shape.size()},
           {"tree_depth", plan.policy.shape.levels()},
           {"n_prompt", test.prefill ? test.tokens : 0},
           {"n_gen", test.prefill ? 0 : test.tokens},
           {"test_date", today()},
           {"avg_seconds", mean(test.seconds)},
           {"stddev_seconds", deviation(test.seconds)},
           {"avg_ts", mean(test.rates)},
           {"stddev_ts", deviation(test.rates)},
           {"samples_ts", test.rates}};
  const auto per = [](double sum, double count) { return count > 0 ? json(sum / count) : json(); };
  row["tokens_per_step"] = per(test.decoded, test.steps);
  row["bytes_per_token"] = per(test.bytes, test.decoded);
  row["joules_per_token"] = joules_per_token(test.joules, test.paid);
  row["energy_missing"] = bench.energy().missing();
  row["link_busy"] = plan.resident ? json() : per(test.busy, test.time);
  return row;
}

void print_markdown(const std::vector<json>& rows) {
  const Table table({{"model", 0, Align::kLeft},
                     {"size"},
                     {"params"},
                     {"budget"},
                     {"threads"},
                     {"method", 0, Align::kLeft},
                     {"nodes"},
                     {"test"},
                     {"t/s"},
                     {"tokens/step"},
                     {"J/token"},
                     {"link busy"}});
  std::cout << table.markdown_head();
  for (const json& r : rows) {
    const bool prefill = r["n_prompt"].get<int>() > 0;
    std::cout << Table::markdown_row(
        {std::filesystem::path(r["model_filename"].get<std::string>()).filename().string(),
         format_size(r["model_size"]), figure(r, "model_n_params", 2, 1e-9) + " B",
         format_size(r["memory_bytes"]), figure(r, "n_threads", 0),
         std::string(r["exact"].get<bool>() ? "" : "~").append(r["spec"].get<std::string>()),
         figure(r, "tree_size", 0),
         std::string(prefill ? "pp" : "tg").append(figure(r, prefill ? "n_prompt" : "n_gen", 0)),
         figure(r, "avg_ts", 2) + " ± " + figure(r, "stddev_ts", 2),
         figure(r, "tokens_per_step", 2), figure(r, "joules_per_token", 2),
         r["link_busy"].is_null() ? "-" : figure(r, "link_busy", 0, 100) + " %"});
  }
}

}  // namespace

int run_bench_model(const std::vector<std::string>& words) {
  Options options;
  if (!parse(words, kUsage, options.flags())) return 0;
  std::vector<Test> tests;
  add_tests("--n-prompt", options.prompts, true, tests);
  add_tests("--n-gen", options.generations, false, tests);
  if (tests.empty()) throw UsageError("--n-prompt, --n-gen: both are 0: nothing to measure");

  const Interrupt interrupt;
  ModelBench bench(options.decode, tests, interrupt);
  bench.run(options.repetitions, !options.no_warmup);
  std::vector<json> rows;
  for (const Test& test : tests) rows.push_back(row_json(test, bench, options.decode.model.model));
  if (options.format == "md") print_markdown(rows);
  if (options.format == "csv") std::cout << csv_table(rows);
  if (options.format == "json") std::cout << json_text(json(rows), 2) << "\n";
  if (options.format == "jsonl")
    for (const json& row : rows) std::cout << json_text(row) << "\n";
  return 0;
}

}  // namespace canopy::cli
