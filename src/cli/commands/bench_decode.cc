// canopy bench decode: every method of speculation on the same prompts, in one table.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/chain_cost.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/bench_runs.h"
#include "src/cli/options/decode_options.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/prompt_file.h"
#include "src/cli/options/values.h"
#include "src/cli/output/decode_table.h"
#include "src/cli/output/energy_json.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/output/table.h"
#include "src/cli/ranks.h"
#include "src/engine/ranks/plan_together.h"
#include "src/measure/calibration_prompts.h"
#include "src/measure/decode.h"
#include "src/measure/rouge.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr int kLongestChain = 64;  // that is looked at for the best

constexpr const char* kUsage =
    "usage: canopy bench decode -m MODEL -md DRAFT [--temp T] [--tree-sizes LIST] [FLAG ...]\n\n"
    "Continues the same prompts by every method and prints what each gains: tokens per step with\n"
    "their 95% interval, seconds per token as predicted and as measured, joules and bytes per "
    "token. Without\n"
    "--tree-size(s) or --tree each method has the tree that generate would give it; with one there "
    "are\n"
    "chains of as many nodes, too.";

struct Options {
  std::string methods = "all";
  std::optional<std::vector<int>> tree_sizes;
  std::optional<std::string> prompts, csv;
  int examples = 8, prompt_tokens = 128, new_tokens = 128, sequences = 1;
  bool json = false, perplexity = false, reproducible = false;
  DecodeOptions decode;
  RankOptions ranks;

  Flags flags() {
    const auto sizes = [](const std::string& flag, const std::string& text) {
      return parse_numbers(flag, text, 2, kMostTreeNodes);
    };
    Flags what("What to measure");
    what.add_options()  //
        ("methods", into(methods, "LIST"),
         "of none, chain, adaptive, hierarchy (with -mdd), sequoia, calibrated, specinfer, spectr, "
         "naive, topk, gsd, gsd-sequoia, tsd, ssd, gsd-ratio, bild, mtad, with commas between; the "
         "last three are not exact, and marked so. self-ssd is not among all: it needs a --memory "
         "that lets a part of the model travel")  //
        ("tree-sizes", into(tree_sizes, "LIST", "--tree-sizes", sizes),
         "trees and chains of these sizes, one after another, beside the chain that generate would "
         "take")  //
        ("prompts", into(prompts, "FILE"),
         (std::string(kPromptsHelp) +
          "; with a \"reference\" each, too, ROUGE-1, -2 and -L (F1) of the continuations up to "
          "their first end token")
             .c_str())  //
        ("examples", into(examples, "N", at_least("--examples", 1)),
         "prompts to continue; texts are cut at several places where there are fewer")  //
        ("prompt-tokens", into(prompt_tokens, "N", tokens_from(1, "--prompt-tokens")),
         "tokens of each prompt; a shorter text is taken whole")  //
        (kLengthFlag, into(new_tokens, "N", tokens_from(2, "--n-predict")),
         "tokens of each continuation; end tokens do not end it")  //
        ("perplexity", given(perplexity),
         "also of each method's texts, under the model's own distribution, nothing warped; and at "
         "temperature 0 the share of tokens that are plain decoding's, where none is among the "
         "methods")  //
        ("reproducible", given(reproducible),
         "as of requests with a seed: the model's own sample decides, whatever a method draws")  //
        ("num-sequences", into(sequences, "B", at_least("--num-sequences", 1)),
         "prompts that share sweeps: more tokens in the same time, but no longer the time of one");
    Flags output("Output");
    output.add_options()                                                   //
        ("json", given(json), "print a JSON object instead of the table")  //
        ("csv", into(csv, "FILE"), "write the table as CSV, too");
    Flags all;
    all.add(what);
    decode.add_flags(all);
    return all.add(decode.sampling.edit_flags()).add(ranks.flags()).add(output);
  }
};

/// A chain by the formulas of arXiv:2211.17192, and what was measured of it.
struct ChainFigures {
  double alpha = 0, c = 0, c_ops = 0;  // c as measured; c_ops by the models' parameters
  int g = 0;
  double operations = 0;  // per token, to plain decoding's, by the rows that were run
};

