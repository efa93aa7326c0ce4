#pragma once
#include "src/cli/command.h"
#include "src/cli/interrupt.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// The flags that every command which runs a model shares: -m, --device, --memory, --gpu-memory,
/// --resident, -c, -t, --cpu-list, -ctk, -ctv, --progress.
boost::program_options::options_description model_flags();

/// What --device, --gpu-memory and --enforce-eager say. Throws UsageError.
/// `gpus`: those of another machine that is planned for; without them, this one's.
void choose_device(const boost::program_options::variables_map& values, DeviceChoice& device,
                   const std::optional<Gpus>& gpus = std::nullopt);

/// Those flags as options; the caller fills in what it knows of prompt and speculation.
EngineOptions engine_options(const boost::program_options::variables_map& values,
                             const std::optional<Gpus>& gpus = std::nullopt);

/// Warns on stderr of what the user should know before a run: fallbacks taken, an inflated model, a
/// context beyond the model's own.
void print_notes(const Engine& engine);

}  // namespace canopy::cli
