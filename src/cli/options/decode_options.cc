#include "src/cli/options/decode_options.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "src/base/error.h"
#include "src/cli/options/profile.h"
#include "src/measure/kept.h"

namespace canopy::cli {

void DecodeOptions::add_flags(Flags& all) {
  all.add(sampling.flags()).add(speculation.flags()).add(model.flags());
}

EngineOptions DecodeOptions::engine_options(const std::optional<Gpus>& gpus) const {
  EngineOptions options = model.engine_options(gpus);
  speculation.put_into(options.plan);
  options.plan.temperature = static_cast<double>(sampling.sampling().temperature);
  return options;
}

ModelFiles DecodeOptions::open(const PlanRequest& plan) const {
  const bool speculate = plan.method != SpeculationMethod::kNone;
  ModelFiles models = open_models(model.model, speculate ? speculation.draft.value_or("") : "");
  if (!models.draft || !plan.shape) return models;
  const TreeShape& shape = *plan.shape;
  const int vocab = std::min(models.target.config().vocab, models.draft->config().vocab);
  for (NodeId node = 0; node < shape.size(); ++node)
    if (shape.child_count(node) > vocab)
      throw UsageError("--tree " + *speculation.tree + ": node " + std::to_string(node) + " has " +
                       std::to_string(shape.child_count(node)) + " children, and the models have " +
                       std::to_string(vocab) + " tokens");
  return models;
}

Assumptions DecodeOptions::find_assumptions(const ModelFiles& models, EngineOptions& options,
                                            ProgressLine& progress,
                                            const std::stop_token& stop) const {
  Assumptions found{speculation.profile ? read_profile(*speculation.profile)
                                        : find_profile(models, options, progress, stop),
                    "there is no draft to accept"};
  if (!models.draft) return found;
  if (speculation.profile && !found.profile.drafting)
    throw Error(*speculation.profile + ": measured without a draft model; measure again with -md");
  if (speculation.acceptance) {
    options.plan.acceptance = read_acceptance(*speculation.acceptance);
    found.acceptance_from = "of " + *speculation.acceptance;
  } else if (auto kept =
                 find_acceptance(acceptance_key(models, options.plan), speculation.learning())) {
    options.plan.acceptance = std::move(kept->acceptance);
    found.acceptance_from = std::move(kept->from);
  } else {
    found.acceptance_from =
        "assumed to be a self-draft's; canopy calibrate acceptance would measure it";
  }
  return found;
}

AcceptanceKey DecodeOptions::acceptance_key(const ModelFiles& models,
                                            const PlanRequest& plan) const {
  return {models, sampling.sampling(), plan.method};
}

void DecodeOptions::learn(const Engine& engine, const PlanRequest& plan,
                          const LearnedAcceptance& learned) const {
  if (speculation.no_learn) return;
  try {
    keep_acceptance(acceptance_key(engine.models(), plan), learned);
  } catch (const Error& e) {
    std::cerr << "note: what this text taught about the draft is not kept: " << e.what() << "\n";
  }
}

}  // namespace canopy::cli