/// A method's line of the table.
struct Row {
  SpeculationMethod method;
  int tree_size = 1, tree_depth = 1, sequences = 1;
  DecodeMeasurement measured = {};
  Candidate predicted = {};
  std::optional<double> equal = {};  // share of tokens that are plain decoding's, at temperature 0
  std::optional<Rouge> rouge = {};   // against references, where prompts have any
  std::string changes = {};          // what an inexact rule changes
  bool predicts_tokens = false;      // the acceptance vector says something of this method
  std::optional<ChainFigures> chain = {};
};

/// Each name begins with "chain_", so that rows stay flat; null where there is no chain.
json chain_json(const std::optional<ChainFigures>& chain) {
  const ChainFigures f = chain.value_or(ChainFigures());
  json out{{"chain_gamma", f.g},
           {"chain_alpha", f.alpha},
           {"chain_c", f.c},
           {"chain_c_operations", f.c_ops},
           {"chain_tokens_per_step", chain_tokens(f.alpha, f.g)},
           {"chain_speedup", chain_speedup(f.alpha, f.g, f.c)},
           {"chain_operations", chain_operations(f.alpha, f.g, f.c_ops)},
           {"chain_measured_operations", f.operations},
           {"chain_bytes", 1 / chain_tokens(f.alpha, f.g)},
           {"chain_best_gamma", best_chain_length(f.alpha, f.c, kLongestChain)}};
  for (json& figure : out)
    if (!chain) figure = nullptr;
  return out;
}

/// Describes what ended the runs of a draft that goes on while it is sure; null where no draft
/// does.
json runs_json(const Row& r) {
  json out{{"run_length", {}}, {"fallbacks_per_100_tokens", {}}, {"rollbacks_per_100_tokens", {}}};
  const double per_step = r.measured.tokens_per_step.mean;
  if (row_of(r.method).growth != Growth::Kind::kConfidence || per_step == 0) return out;
  const std::vector<double> runs = r.measured.trees.by_longest();
  double length = 0, cut = 0;
  for (std::size_t n = 0; n < runs.size(); ++n) {
    length += static_cast<double>(n) * runs[n];
    if (static_cast<int>(n) < r.tree_size - 1) cut += runs[n];
  }
  out["run_length"] = length;
  out["fallbacks_per_100_tokens"] = 100 * cut / per_step;
  out["rollbacks_per_100_tokens"] = 100 * r.measured.trees.refused() / per_step;
  return out;
}

json row_json(const Row& r) {
  const DecodeMeasurement& m = r.measured;
  const Candidate& p = r.predicted;
  const auto known = [](double value) { return value > 0 ? json(value) : json(); };
  json row{
      {"method", name(r.method)},
      {"exact", r.changes.empty()},
      {"changes", r.changes.empty() ? json() : json(r.changes)},
      {"tree_size", r.tree_size},
      {"tree_depth", r.tree_depth},
      {"sequences", r.sequences},
      {"tokens_per_step", m.tokens_per_step.mean},
      {"tokens_per_step_half_width", m.tokens_per_step.half_width()},
      {"tokens_per_step_outside_loops", known(m.outside_loops.mean)},
      {"predicted_tokens_per_step", r.predicts_tokens ? known(p.tokens) : json()},
      {"seconds_per_token", m.seconds_per_token},
      {"predicted_seconds_per_token", r.predicts_tokens ? known(p.per_token().count()) : json()},
      {"joules_per_token", joules_per_token(m.joules, m.tokens)},
      {"bytes_per_token", m.bytes_per_token},
      {"seconds_per_step", m.step.count()},
      {"predicted_seconds_per_step", known(p.cost.step.count())},
      {"compute_seconds", m.compute.count()},
      {"predicted_compute_seconds", p.cost.compute.count()},
      {"draft_seconds", m.drafting.count()},
      {"predicted_draft_seconds", p.cost.draft.count()},
      {"rows_per_token", m.rows_per_token},
      {"draft_rows_per_token", m.draft_rows_per_token},
      {"drafted_share", m.drafted_share},
      {"accepted_of_checked", m.accepted_of_checked},
      {"copied_steps", m.copied_steps},
      {"accepted_of_longest", m.trees.accepted_of_longest()},
      {"accepted_by_rank", m.trees.accepted_by_rank()},
      {"steps_by_accepted", m.trees.by_accepted()},
      {"drafted_nodes_per_text", m.drafted_per_text},
      {"checked_nodes_per_text", m.checked_per_text},
      {"perplexity", known(m.perplexity)},
      {"equal_to_plain", r.equal ? json(*r.equal) : json()}};
  row["texts"] = json::array();
  for (const StepTally& text : m.tallies)
    row["texts"].push_back({{"tokens", text.tokens}, {"steps", text.steps}});
  for (std::size_t n = 1; n <= TreeFigures::kLongestGram; ++n)
    row["recurring_" + std::to_string(n)] = m.trees.recurring()[n - 1];
  if (r.rouge)
    row.update({{"rouge_1", r.rouge->one}, {"rouge_2", r.rouge->two}, {"rouge_l", r.rouge->l}});
  row.update(runs_json(r));
  row.update(chain_json(r.chain));
  return row;
}

