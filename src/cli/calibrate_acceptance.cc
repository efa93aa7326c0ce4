// canopy calibrate acceptance: the acceptance vector of a draft and a target, by the paper's
// procedure.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/acceptance_file.h"
#include "planner/acceptance_sample.h"
#include "src/base/ambient.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"
#include "src/cli/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model_options.h"
#include "src/cli/options/profile.h"
#include "src/cli/options/prompt_file.h"
#include "src/cli/options/sampling_options.h"
#include "src/cli/output/progress_line.h"
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
  std::optional<std::string> draft, prompts, output;
  int examples = 200, prompt_tokens = 128, new_tokens = 128;
  bool json = false;
  SamplingOptions sampling;
  ModelOptions model;

  Flags flags() {
    Flags all, what("What to measure");
    what.add_options()                                                //
        ("model-draft", into(draft, "PATH"), "-md: the draft model")  //
        ("prompts", into(prompts, "FILE"),
         "prompts: JSON lines with a \"text\" each, or one prompt a line; - reads stdin (default: "
         "a "
         "set that comes with the program)")  //
        ("examples", into(examples, "N", at_least("--examples", 2)),
         "continuations; texts are cut at several places where there are fewer")  //
        ("prompt-tokens", into(prompt_tokens, "N", at_least("--prompt-tokens", 1)),
         "tokens of each prompt; a shorter text is taken whole")  //
        (kLengthFlag, into(new_tokens, "N", at_least("--n-predict", 1)),
         "tokens of each continuation, unless the model ends it");
    Flags output_flags("Output");
    output_flags.add_options()                                                //
        ("json", given(json), "print one JSON object instead of the tables")  //
        ("output,o", into(output, "FILE"),
         "keep the vector there (default: in the user's cache directory, under the two models and "
         "the sampling)");
    return all.add(what).add(sampling.flags()).add(model.flags()).add(output_flags);
  }
};

fs::path where_to_keep(const std::optional<std::string>& output,
                       const MeasuredAcceptance& measured) {
  if (output) return *output;
  return cache_dir() / acceptance_file_name(measured.target, measured.draft, measured.sampling);
}

