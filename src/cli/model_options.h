#pragma once
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "src/cli/command.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// The flags that every command which runs a model shares: -m, --device, --memory, --gpu-memory,
/// --resident, -c, -t, --cpu-list, -ctk, -ctv, --progress.
boost::program_options::options_description model_flags();

/// What --device, --gpu-memory and --enforce-eager say. Throws UsageError.
void choose_device(const boost::program_options::variables_map& values, DeviceChoice& device);

/// Those flags as options; the caller fills in what it knows of prompt and speculation.
EngineOptions engine_options(const boost::program_options::variables_map& values);

/// Turns the first Ctrl-C (or SIGTERM) into a stop request; a second one ends the process at once.
/// Must be made before any other thread, as threads inherit its signal mask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread watcher_;
};

/// Warns on stderr of what the user should know before a run: fallbacks taken, an inflated model, a
/// context beyond the model's own.
void print_notes(const Engine& engine);

}  // namespace canopy::cli
