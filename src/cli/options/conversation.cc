#include "src/cli/options/conversation.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/chat/generation_config.h"

namespace canopy::cli {

namespace {

// Rows of prompts in one sweep, of all texts: their arithmetic takes longer than any link, and
// their memory stays small.
constexpr int kPromptRows = 512;
// Where the user names no context: models of 128k tokens would take all memory for keys and values.
constexpr int kContext = 8192;

void take_advice(const std::filesystem::path& model, SamplingOptions& options) {
  const chat::GenerationConfig advice = chat::read_generation_config(model);
  Sampling& sampling = options.advised;
  sampling.temperature = advice.temperature.value_or(sampling.temperature);
  sampling.top_k = advice.top_k.value_or(sampling.top_k);
  sampling.top_p = advice.top_p.value_or(sampling.top_p);
  sampling.min_p = advice.min_p.value_or(sampling.min_p);
  sampling.typical_p = advice.typical_p.value_or(sampling.typical_p);
  options.advised_edits.repetition =
      advice.repetition_penalty.value_or(options.advised_edits.repetition);
  const bool advises = !(sampling == Sampling()) || options.advised_edits.repetition != 1;
  std::cerr << "sampling: " << options.in_words()
            << (advises ? ", as " + advice.origin + " advises where no flag says otherwise" : "")
            << "\n";
}

}  // namespace

void plan_conversations(const ModelFiles& models, DecodeOptions& options, PlanRequest& plan) {
  const ModelConfig& config = models.target.config();
  options.sampling.check_tokens(config.vocab);
  take_advice(models.target.root(), options.sampling);
  plan.temperature = static_cast<double>(options.sampling.sampling().temperature);
  if (plan.context == 0) {
    plan.context = config.max_positions > 0 ? std::min(config.max_positions, kContext) : kContext;
    std::cerr << "context: " << plan.context << " tokens; -c N takes another\n";
  }
  if (plan.context < 2) throw UsageError("--ctx-size: a conversation takes two tokens at least");
  plan.max_prompt = plan.context - 1;
  plan.prompt_rows = kPromptRows;
}

std::unique_ptr<Engine> load_for_conversations(const DecodeOptions& decode, ModelFiles models,
                                               EngineOptions& options,
                                               const std::stop_token& stop) {
  ProgressLine progress(decode.model.progress);
  options.plan.cost =
      std::make_shared<CostModel>(decode.find_assumptions(models, options, progress, stop).profile);
  const auto on_load = [&](std::uint64_t done, std::uint64_t all) {
    progress.show_loading(done, all);
  };
  try {
    auto engine = std::make_unique<Engine>(std::move(models), options, on_load, stop);
    progress.clear();
    print_notes(*engine);
    return engine;
  } catch (const BudgetError& e) {
    if (decode.model.context) throw;
    throw e.with("making room for texts of " + std::to_string(options.plan.context) +
                 " tokens: -c N takes less memory, and so does -ctk f16");
  }
}

}  // namespace canopy::cli