std::string model_name(const Checkpoint& model) {
  const fs::path path = fs::absolute(model.root()).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
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

struct Number {
  double value;
  int places;
};
std::ostream& operator<<(std::ostream& out, const Number& n) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", n.places, n.value);
  return out << text;
}
std::string with_interval(const Estimate& e, int places) {
  std::ostringstream text;
  text << Number{e.mean, places} << " +-" << Number{e.half_width(), places};
  return text.str();
}
std::string padded(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

double total(const AcceptanceEstimate& e) { return 1 - e.reject.back().mean; }

void print_by_depth(const AcceptanceEstimate& e) {
  std::cout << "\nDoes acceptance depend on what came before? At positions that follow at least d "
               "in a row\n"
               "     of which a child was accepted                of which the first child was\n"
               "  d  positions  p(1)            any child         positions  p(1)            any "
               "child\n";
  for (std::size_t d = 0; d < e.after_any.size(); ++d) {
    std::cout << padded(std::to_string(d), 3);
    for (const AcceptanceAfter& after : {e.after_any[d], e.after_first[d]}) {
      std::cout << padded(std::to_string(after.positions), 11);
      if (after.first.groups < 2) {
        std::cout << padded("-", 9) << padded("-", 17) << std::string(10, ' ');
        continue;
      }
      std::cout << padded(with_interval(after.first, 3), 16) << (after.first_is_off ? "*" : " ")
                << padded(with_interval(after.any, 3), 16) << (after.any_is_off ? "*" : " ");
    }
    std::cout << "\n";
  }
  bool any = false;
  for (const auto* column : {&e.after_any, &e.after_first})
    for (const AcceptanceAfter& after : *column)
      any = any || after.first_is_off || after.any_is_off;
  std::cout
      << (any ? "* differs from d = 0 by more than its 95% interval: acceptance depends on "
                "what came before,\n  which the prediction of tokens per step neglects.\n"
              : "None differs from d = 0 by more than its 95% interval: nothing speaks against "
                "independence.\n");
}

void print_for_people(const AcceptanceEstimate& with,
                      const std::optional<AcceptanceEstimate>& without, const MeasuredAcceptance& m,
                      const fs::path& kept) {
  std::cout << "Acceptance of " << m.draft_name << " for " << m.target_name << "\n"
            << with.runs << " continuations of prompts cut from " << with.texts << " texts ("
            << m.prompts << "): " << with.positions << " positions.\n"
            << "Temperature " << Number{m.sampling.temperature, 2} << ", top-k " << m.sampling.top_k
            << ", top-p " << Number{m.sampling.top_p, 2} << "; children: "
            << (m.drawing == "top-k" ? "the draft's best" : "drawn without replacement")
            << ". 95% intervals, texts differing.\n\n"
            << "  k  p(k)                  none of k: r(k)       went on with child k\n";
  std::size_t last = with.accept.size();  // that was ever accepted
  while (last > 1 && with.accept[last - 1].mean == 0) --last;
  for (std::size_t k = 0; k < last; ++k)
    std::cout << padded(std::to_string(k + 1), 3) << "  " << with_interval(with.accept[k], 5)
              << padded(with_interval(with.reject[k], 5), 22)
              << padded(std::to_string(with.taken[k]), 16) << "\n";
  if (last < with.accept.size()) std::cout << "  .. " << with.accept.size() << " none\n";
  if (const auto& law = with.power_law)
    std::cout << "\nr(k) ~ k^-b with b = " << Number{law->exponent, 3} << " +- "
              << Number{law->error, 3} << " (standard error) for k = 1.." << law->children
              << "; r(k) is off that by " << Number{100 * std::expm1(law->misfit), 0} << "%.\n";
  else
    std::cout << "\nToo few refusals for the exponent of a power law.\n";
  print_by_depth(with);
  std::cout << "\nLoops (the text before repeats with a period of at most " << kLoopPeriod
            << " tokens, " << kLoopRounds
            << " times or more): " << with.positions - (without ? without->positions : 0) << " of "
            << with.positions << " positions.\n";
  if (without)
    std::cout << "Without them p(1) = " << with_interval(without->accept[0], 4) << " instead of "
              << with_interval(with.accept[0], 4) << ", all children " << Number{total(*without), 4}
              << " instead of " << Number{total(with), 4} << ".\n";
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
                   {"accept", estimates(e.accept)},
                   {"reject", estimates(e.reject)},
                   {"taken", e.taken},
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

}  // namespace

int run_calibrate_acceptance(const std::vector<std::string>& words) {
  Options given_options;
  if (!parse(words, kUsage, given_options.flags())) return 0;
  EngineOptions options = given_options.model.engine_options();
  if (!given_options.draft) throw UsageError("acceptance is of a draft: give one with -md");
  MeasuredAcceptance measured;
  AcceptanceRequest request;
  request.sampling = measured.sampling = given_options.sampling.sampling;
  request.seed = given_options.sampling.seed.value_or(0);
  request.new_tokens = given_options.new_tokens;
  PlanRequest& plan = options.plan;
  plan.probe = true;
  plan.temperature = static_cast<double>(request.sampling.temperature);
  plan.max_prompt = given_options.prompt_tokens;
  const int context = plan.max_prompt + request.new_tokens;
  if (plan.context != 0 && plan.context < context)
    throw UsageError("--ctx-size: prompt and continuation have " + std::to_string(context) +
                     " tokens");
  plan.context = context;

  const Interrupt interrupt;
  ModelFiles models = open_models(given_options.model.model, *given_options.draft);
  measured.target = fingerprint(models.target);
  measured.draft = fingerprint(*models.draft);
  measured.target_name = model_name(models.target);
  measured.draft_name = model_name(*models.draft);
  measured.prompts = given_options.prompts.value_or("the default set");
  measured.date = today();
  measured.version = CANOPY_VERSION;
  const std::vector<std::string> texts = prompt_texts(given_options.prompts, interrupt.token());
  if (texts.size() < 2)
    throw Error(measured.prompts + ": at least two texts are needed, to see how far they differ");
  const std::vector<PromptCut> prompts =
      cut_prompts(*models.tokenizer, texts, given_options.examples, plan.max_prompt);
  if (std::ssize(prompts) < given_options.examples)
    std::cerr << "note: the " << texts.size() << " texts give only " << prompts.size()
              << " different prompts\n";
  request.prompts = prompts;
  plan.max_sequences = static_cast<int>(prompts.size());
  const fs::path kept = where_to_keep(given_options.output, measured);
  TextOutput output = given_options.output ? TextOutput(kept.string()) : open_in_cache(kept);

  ProgressLine progress(given_options.model.progress);
  std::vector<AcceptanceRun> runs;
  try {
    Engine engine(
        std::move(models), options,
        [&](std::uint64_t done, std::uint64_t all) { progress.show_loading(done, all); },
        interrupt.token());
    progress.clear();
    print_notes(engine);
    measured.drawing = in_words(engine.plan().policy.drawing);
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
  std::optional<AcceptanceEstimate> without;
  std::vector<int> outside;  // texts with a position outside loops
  for (const AcceptanceRun& run : runs)
    for (const auto& position : run.positions)
      if (!position.in_loop && (outside.empty() || outside.back() != run.text))
        outside.push_back(run.text);
  if (std::any_of(outside.begin(), outside.end(), [&](int text) { return text != outside[0]; }))
    without = estimate_acceptance(runs, Loops::kWithout);
  for (const Estimate& p : with.accept) {
    measured.acceptance.accept.push_back(p.mean);
    measured.standard_error.push_back(p.error);
  }
  measured.positions = with.positions;
  measured.examples = with.runs;
  measured.texts = with.texts;
  output.write(to_json(measured));

  if (given_options.json) {
    ordered_json object = ordered_json::parse(to_json(measured));
    object["kept_in"] = kept.string();
    object["seed"] = request.seed;
    object["prompt_tokens"] = plan.max_prompt;
    object["new_tokens"] = request.new_tokens;
    object["loop"] = {{"period", kLoopPeriod}, {"rounds", kLoopRounds}};
    object["all"] = to_object(with);
    object["outside_loops"] = without ? to_object(*without) : ordered_json();
    std::cout << object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    print_for_people(with, without, measured, kept);
  }
  return 0;
}

}  // namespace canopy::cli