class DecodeBench {
 public:
  DecodeBench(const Options& asked, EngineOptions options, const Interrupt& interrupt)
      : flags_(asked.decode),
        options_(std::move(options)),
        stop_(interrupt.token()),
        progress_(flags_.model.progress),
        new_tokens_(asked.new_tokens),
        perplexity_(asked.perplexity),
        reproducible_(asked.reproducible) {
    options_.plan.max_prompt = asked.prompt_tokens;
    options_.plan.max_sequences = asked.sequences;
    if (options_.plan.context == 0) options_.plan.context = options_.plan.max_prompt + new_tokens_;
    if (options_.plan.context < options_.plan.max_prompt + new_tokens_)
      throw UsageError("--ctx-size: prompt and continuation have " +
                       std::to_string(options_.plan.max_prompt + new_tokens_) + " tokens");
    const ModelFiles models = flags_.open(options_.plan, stop_);
    flags_.sampling.check_tokens(models.target.config().vocab);
    Assumptions assumed = flags_.find_assumptions(models, options_, progress_, stop_);
    options_.plan.cost = std::make_shared<CostModel>(std::move(assumed.profile),
                                                     network_of(models.target, options_.cluster));
    options_.energy = &energy_;
    const std::vector<PromptText> texts = read_prompts(asked.prompts, stop_);
    for (const PromptText& prompt : texts)
      flags_.model.require_room_to_encode(prompt.text, "a text of " + prompts_name(asked.prompts));
    prompts_ =
        cut_prompts(*models.tokenizer, texts_of(texts), asked.examples, options_.plan.max_prompt);
    if (prompts_.empty())
      throw Error(prompts_name(asked.prompts) + ": there is no prompt of any token");
    take_references(*models.tokenizer, texts);
    of_ = {
        {"target", model_name(models.target)},
        {"draft", models.draft   ? model_name(*models.draft)
                  : models.heads ? "Medusa heads"
                                 : flags_.speculation.draft.value_or("")},
        {"sampling", flags_.sampling.in_words()},
        {"prompts", prompts_.size()},
        {"new_tokens", new_tokens_},
        {"acceptance", assumed.acceptance_from},
        {"references", std::ranges::count_if(references_, [](auto& r) { return r.has_value(); })}};
  }

  /// Returns what all rows are of.
  const json& of() const { return of_; }
  const EnergyMeter& energy() const { return energy_; }

