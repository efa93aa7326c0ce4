#pragma once
// Room src/engine: models at work: a plan within a memory budget, what it loads, and sessions of
// texts that share sweeps.
// In: ModelFiles, EngineOptions, Requests. Out: tokens by events, reports, a Plan with its ledger.
// Must not know: flags, HTTP, chat formats, where measurements are kept.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "offload/experts/route_trace.h"
#include "offload/io/link_probe.h"
#include "src/checkpoint/medusa_heads.h"
#include "src/engine/batch.h"
#include "src/engine/plan/plan.h"
#include "src/engine/prompt_cache.h"
#include "src/machine/energy.h"
#include "src/machine/placement.h"
#include "src/model/transformer.h"
#include "src/text/tokenizer.h"

namespace canopy {

/// Contents of the models' files that are known before any weight is read.
struct ModelFiles {
  Checkpoint target;
  std::optional<Checkpoint> draft;
  std::unique_ptr<Tokenizer> tokenizer;   // the target's
  std::optional<MedusaHeads> heads = {};  // in place of a draft model
  std::optional<Checkpoint> inner = {};   // of a hierarchy: the draft's draft

  Notes notes() const;  // of all models' files, each with its model's name
};
/// Throws Error if a model is refused, or if a draft's vocabulary is not the target's. An empty
/// path names no draft.
ModelFiles open_models(const std::filesystem::path& target, const std::filesystem::path& draft,
                       const std::filesystem::path& inner = {}, Holes holes = Holes::kRefused);

class Cluster;

struct EngineOptions {
  DeviceChoice device;  // threads 0: one per physical core; cpus: all that may be used
  /// Makes another device than make_device() would: tests put one of their own here.
  std::function<std::unique_ptr<Device>()> make_device = {};
  PlanRequest plan;             // plan.memory 0: a safe share of what is free
  bool graphs = true;           // on a GPU: the draft's levels are launched as one each
  bool verify_weights = false;  // each streamed unit by a checksum, on every sweep but the first
  /// Bytes per second that reads of streamed weights are held to; without it, all the disk gives.
  std::optional<double> disk_limit = {};
  Trace* trace = nullptr;        // gains what happens when; must outlive the engine
  RouteTrace* routes = nullptr;  // gains what a mixture's rows choose; must outlive the engine
  /// The processes that share the target's rows, of which this one is the first: the others follow
  /// (src/engine/ranks/follow.h). Null: it has all rows. Must outlive the engine.
  Cluster* cluster = nullptr;
  EnergyMeter* energy = nullptr;  // is read around prefill and decode; must outlive the engine
};

/// Chooses where an engine with these options computes, of the CPUs that `topology` has.
Placement place_engine(const Topology& topology, const Checkpoint& target,
                       const EngineOptions& options);
/// The device that it computes on, with the threads of that placement.
std::unique_ptr<Device> open_device(const EngineOptions& options, const Placement& placement);

/// A process that shares the target's rows.
struct RankPlace {
  std::string host;        // its machine
  std::int64_t share = 1;  // of the rows, in proportion
};

class EngineParts;
struct BeamReport;
struct BeamRequest;

/// Owns the device, the models and the plan. One session at a time; one thread.
class Engine {
 public:
  /// Plans first, then loads; has other ranks do so, too. Throws Error if the plan does not fit,
  /// Stopped on request.
  Engine(ModelFiles models, const EngineOptions& options, const LoadProgress& progress = {},
         std::stop_token stop = {});
  ~Engine();

  const Plan& plan() const;
  const Placement& placement() const;
  const ModelFiles& models() const;
  Seconds load_time() const;
  std::string device_name() const;
  std::uint64_t disk_bytes() const;  // read so far by all models
  LinkReport link() const;           // what travelled since it was loaded
  const KvPool& kv_pool() const;     // the target's
  PoolReport pool() const;           // what weights and texts share
  /// Evidence of all sweeps so far about a mixture's experts, for later plans.
  const LearnedRoutes& routes() const;
  const Notes& notes() const;            // every fallback taken, in words for the user
  Cluster* cluster() const;              // of the ranks that share its rows; null: it has all
  std::vector<RankPlace> ranks() const;  // the same, for reports; none: it has all rows
  /// Asks the other ranks for an answer, between sweeps. Throws Error where one is lost.
  void check_ranks();

  /// Returns how the link is read, and what that gave when it was tried out: 0 bytes where nothing
  /// streams or the model is small.
  const LinkSample& link_probe() const;

  /// Continues each prompt. As many texts as the plan has caches for share each sweep; when one
  /// ends, the next request takes its place. A stop request ends all within the ring's depth and
  /// keeps what was accepted so far. At temperature 0 the tokens equal plain decoding's; at any
  /// other they are distributed as the target's own. Where the device computes a row alike whatever
  /// else shares the sweep, as the CPU does, greedy and reproducible texts depend on their own
  /// requests alone; the tokens of other sampled ones also depend on the shapes of their trees, and
  /// so on the plan and on the texts that share their sweeps. Throws Error
  /// if a prompt does not fit the plan, before anything is run.
  /// `synthetic` as in open_session().
  BatchReport generate(std::span<const Request> requests, const GenerateEvents& events = {},
                       std::stop_token stop = {}, std::optional<Acceptance> synthetic = {});
  TextReport generate(const Request& request) {
    return std::move(generate({&request, 1}).texts.front());
  }

  /// Texts that come and go. The engine must outlive the session. `synthetic`: the walk down each
  /// tree is drawn from it, not from what verification says, to measure what steps of models with
  /// random weights would cost. The text is then no model's.
  Session open_session(std::optional<Acceptance> synthetic = {});
  /// See beam_search.h.
  BeamReport search(const BeamRequest& request,
                    const std::function<void(const StepProgress&)>& on_step = {},
                    std::stop_token stop = {});

  /// Throws Error where the model's texts cannot be kept in a file, so that the next two do.
  void require_prompts() const;
  /// Writes the keys and values of all texts that the KV pool remembers, and snapshots of recurrent
  /// layers. `code` names what
  /// computes them: other code may round otherwise. Throws Error.
  void save_prompts(const std::filesystem::path& file, std::string_view code) const;
  /// Takes as much of such a file as the pool has room for, before any text runs. Throws Error: not
  /// such a file, of another model, or damaged (each block has a checksum).
  LoadedPrompts load_prompts(const std::filesystem::path& file, std::string_view code);

  /// Serves measurements; see engine_parts.h.
  EngineParts parts();

 private:
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace canopy
