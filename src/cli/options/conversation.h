#pragma once
#include <memory>
#include <stop_token>

#include "src/cli/options/decode_options.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

// What chat and serve have in common: texts of any length, sampled as the model's makers advise.

/// What generation_config.json of the model advises, for what the user leaves open; the context,
/// where the user names none; room for prompts that are read in pieces: into the options and the
/// plan. Says on stderr how tokens are drawn, by whose word, and what context was chosen. Throws
/// Error, UsageError.
void plan_conversations(const ModelFiles& models, DecodeOptions& options, PlanRequest& plan);

/// Plans for these models and loads them. Throws Error, Stopped.
std::unique_ptr<Engine> load_for_conversations(const DecodeOptions& decode, ModelFiles models,
                                               EngineOptions& options, const std::stop_token& stop);

}  // namespace canopy::cli