  Row measure(SpeculationMethod method, int tree_size) {
    EngineOptions options = options_;
    options.plan.tree_size = tree_size;
    options.plan = request_for(options.plan, method);
    Engine engine(
        flags_.open(options.plan, stop_), options,
        [&](std::uint64_t done, std::uint64_t all) { progress_.show_loading(done, all); }, stop_);
    const Plan& plan = engine.plan();
    Row row{
        .method = method,
        .tree_size = plan.policy.shape.size(),
        .tree_depth = row_of(method).form == TreeForm::kGraph
                          ? std::min(plan.policy.shape.size(), plan.policy.growth.steps + 1)
                          : plan.policy.shape.levels(),
        .sequences = plan.max_sequences,
        .predicted = plan.prediction ? plan.prediction->best : Candidate(),
        .changes = plan.changes().value_or(""),
        // The vector was measured with Sequoia's drawing, at temperature 0 with the draft's best.
        .predicts_tokens =
            plan.prediction && (options.plan.temperature == 0 || options.plan.draft ||
                                row_of(method).drawing == Drawing::kSequoia)};
    const auto on_step = [&](std::size_t first, const StepProgress& step) {
      if (step.new_tokens > 0 || progress_.wants_glimpse())
        progress_.show(std::string(name(method)) + ": prompt " + std::to_string(first + 1) +
                       " of " + std::to_string(prompts_.size()) + ", " +
                       std::to_string(step.total_tokens) + " tokens in " +
                       std::to_string(step.step) + " steps");
    };
    row.measured = measure_decode(engine, requests(), on_step, stop_);
    if (plan.method == SpeculationMethod::kChain) row.chain = chain_figures(engine, row);
    row.rouge = mean_rouge(engine.models(), row.measured.texts);
    if (options.plan.temperature == 0) {
      if (method == SpeculationMethod::kNone) plain_ = row.measured.texts;
      if (perplexity_ && !plain_.empty()) row.equal = share_of_equal(row.measured.texts, plain_);
    }
    return row;
  }

  void end() { progress_.clear(); }

 private:
  /// Takes what each prompt's continuation is compared with. A cut prompt's would be another.
  /// Throws UsageError.
  void take_references(const Tokenizer& tokenizer, std::span<const PromptText> texts) {
    for (const PromptCut& prompt : prompts_) {
      const PromptText& from = texts[static_cast<std::size_t>(prompt.text)];
      references_.push_back(from.reference);
      if (!from.reference) continue;
      const std::size_t whole = tokenizer.encode(from.text, AddSpecial::kYes).size();
      if (whole > prompt.tokens.size())
        throw UsageError("--prompt-tokens: prompt " + std::to_string(prompt.text + 1) +
                         " has a reference and " + std::to_string(whole) +
                         " tokens, and is not to be cut");
    }
  }

  /// Over the texts that have a reference; nothing where none has.
  std::optional<Rouge> mean_rouge(const ModelFiles& models,
                                  const std::vector<std::vector<TokenId>>& texts) const {
    const std::vector<TokenId>& ends = models.target.config().end_tokens;
    Rouge sum;
    double count = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (!references_[i]) continue;
      const auto end = std::ranges::find_first_of(texts[i], ends);
      const std::string text = models.tokenizer->decode({texts[i].begin(), end}, AddSpecial::kNo);
      const Rouge of = rouge(text, *references_[i]);
      sum = {sum.one + of.one, sum.two + of.two, sum.l + of.l};
      ++count;
    }
    if (count == 0) return std::nullopt;
    return Rouge{sum.one / count, sum.two / count, sum.l / count};
  }

  /// The share of tokens that are equal to plain decoding's in the same place.
  static double share_of_equal(const std::vector<std::vector<TokenId>>& texts,
                               const std::vector<std::vector<TokenId>>& plain) {
    double equal = 0, all = 0;
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (std::size_t k = 0; k < std::min(texts[i].size(), plain[i].size()); ++k, ++all)
        equal += texts[i][k] == plain[i][k] ? 1 : 0;
    return all > 0 ? equal / all : 0;
  }
  static ChainFigures chain_figures(const Engine& engine, const Row& row) {
    ChainFigures f;
    f.g = row.tree_size - 1;
    f.alpha = std::min(1.0, engine.plan().acceptance.accept.front());
    const Seconds sweep = row.measured.step - row.measured.drafting;
    if (sweep.count() > 0) f.c = row.measured.drafting / f.g / sweep;
    const ModelFiles& models = engine.models();
    if (models.draft)
      f.c_ops = static_cast<double>(parameters(*models.draft)) /
                static_cast<double>(parameters(models.target));
    f.operations = (f.g * f.c_ops + f.g + 1) / row.measured.tokens_per_step.mean;
    return f;
  }

  std::vector<Request> requests() const {
    std::vector<Request> requests(prompts_.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request& r = requests[i];
      r.prompt = prompts_[i].tokens;
      r.sampling = flags_.sampling.sampling();
      r.edits = flags_.sampling.edits();
      r.seed = flags_.sampling.seed.value_or(0);
      r.sequence = static_cast<std::uint32_t>(i);
      r.max_new_tokens = new_tokens_;
      r.ignore_end = true;
      r.reproducible = reproducible_;
      if (perplexity_) r.logprobs = 1;
    }
    return requests;
  }

  const DecodeOptions flags_;
  EngineOptions options_;
  std::stop_token stop_;
  ProgressLine progress_;
  EnergyMeter energy_;
  const int new_tokens_;
  const bool perplexity_, reproducible_;
  std::vector<std::vector<TokenId>> plain_;  // texts, once they are known
  json of_;
  std::vector<PromptCut> prompts_;
  std::vector<std::optional<std::string>> references_;  // one per prompt
};

