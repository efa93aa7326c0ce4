#pragma once
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "offload/experts/expert_cache.h"
#include "offload/experts/host_experts.h"
#include "offload/experts/uploaded_experts.h"
#include "offload/timed_weights.h"
#include "offload/upload/device_weights.h"
#include "src/cluster/agreement.h"
#include "src/engine/engine.h"
#include "src/engine/pool/memory_pool.h"
#include "src/engine/target_model.h"
#include "src/speculation/drafter.h"
#include "src/speculation/verifier.h"

namespace canopy {

/// Models that an engine has loaded by its plan, and the parts of every sweep: sessions and
/// measurements use it in turn. One thread.
struct Runtime {
  ModelFiles models;
  const Topology topology;
  Placement placement;
  const ModelSweeps sweeps;
  std::unique_ptr<Device> device;
  Trace* const trace;
  EnergyMeter* const energy;
  Cluster* const cluster;  // null: this process has all rows
  Plan plan;
  LinkSample link_probe;
  const std::shared_ptr<LinkClock> link_clock = std::make_shared<LinkClock>();
  const std::shared_ptr<DiskLimit> disk_limit;  // null: there is none
  Notes notes;
  Seconds load_time{};
  Clock::time_point loaded;
  std::unique_ptr<KvArena> arena;  // of the KV pools on a device, where weights give way to texts
  std::unique_ptr<TimedWeights> target_weights;
  std::unique_ptr<WeightSource> draft_weights, inner_weights;
  TimedWeights* draft_times = nullptr;  // with a trace
  Streamer* streamer = nullptr;         // of the target, when weights come from disk
  ExpertCache* experts = nullptr;       // of the target, where experts are read on demand
  UploadedWeights* uploads = nullptr;   // and when they go to a device with memory of its own
  UploadedExperts* uploaded_experts = nullptr;  // experts there, on demand
  std::optional<TargetModel> target;
  std::unique_ptr<Transformer> draft, inner;
  std::unique_ptr<Drafter> drafter;      // none without speculation
  std::unique_ptr<MemoryPool> memory;    // where weights give way to texts
  std::unique_ptr<KvCache> draft_cache;  // of a beam search
  bool sampled = false;                  // by the plan
  LearnedRoutes routes;                  // of a mixture, with those before
  std::optional<Verifier> verifier;
  std::unique_ptr<Stream> compute;  // last, so that its work ends before anything above is freed

  /// Plans first, then loads; one of several ranks agrees with the others before. Throws Error if
  /// the plan does not fit, Stopped on request.
  Runtime(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
          const std::stop_token& stop);

  ~Runtime();

  LinkReport link() const;      // since it was loaded
  RankFigures figures() const;  // of this rank, since it was loaded
  PoolReport pool() const { return memory ? memory->report() : PoolReport(); }
  std::uint64_t disk_bytes() const;  // since it was loaded, of all models
  /// Shares memory out anew between resident weights and the `texts` texts of the next sweep.
  void let_weights_give_way(int texts);
  /// Learns from a sweep of `rows` rows, none of them of a prompt, that has read `misses` experts.
  void learn_routes(std::int64_t rows, std::uint64_t misses);

  KvRoom kv_room() const;  // of the plan, in the arena
  /// Makes `memory` for the KV pools that there are, where the plan has one.
  void share_memory();

 private:
  /// The target's weights by the plan; `notes` gains each fallback taken.
  std::unique_ptr<WeightSource> make_target_weights(const EngineOptions& options,
                                                    const LoadProgress& progress,
                                                    const std::stop_token& stop);
  /// The draft's: of a model of its own, or what rests of the target.
  std::unique_ptr<WeightSource> make_draft_weights(const LoadProgress& progress,
                                                   const std::stop_token& stop);
  /// Makes what guesses the draft model's tokens, of a hierarchy; else null.
  std::unique_ptr<Drafter> make_inner_drafter(const LoadProgress& progress,
                                              const std::stop_token& stop);
  /// The target's experts out of a cache in host memory.
  std::unique_ptr<ExpertSource> make_expert_cache(const ExpertSlots& slots,
                                                  const EngineOptions& options,
                                                  const std::stop_token& stop);
  StreamerOptions reads(const EngineOptions& options);
  std::vector<SharedFact> facts_of_ranks() const;
  /// Adds to the first rank's `notes` those of the others that it has not itself.
  void take_notes_of_others();
  void begin_uploads();
  MemoryNode ring_node() const {
    return placement.numa_node ? MemoryNode{&topology, *placement.numa_node} : MemoryNode();
  }
};

}  // namespace canopy
