#pragma once
// Private to the memory pool: weights that share its memory with texts.
#include <cstdint>
#include <memory>

#include "offload/experts/expert_cache.h"
#include "offload/experts/uploaded_experts.h"
#include "offload/streamer.h"
#include "offload/upload/device_weights.h"
#include "planner/cost_model.h"
#include "src/engine/plan/plan.h"
#include "src/model/kv_arena.h"

namespace canopy {

/// Weights that give memory to texts, and take it back, between two sweeps. One thread, that of the
/// sweeps.
class PooledWeights {
 public:
  virtual ~PooledWeights() = default;
  virtual std::uint64_t bytes() const = 0;  // of those that rest now and may go
  /// Lets weights go whose memory is at least `bytes` bytes. Returns how many units or experts
  /// those are. The last sweep's work must be done.
  virtual int give(std::uint64_t bytes) = 0;
  /// Bytes of the smallest that could come back; UINT64_MAX: all rest.
  virtual std::uint64_t least_return() const = 0;
  /// Lets weights come back into at most that many bytes. Returns how many.
  virtual int take(std::uint64_t bytes) = 0;
  /// Puts what rests now into the planner's view.
  virtual void describe(WeightPlan& weights) const = 0;
  /// Bytes of all weights that rest, those that stay at any time among them.
  virtual std::uint64_t resident_bytes() const = 0;
};

/// Units of a streamer that can change them: one that goes travels from the next sweep on, one that
/// comes back is kept as it passes through the ring. Both must outlive this.
std::unique_ptr<PooledWeights> pooled_units(Streamer& weights, const SweepLayout& sweep);
/// Units that rest at the end of an arena of a device with memory of its own, the last that came
/// nearest to the texts: it goes first. The others are where `residency` says. All must outlive
/// this.
std::unique_ptr<PooledWeights> pooled_uploads(UploadedWeights& weights, const SweepLayout& sweep,
                                              Residency residency, KvArena& arena);
/// Slots of an expert cache, as the plan bounds them. Cache and sweep must outlive this.
std::unique_ptr<PooledWeights> pooled_experts(ExpertCache& cache, const SweepLayout& sweep,
                                              const MemoryPlan& plan);
/// The same on a device with memory of its own; the slots beyond those with full KV pools are in
/// the memory that texts share.
std::unique_ptr<PooledWeights> pooled_experts(UploadedExperts& cache, const SweepLayout& sweep,
                                              const MemoryPlan& plan);

}  // namespace canopy