int measure_methods(Options& asked, const Interrupt& interrupt, Cluster* cluster) {
  const SpeculationOptions& speculation = asked.decode.speculation;
  if (!speculation.drafts())
    throw UsageError("bench decode: give a draft model with -md, or heads with --medusa");
  if (speculation.method) throw UsageError("--spec: bench decode takes --methods");
  asked.decode.speculation.every_method = true;
  EngineOptions options = asked.decode.engine_options();
  asked.ranks.put_into(options, cluster);
  const std::vector<SpeculationMethod> methods = parse_methods(
      asked.methods, options.plan.draft || speculation.medusa, speculation.inner_draft.has_value());
  if (asked.tree_sizes && (speculation.tree_size || speculation.tree))
    throw UsageError("--tree-sizes: says the same as --tree-size and --tree; give one of them");
  const std::vector<int> sizes = asked.tree_sizes.value_or(std::vector{options.plan.tree_size});
  const auto runs = runs_of(methods, sizes, options.plan.shape);
  std::optional<TextOutput> table;
  if (asked.csv) table.emplace(*asked.csv);

  std::vector<json> rows;
  json out;
  bool stopped = false;
  try {
    print_notes(options.device);
    DecodeBench bench(asked, options, interrupt);
    out = bench.of();
    print_energy_note(bench.energy());
    for (const auto& [method, size] : runs) {
      rows.push_back(row_json(bench.measure(method, size)));
      out["energy_missing"] = bench.energy().missing();
    }
    bench.end();
  } catch (const Stopped&) {
    std::cerr << "canopy bench decode: stopped; " << rows.size() << " of " << runs.size()
              << " rows are done\n";
    if (rows.empty()) return Interrupt::exit_code();
    stopped = true;
  }
  if (asked.json) {
    out["rows"] = rows;
    std::cout << json_text(out, 2) << "\n";
  } else {
    std::cout << out["prompts"] << " prompts; acceptance: " << out["acceptance"].get<std::string>()
              << "\n";
    print_decode(rows);
  }
  if (table) table->write(csv_table(rows));
  return stopped ? Interrupt::exit_code() : 0;
}

}  // namespace

int run_bench_decode(const std::vector<std::string>& words) {
  Options asked;
  const auto parse_words = [&](GivenFlags& given) {
    return parse(words, kUsage, asked.flags(), given);
  };
  return run_shared({"canopy bench decode", asked.ranks, asked.decode.model, parse_words,
                     [&](Interrupt& interrupt, Cluster* cluster) {
                       return measure_methods(asked, interrupt, cluster);
                     }});
}

}  // namespace canopy::cli
