#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "src/cli/options/decode_options.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

// Options that chat and serve have in common: for texts of any length, sampled as the model's
// makers advise.

/// The most that the context is where the user names none: models of 128k tokens would take all
/// memory for keys and values.
inline constexpr int kConversationContext = 8192;
/// Returns what help says of the context's default.
std::string conversation_context_words();

/// Returns what help says of a server's memory for keys and values.
std::string service_kv_words();

/// Puts into the options and the plan what generation_config.json of the model advises, for what
/// the user leaves open; the context, where the user names none; room for prompts that are read in
/// pieces. Says on stderr how tokens are drawn, and by whose word. Throws Error, UsageError.
void plan_conversations(const ModelFiles& models, DecodeOptions& options, PlanRequest& plan);

/// Room for texts of any length up to the context, whose default gives way where memory is short:
/// into the plan. Throws UsageError.
void fit_conversations(const ModelConfig& model, PlanRequest& plan);
/// Room for the texts of a server's clients, after fit_conversations(): `parallel` of them share a
/// sweep, or a few where nobody says; over `connections` connections. They are planned for as
/// sampled: clients that ask for a temperature need the draft's probabilities.
void fit_service(std::optional<int> parallel, int connections, DecodeOptions& options,
                 PlanRequest& plan);
/// Bytes of the largest request: a prompt as long as the context in a language of long words, and
/// as JSON.
std::size_t largest_request(int context);

/// Plans for these models and loads them. Says on stderr what context was chosen. Throws Error,
/// Stopped.
std::unique_ptr<Engine> load_for_conversations(const DecodeOptions& decode, ModelFiles models,
                                               EngineOptions& options, const std::stop_token& stop);

}  // namespace canopy::cli
