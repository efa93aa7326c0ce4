// canopy calibrate acceptance: the acceptance vector of a draft and a target, by the paper's
// procedure.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "planner/acceptance_file.h"
#include "planner/acceptance_sample.h"
#include "src/base/ambient.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/checkpoint/fingerprint.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/model/profile.h"
#include "src/cli/options/prompt_file.h"
#include "src/cli/options/sampling_options.h"
#include "src/cli/options/speculation_options.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/table.h"
#include "src/measure/acceptance.h"

namespace canopy::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kUsage =
    "usage: canopy calibrate acceptance -m MODEL -md DRAFT [--temp T] [--prompts FILE] [FLAG "
    "...]\n\n"
    "Lets the model continue prompts and asks at each position which of the draft's children it\n"
    "would accept: p(k), the chance that child k is the accepted one. A plan is made from it. As\n"
    "many continuations as fit in memory share each sweep over the model.";

struct Options {
  std::optional<std::string> draft, prompts, output, walks;
  int examples = 200, prompt_tokens = 128, new_tokens = 128;
  bool json = false;
  SamplingOptions sampling;
  ModelOptions model;

  Flags flags() {
    Flags all, what("What to measure");
    what.add_options()  //
        ("model-draft", into(draft, "PATH|SOURCE"),
         "-md: the draft model, or copy[:M], ngram:1, ngram:2, random, as in generate; these take "
         "an --output, which generate takes as --acceptance")  //
        ("prompts", into(prompts, "FILE"),
         kPromptsHelp)  //
        ("examples", into(examples, "N", at_least("--examples", 2)),
         "continuations; texts are cut at several places where there are fewer")  //
        ("prompt-tokens", into(prompt_tokens, "N", tokens_from(1, "--prompt-tokens")),
         "tokens of each prompt; a shorter text is taken whole")  //
        (kLengthFlag, into(new_tokens, "N", tokens_from(1, "--n-predict")),
         "tokens of each continuation, unless the model ends it");
    add_draft_repository_flag(what);
    Flags output_flags("Output");
    output_flags.add_options()                                                //
        ("json", given(json), "print one JSON object instead of the tables")  //
        ("output,o", into(output, "FILE"),
         "keep the vector there (default: in the user's cache directory, under the two models and "
         "the sampling)")  //
        ("walks", into(walks, "FILE"),
         "also write a line of JSON for each continuation: its text, from 0, and at each position "
         "the child that it went on with, from 0, or -1 where that was none. Any tree's tokens per "
         "sweep follow from these");
    return all.add(what).add(sampling.flags()).add(model.flags()).add(output_flags);
  }
};

fs::path where_to_keep(const std::optional<std::string>& output,
                       const MeasuredAcceptance& measured) {
  if (output) return *output;
  return cache_dir() / acceptance_file_name(measured.target, measured.draft, measured.sampling);
}

std::string describe(const AcceptanceProgress& p, int runs, int new_tokens) {
  std::ostringstream line;
  line << "continuation " << p.runs_done << " of " << runs << " done, " << p.positions
       << " positions in " << p.sweeps << " sweeps, layer " << std::min(p.layer + 1, p.layers)
       << "/" << p.layers;
  if (p.positions > 0) {
    const double all = static_cast<double>(runs) * new_tokens;
    const double left = p.since_start.count() * (all / static_cast<double>(p.positions) - 1);
    line << ", at most " << std::lround(std::max(left, 0.0)) << " s left";
  }
  return line.str();
}

const char* in_words(Drawing drawing) {
  return drawing == Drawing::kTopK ? "top-k" : "sequoia";  // the two that a probe is planned with
}

// ---- for people

std::string with_interval(const Estimate& e, int places) {
  return fixed(e.mean, places) + " +-" + fixed(e.half_width(), places);
}

double total(const AcceptanceEstimate& e) { return 1 - e.reject.back().mean; }

/// The cells of one half of the table by depth.
void add_cells(const AcceptanceAfter& after, std::vector<std::string>& cells) {
  const auto estimate = [&](const Estimate& e, bool is_off) {
    return after.first.groups < 2 ? "- " : with_interval(e, 3) + (is_off ? "*" : " ");
  };
  cells.push_back(std::to_string(after.positions));
  cells.push_back(estimate(after.first, after.first_is_off));
  cells.push_back(estimate(after.any, after.any_is_off));
}

