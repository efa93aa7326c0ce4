#pragma once
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// What help says of -m.
inline constexpr const char* kModelHelp =
    "model: a Hugging Face directory or a GGUF file; -m may be left out";
/// Longer texts than any model's, but their sums are numbers still.
inline constexpr int kMostTokens = 10'000'000;

/// The flags that every command which runs a model shares: -m, --device, --memory, --gpu-memory,
/// --resident, -c, -t, --cpu-list, -ctk, -ctv, --progress.
boost::program_options::options_description model_flags();

/// What --device, --gpu-memory and --enforce-eager say. Throws UsageError.
/// `gpus`: those of another machine that is planned for; without them, this one's.
void choose_device(const boost::program_options::variables_map& values, DeviceChoice& device,
                   const std::optional<Gpus>& gpus = std::nullopt);

/// -t: at most the CPUs that this process may use; a note on stderr where it asks for more.
int threads_of(const boost::program_options::variables_map& values);

/// Those flags as options; the caller fills in what it knows of prompt and speculation.
EngineOptions engine_options(const boost::program_options::variables_map& values,
                             const std::optional<Gpus>& gpus = std::nullopt);

/// Warns on stderr of what the user should know before a run: fallbacks taken, an inflated model, a
/// context beyond the model's own.
void print_notes(const Engine& engine);

}  // namespace canopy::cli
