#include "src/cli/options/model/conversation.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/chat/generation_config.h"
#include "src/cli/output/aside.h"
#include "src/engine/plan/plan.h"
#include "src/engine/ranks/plan_together.h"
#include "src/server/stored_responses.h"

namespace canopy::cli {

namespace {

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
  aside() << "sampling: " << options.in_words()
          << (advises ? ", as " + advice.origin + " advises where no flag says otherwise" : "")
          << "\n";
  std::string keys;
  for (const std::string& key : advice.not_followed) keys += (keys.empty() ? "" : ", ") + key;
  if (!keys.empty()) aside() << "note: not followed of " << advice.origin << ": " << keys << "\n";
}

}  // namespace

std::string conversation_context_words() {
  return "what the model was made for, " + std::to_string(kConversationContext) +
         " at most; less where memory is short";
}

std::string service_kv_words() {
  return "one text as long as --ctx-size, and " + std::to_string(kShortText) +
         " tokens for each other";
}

void plan_conversations(const ModelFiles& models, DecodeOptions& options, PlanRequest& plan) {
  const ModelConfig& config = models.target.config();
  options.sampling.check_tokens(config.vocab);
  take_advice(models.target.root(), options.sampling);
  plan.temperature = static_cast<double>(options.sampling.sampling().temperature);
  fit_conversations(config, plan);
}

void fit_conversations(const ModelConfig& model, PlanRequest& plan) {
  const bool asked = plan.context > 0;
  if (!asked)
    plan.context = model.max_positions > 0 ? std::min(model.max_positions, kConversationContext)
                                           : kConversationContext;
  if (plan.context < 2) throw UsageError("--ctx-size: a conversation takes two tokens at least");
  plan_for_conversations(plan, asked);
}

std::size_t largest_request(int context) {
  constexpr std::size_t kFixed = 1u << 20, kPerToken = 64;
  return kFixed + kPerToken * static_cast<std::size_t>(context);
}

void fit_service(std::optional<int> parallel, int connections, DecodeOptions& options,
                 PlanRequest& plan) {
  constexpr int kPlaces = 4;            // for texts, where no flag says
  constexpr double kTemperature = 0.6;  // where texts are greedy unless a client says so
  // A connection has a thread's stack and buffers, some large requests are on their way to tokens,
  // and responses are stored.
  constexpr std::uint64_t kConnection = 96u << 10, kLargeRequests = 8;
  plan.max_sequences = parallel.value_or(kPlaces);
  plan.least_sequences = parallel.value_or(1);
  plan.reserved_bytes = kConnection * static_cast<std::uint64_t>(connections) +
                        kLargeRequests * largest_request(plan.context) +
                        server::StoredResponses::kMostBytes;
  if (plan.temperature != 0) return;
  plan.temperature = kTemperature;  // what texts show of the draft is kept as theirs
  options.sampling.temperature = static_cast<float>(kTemperature);
}

std::unique_ptr<Engine> load_for_conversations(const DecodeOptions& decode, ModelFiles models,
                                               EngineOptions& options,
                                               const std::stop_token& stop) {
  ProgressLine progress(decode.model.progress);
  options.plan.cost =
      std::make_shared<CostModel>(decode.find_assumptions(models, options, progress, stop).profile,
                                  network_of(models.target, options.cluster));
  const auto on_load = [&](std::uint64_t done, std::uint64_t all) {
    progress.show_loading(done, all);
  };
  auto engine = std::make_unique<Engine>(std::move(models), options, on_load, stop);
  progress.clear();
  if (engine->plan().context == options.plan.context && !decode.model.context)  // else a note says
    aside() << "context: " << engine->plan().context << " tokens; -c N takes another\n";
  print_notes(*engine);
  return engine;
}

}  // namespace canopy::cli