void print_by_depth(const AcceptanceEstimate& e) {
  static const Table table({{.head = "d", .width = 3, .before = ""},
                            {.head = "positions", .width = 10},
                            {.head = "p(1) ", .width = 16},
                            {.head = "any child ", .width = 16},
                            {.head = "positions", .width = 10},
                            {.head = "p(1) ", .width = 16},
                            {.head = "any child ", .width = 16}});
  std::cout << "\nDoes acceptance depend on what came before? At positions that follow at least d "
               "in a row\n"
               "     of which a child was accepted                of which the first child was\n"
            << table.head();
  bool any = false;
  for (std::size_t d = 0; d < e.after_any.size(); ++d) {
    std::vector<std::string> cells{std::to_string(d)};
    for (const AcceptanceAfter& after : {e.after_any[d], e.after_first[d]}) {
      add_cells(after, cells);
      any = any || after.first_is_off || after.any_is_off;
    }
    std::cout << table.row(cells);
  }
  std::cout
      << (any ? "* differs from d = 0 by more than its 95% interval: acceptance depends on "
                "what came before,\n  which the prediction of tokens per step neglects.\n"
              : "None differs from d = 0 by more than its 95% interval: nothing speaks against "
                "independence.\n");
}

void print_by_child(const AcceptanceEstimate& e) {
  static const Table table({{.head = "k", .width = 3, .before = ""},
                            {.head = "p(k)", .width = 17, .align = Align::kLeft, .before = "  "},
                            {.head = "none of k: r(k)", .width = 21},
                            {.head = "went on with child k", .width = 21}});
  std::cout << "alpha = " << with_interval(e.alpha, 4)
            << ", the chance that one token drawn from the draft is accepted; 1 - alpha = "
            << fixed(1 - e.alpha.mean, 4) << "; its variance over positions "
            << fixed(e.overlap_variance, 4) << "\n\n"
            << table.head();
  std::size_t last = e.accept.size();  // that was ever accepted
  while (last > 1 && e.accept[last - 1].mean == 0) --last;
  for (std::size_t k = 0; k < last; ++k)
    std::cout << table.row({std::to_string(k + 1), with_interval(e.accept[k], 5),
                            with_interval(e.reject[k], 5), std::to_string(e.taken[k])});
  if (last < e.accept.size()) std::cout << "  .. " << e.accept.size() << " none\n";
}

void print_for_people(const AcceptanceEstimate& with,
                      const std::optional<AcceptanceEstimate>& without, const MeasuredAcceptance& m,
                      const fs::path& kept) {
  std::cout << "Acceptance of " << m.draft_name << " for " << m.target_name << "\n"
            << with.runs << " continuations of prompts cut from " << with.texts << " texts ("
            << m.prompts << "): " << with.positions << " positions.\n"
            << "Temperature " << fixed(m.sampling.temperature, 2) << ", top-k " << m.sampling.top_k
            << ", top-p " << fixed(m.sampling.top_p, 2) << ", min-p " << fixed(m.sampling.min_p, 2)
            << ", typical-p " << fixed(m.sampling.typical_p, 2) << "; children: "
            << (m.drawing == "top-k" ? "the draft's best" : "drawn without replacement")
            << ". 95% intervals, texts differing.\n\n";
  print_by_child(with);
  if (const auto& law = with.power_law)
    std::cout << "\nr(k) ~ k^-b with b = " << fixed(law->exponent, 3) << " +- "
              << fixed(law->error, 3) << " (standard error) for k = 1.." << law->children
              << "; r(k) is off that by " << fixed(100 * std::expm1(law->misfit), 0) << "%.\n";
  else
    std::cout << "\nToo few refusals for the exponent of a power law.\n";
  print_by_depth(with);
  std::cout << "\nLoops (the text before repeats with a period of at most " << kLoopPeriod
            << " tokens, " << kLoopRounds
            << " times or more): " << with.positions - (without ? without->positions : 0) << " of "
            << with.positions << " positions.\n";
  if (without)
    std::cout << "Without them p(1) = " << with_interval(without->accept[0], 4) << " instead of "
              << with_interval(with.accept[0], 4) << ", all children " << fixed(total(*without), 4)
              << " instead of " << fixed(total(with), 4) << ".\n";
  std::cout << "\nKept in " << kept.string() << "\n";
}

// ---- for programs

