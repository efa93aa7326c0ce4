#pragma once
#include <functional>
#include <stop_token>
#include <string>

#include "src/cli/interrupt.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/rank_options.h"

namespace canopy::cli {

/// A command that several processes can share: the first of them runs it, and the others follow
/// its engines. The options that it refers to are filled in by parse().
struct SharedCommand {
  std::string name;  // "canopy generate"
  const RankOptions& ranks;
  const ModelOptions& model;
  /// Takes the words. False: help was printed. Throws UsageError.
  std::function<bool(GivenFlags& given)> parse;
  /// Does the work; `cluster` goes into the options of its engines, and is null for a process that
  /// is alone. Returns the exit code.
  std::function<int(Interrupt& interrupt, Cluster* cluster)> run;
};

/// Runs it alone, or as one of the processes that mpirun has started. Of these the first one alone
/// prints; what one of them refuses or fails at ends all, with one message and the same code.
/// Returns the exit code; where it is alone, throws what the command does.
int run_shared(const SharedCommand& command);

/// A command that each of several processes does for its own machine. The options that it refers to
/// are filled in by parse().
struct CommandOfEach {
  std::string name;  // "canopy doctor"
  const RankOptions& ranks;
  /// Takes the words. False: help was printed. Throws UsageError.
  std::function<bool(GivenFlags& given)> parse;
  /// Does the work; `cluster` is null for a process that is alone. Returns the exit code.
  std::function<int(Cluster* cluster, const std::stop_token& stop)> run;
};

/// Runs it as run_shared() does, but on every rank.
int run_on_each(const CommandOfEach& command);

/// Throws UsageError where this process is one of several, which cannot share this command.
void require_alone(const std::string& command);

/// Waits until the ranks before this one have had the time to say why they end: mpirun then ends
/// this one. A process that is alone, or the first, does not wait.
void wait_for_turn();

}  // namespace canopy::cli
