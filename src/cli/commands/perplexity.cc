// canopy perplexity: how well a model predicts a text.
#include "src/measure/perplexity.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/progress_line.h"
#include "src/machine/process_memory.h"

namespace canopy::cli {

namespace {

constexpr int kWindow = 512;
constexpr const char* kUsage =
    "usage: canopy perplexity -m MODEL -f FILE [FLAG ...]\n\n"
    "Scores a text in windows of --ctx-size tokens (default 512), each on its own, all but a "
    "window's\n"
    "first token: exp(mean of -log p). One sweep over the model per window.";

double perplexity(const Loss& loss) {
  return std::exp(loss.sum / static_cast<double>(loss.tokens));
}

}  // namespace

int run_perplexity(const std::vector<std::string>& words) {
  ModelOptions given_options;
  std::string file;
  bool as_object = false;
  given_options.default_context = std::to_string(kWindow) + ", a window's";
  Flags flags, text_flags("Text and output");
  text_flags.add_options()                                           //
      ("file,f", required(file, "FILE"), "the text; - reads stdin")  //
      ("json", given(as_object), "print one JSON object");
  if (!parse(words, kUsage, flags.add(text_flags).add(given_options.flags()))) return 0;
  EngineOptions options = given_options.engine_options();
  if (options.plan.context == 1) throw UsageError("--ctx-size: a window needs at least 2 tokens");

  const Interrupt interrupt;
  ModelFiles models = open_models(local_model(given_options.model, interrupt.token()), "", {},
                                  given_options.holes());
  const std::string text = read_text(file, kMostTextBytes, interrupt.token());
  given_options.require_room_to_encode(text, file == "-" ? "the text" : file);
  const std::vector<TokenId> tokens =
      models.tokenizer->encode(text, AddSpecial::kYes, interrupt.token());
  if (tokens.size() < 2) throw Error(file + ": too short: at least 2 tokens are needed");
  PlanRequest& plan = options.plan;
  plan.context = static_cast<int>(std::min<std::size_t>(
      plan.context == 0 ? kWindow : static_cast<std::size_t>(plan.context), tokens.size()));
  plan.method = SpeculationMethod::kNone;
  plan.max_prompt = plan.context;
  plan.logit_rows = plan.context - 1;

  ProgressLine progress(given_options.progress);
  Loss loss;
  Engine engine(
      std::move(models), options,
      [&](std::uint64_t done, std::uint64_t all) { progress.show_loading(done, all); },
      interrupt.token());
  progress.clear();
  print_notes(engine);
  LossEvents events;
  events.on_window = [&](const Loss& so_far) {
    progress.show(std::to_string(so_far.tokens) + " of " + std::to_string(tokens.size()) +
                  " tokens: perplexity " + std::to_string(perplexity(so_far)));
    loss = so_far;
  };
  events.on_unit = [&](const Unit& unit) {
    if (progress.wants_glimpse())
      progress.show(std::to_string(loss.tokens) + " of " + std::to_string(tokens.size()) +
                    " tokens, layer " + std::to_string(unit.layer + 1));
  };
  loss = measure_loss(engine, tokens, plan.context, events, interrupt.token());
  progress.clear();
  if (as_object) {
    const nlohmann::json object{{"perplexity", perplexity(loss)},
                                {"nll", loss.sum / static_cast<double>(loss.tokens)},
                                {"tokens", loss.tokens},
                                {"context", plan.context},
                                {"peak_memory_bytes", peak_resident_memory()}};
    std::cout << json_text(object, 2) << "\n";
  } else {
    std::cout << "perplexity " << perplexity(loss) << " over " << loss.tokens << " tokens\n";
  }
  return 0;
}

}  // namespace canopy::cli