ordered_json to_object(const Estimate& e) {
  return {{"mean", e.mean}, {"standard_error", e.error}, {"half_width", e.half_width()}};
}

ordered_json to_object(const AcceptanceEstimate& e) {
  const auto list = [](const auto& items, const auto& of) {
    ordered_json out = ordered_json::array();
    for (const auto& item : items) out.push_back(of(item));
    return out;
  };
  const auto estimates = [&](const auto& items) {
    return list(items, [](const Estimate& one) { return to_object(one); });
  };
  const auto depths = [&](const auto& items) {
    return list(items, [](const AcceptanceAfter& a) {
      return ordered_json{{"depth", a.depth},
                          {"positions", a.positions},
                          {"first", to_object(a.first)},
                          {"any", to_object(a.any)},
                          {"first_is_off", a.first_is_off},
                          {"any_is_off", a.any_is_off}};
    });
  };
  ordered_json out{{"positions", e.positions},
                   {"texts", e.texts},
                   {"alpha", to_object(e.alpha)},
                   {"overlap_variance", e.overlap_variance},
                   {"accept", estimates(e.accept)},
                   {"reject", estimates(e.reject)},
                   {"taken", e.taken},
                   {"deeper", e.deeper},
                   {"power_law", nullptr},
                   {"after_accepted", depths(e.after_any)},
                   {"after_first_child", depths(e.after_first)}};
  if (const auto& law = e.power_law)
    out["power_law"] = {{"exponent", law->exponent},
                        {"standard_error", law->error},
                        {"misfit", law->misfit},
                        {"children", law->children}};
  return out;
}

/// A line for each continuation, for --walks.
std::string walks_of(const std::vector<AcceptanceRun>& runs) {
  std::string lines;
  for (const AcceptanceRun& run : runs) {
    std::vector<int> taken;
    for (const AcceptanceRun::Position& position : run.positions) taken.push_back(position.taken);
    lines += json_text(ordered_json{{"text", run.text}, {"taken", taken}}) + "\n";
  }
  return lines;
}

// ---- the measurement

/// Makes the request of what will be measured, and how. Throws UsageError.
AcceptanceRequest request_for(const Options& asked, PlanRequest& plan) {
  AcceptanceRequest request;
  request.sampling = asked.sampling.sampling();
  request.seed = asked.sampling.seed.value_or(0);
  request.new_tokens = asked.new_tokens;
  plan.probe = true;
  plan.temperature = static_cast<double>(request.sampling.temperature);
  plan.max_prompt = asked.prompt_tokens;
  const int context = plan.max_prompt + request.new_tokens;
  if (plan.context != 0 && plan.context < context)
    throw UsageError("--ctx-size: prompt and continuation have " + std::to_string(context) +
                     " tokens");
  plan.context = context;
  return request;
}

MeasuredAcceptance facts_of(const Options& asked, const ModelFiles& models) {
  MeasuredAcceptance measured;
  measured.sampling = asked.sampling.sampling();
  measured.target = fingerprint(models.target);
  measured.target_name = model_name(models.target);
  measured.draft = models.draft ? fingerprint(*models.draft) : *asked.draft;
  measured.draft_name = models.draft ? model_name(*models.draft) : *asked.draft;
  measured.prompts = prompts_name(asked.prompts);
  measured.date = today();
  measured.version = CANOPY_VERSION;
  return measured;
}

/// Throws Error if there are too few to compare.
std::vector<PromptCut> find_prompts(const Options& asked, const Tokenizer& tokenizer,
                                    const std::stop_token& stop) {
  const std::vector<std::string> texts = texts_of(read_prompts(asked.prompts, stop));
  for (const std::string& text : texts)
    asked.model.require_room_to_encode(text, "a text of " + prompts_name(asked.prompts));
  if (texts.size() < 2)
    throw Error(prompts_name(asked.prompts) +
                ": at least two texts are needed, to see how far they differ");
  std::vector<PromptCut> prompts =
      cut_prompts(tokenizer, texts, asked.examples, asked.prompt_tokens);
  if (std::ssize(prompts) < asked.examples)
    aside() << "note: the " << texts.size() << " texts give only " << prompts.size()
            << " different prompts\n";
  return prompts;
}

