#include "src/cli/ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <optional>
#include <thread>

#include "src/base/error.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/standard_output.h"
#include "src/cli/program.h"
#include "src/cli/version.h"
#include "src/cluster/mpi_transport.h"
#include "src/engine/ranks/follow.h"
#include "src/machine/cpus.h"

namespace canopy::cli {

namespace {

/// Leaves standard output and notes to the first rank.
void fall_silent() {
  be_quiet();
  if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

void note_bound(const Launched& launched) {
  if (launched.is_bound)
    aside() << "note: mpirun has bound each rank to some CPUs, this one to "
            << allowed_cpus().size() << "; with --bind-to none it may use all\n";
}

/// One rank's part, once all have joined.
class Rank {
 public:
  Rank(const SharedCommand& command, Cluster& cluster, Interrupt& interrupt)
      : command_(command), cluster_(cluster), interrupt_(interrupt) {}

  /// The exit code, but for what throws.
  int run(const Launched& launched, const GivenFlags& given) {
    check_shared(given, launched.ranks);
    std::vector<SharedFact> facts = flags_of_all(given);
    facts.insert(facts.begin(), {{"the command", command_.name}, {"the program", version_line()}});
    agree(cluster_, facts);
    if (command_.model.device.choose().kind == "cuda")
      throw UsageError("--device: the ranks of a run compute on CPUs only yet; give --device cpu");
    if (launched.on_this_machine > 1 && !command_.model.memory)
      throw UsageError("--memory: " + std::to_string(launched.on_this_machine) +
                       " ranks share this machine; say how much of its memory each may take");
    cluster_.measure();
    if (launched.rank != 0) return follow_first();
    note_bound(launched);
    const int code = command_.run(interrupt_, &cluster_);
    flush_out();
    if (code == 0) end_followers(cluster_);
    return code;
  }

 private:
  int follow_first() {
    EngineOptions options = command_.model.engine_options();
    command_.ranks.put_into(options, &cluster_);
    const auto open = [&] {
      return Checkpoint::open(local_model(command_.model.model, interrupt_.token()),
                              command_.model.holes());
    };
    follow(open, options, {}, interrupt_.token());
    return 0;
  }

  const SharedCommand& command_;
  Cluster& cluster_;
  Interrupt& interrupt_;
};

/// A command's part that ranks have in common: its name, flags and words.
struct Words {
  const std::string& name;
  const RankOptions& ranks;
  const std::function<bool(GivenFlags& given)>& parse;
};
/// A rank's work, once all have joined. Returns the exit code.
using Work = std::function<int(Cluster& cluster, Interrupt& interrupt, const GivenFlags& given)>;

int run_as_rank(const Words& command, const Launched& launched, const Work& work) {
  if (launched.rank != 0) fall_silent();
  Interrupt interrupt;  // before there is another thread
  const auto say = [&](const std::string& text) {
    std::cerr << command.name + ": " + text + "\n" << std::flush;
  };
  // Says that a rank is lost, unless another has said so and mpirun ends this one: a rank that was
  // stopped goes on for that, too, and takes the others for lost.
  const auto say_in_turn = [&](const std::string& text) {
    constexpr std::chrono::milliseconds kFirst{800}, kTurn{600};
    constexpr int kTurns = 2;  // all ranks from this one on have the last
    std::this_thread::sleep_for(kFirst + kTurn * std::min(launched.rank, kTurns));
    if (!interrupt.token().stop_requested()) say(text);
  };
  GivenFlags given;
  std::exception_ptr refused;
  Share share = RankOptions().share_of(launched.rank, launched.ranks);
  try {
    if (!command.parse(given)) return 0;
    share = command.ranks.share_of(launched.rank, launched.ranks);
  } catch (const UsageError&) {  // all ranks are to know
    refused = std::current_exception();
  }
  const ClusterOptions options = command.ranks.options();
  // Ranks that have not joined give no sign of life, and MPI takes its time where machines are
  // busy.
  constexpr Seconds kJoining{1};
  Cluster cluster(join_by_mpi(options.timeout + kJoining,
                              [&](const std::string& what) {
                                say_in_turn("rank " + std::to_string(launched.rank) + ": " + what +
                                            " has taken longer than --rank-timeout allows");
                              }),
                  share, options);
  std::string failed, message;
  int code = 0;
  try {
    if (refused) std::rethrow_exception(refused);
    code = work(cluster, interrupt, given);
    if (code != 0) failed = "has ended with " + std::to_string(code);
  } catch (...) {
    const Failure own = failure_of(std::current_exception(), command.name);
    const std::optional<RankFailure>& of_another = cluster.failure();
    code = of_another ? of_another->code : own.code;
    failed = own.text;
    message = of_another ? of_another->text : cluster.name(launched.rank) + ": " + own.text;
    if (launched.rank == 0 && !cluster.has_lost()) say(message);
  }
  const std::string lost = cluster.leave(failed, code);
  if (lost.empty()) return code;
  if (message.find(lost) == std::string::npos)
    message += (message.empty() ? "" : "; ") + lost + " is lost, and all end";
  say_in_turn(message);
  cluster.abort();
  return 1;
}

}  // namespace

int run_shared(const SharedCommand& command) {
  const Launched launched = launched_by_mpi();
  if (launched.ranks > 1)
    return run_as_rank({command.name, command.ranks, command.parse}, launched,
                       [&](Cluster& cluster, Interrupt& interrupt, const GivenFlags& given) {
                         return Rank(command, cluster, interrupt).run(launched, given);
                       });
  GivenFlags given;
  if (!command.parse(given)) return 0;
  check_shared(given, 1);
  Interrupt interrupt;
  return command.run(interrupt, nullptr);
}

int run_on_each(const CommandOfEach& command) {
  const Launched launched = launched_by_mpi();
  if (launched.ranks > 1)
    return run_as_rank({command.name, command.ranks, command.parse}, launched,
                       [&](Cluster& cluster, Interrupt& interrupt, const GivenFlags&) {
                         const int code = command.run(&cluster, interrupt.token());
                         flush_out();
                         return code;
                       });
  GivenFlags given;
  return command.parse(given) ? command.run(nullptr, {}) : 0;
}

void require_alone(const std::string& command) {
  if (const int ranks = launched_by_mpi().ranks; ranks > 1)
    throw UsageError("canopy " + command +
                     " is not shared between processes, and mpirun has "
                     "started " +
                     std::to_string(ranks) + ": start it without mpirun");
}

void wait_for_turn() {
  constexpr std::chrono::seconds kTurn{2};
  std::this_thread::sleep_for(kTurn * launched_by_mpi().rank);
}

}  // namespace canopy::cli