/// Counts the positions outside loops; nothing unless two texts have some.
std::optional<AcceptanceEstimate> estimate_outside_loops(const std::vector<AcceptanceRun>& runs) {
  std::set<int> texts;
  for (const AcceptanceRun& run : runs)
    for (const auto& position : run.positions)
      if (!position.in_loop) texts.insert(run.text);
  if (texts.size() < 2) return std::nullopt;
  return estimate_acceptance(runs, Loops::kWithout);
}

void take(const AcceptanceEstimate& estimate, MeasuredAcceptance& measured) {
  for (const Estimate& p : estimate.accept) {
    measured.acceptance.accept.push_back(p.mean);
    measured.standard_error.push_back(p.error);
  }
  measured.positions = estimate.positions;
  measured.examples = estimate.runs;
  measured.texts = estimate.texts;
}

/// Adds what was asked for, and the estimates.
void tell(const Options& asked, const AcceptanceRequest& request, const AcceptanceEstimate& with,
          const std::optional<AcceptanceEstimate>& without, ordered_json& object) {
  object["seed"] = request.seed;
  object["prompt_tokens"] = asked.prompt_tokens;
  object["new_tokens"] = request.new_tokens;
  object["loop"] = {{"period", kLoopPeriod}, {"rounds", kLoopRounds}};
  object["all"] = to_object(with);
  object["outside_loops"] = without ? to_object(*without) : ordered_json();
}

}  // namespace

int run_calibrate_acceptance(const std::vector<std::string>& words) {
  Options asked;
  if (!parse(words, kUsage, asked.flags())) return 0;
  EngineOptions options = asked.model.engine_options();
  if (!asked.draft) throw UsageError("acceptance is of a draft: give one with -md");
  options.plan.draft = draft_without_model(*asked.draft);
  if (options.plan.draft && !asked.output)
    throw UsageError("--output: is needed with -md " + *asked.draft +
                     ": what is kept by itself is kept of two models");
  AcceptanceRequest request = request_for(asked, options.plan);

  const Interrupt interrupt;
  ModelFiles models =
      open_models(local_model(asked.model.model, interrupt.token()),
                  options.plan.draft ? "" : local_model(*asked.draft, interrupt.token()), {},
                  asked.model.holes());
  MeasuredAcceptance measured = facts_of(asked, models);
  const std::vector<PromptCut> prompts = find_prompts(asked, *models.tokenizer, interrupt.token());
  request.prompts = prompts;
  options.plan.max_sequences = static_cast<int>(prompts.size());
  const fs::path kept = where_to_keep(asked.output, measured);
  TextOutput output = asked.output ? TextOutput(kept.string()) : open_in_cache(kept);
  std::optional<TextOutput> walks;
  if (asked.walks) walks.emplace(*asked.walks);

  ProgressLine progress(asked.model.progress);
  std::vector<AcceptanceRun> runs;
  bool by_level = false;
  try {
    Engine engine(
        std::move(models), options,
        [&](std::uint64_t done, std::uint64_t all) { progress.show_loading(done, all); },
        interrupt.token());
    progress.clear();
    print_notes(engine);
    const Drawing drawing = engine.plan().policy.drawing;
    measured.drawing = in_words(drawing);
    by_level = options.plan.draft || !target_decides(drawing);
    int shown = 0;
    runs = measure_acceptance(
        engine, request,
        [&](const AcceptanceProgress& p) {
          if (p.sweeps == shown && !progress.wants_glimpse()) return;
          shown = p.sweeps;
          progress.show(describe(p, static_cast<int>(prompts.size()), request.new_tokens));
        },
        interrupt.token());
  } catch (const Stopped&) {
    progress.clear();
    std::cerr << "canopy calibrate acceptance: stopped; nothing was kept\n";
    return Interrupt::exit_code();
  }
  progress.clear();

  const AcceptanceEstimate with = estimate_acceptance(runs, Loops::kWith);
  const std::optional<AcceptanceEstimate> without = estimate_outside_loops(runs);
  take(with, measured);
  if (by_level) measured.acceptance.deeper = with.deeper;
  output.write(to_json(measured));
  if (walks) walks->write(walks_of(runs));
  if (!asked.json) {
    print_for_people(with, without, measured, kept);
    return 0;
  }
  ordered_json object = ordered_json::parse(to_json(measured));
  object["kept_in"] = kept.string();
  tell(asked, request, with, without, object);
  std::cout << json_text(object, 2) << "\n";
  return 0;
}

}  // namespace canopy::cli
