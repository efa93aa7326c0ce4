#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/engine/plan/plan.h"
#include "src/engine/pool_report.h"
#include "src/model/kv_pool.h"

namespace canopy {

/// Memory that resident weights share with texts. Weights fill what texts do not need: where a KV
/// pool takes a block more, first memory that free blocks still have goes, then remembered texts
/// that are past their time, then units, which travel from the next sweep on. Between two sweeps
/// units come back into what texts have left; they are kept as they pass through the ring. All KV
/// blocks of the plan have room at any time, so a text that was admitted ends. No bit of a text
/// depends on what is resident. One thread, that of the sweeps.
class MemoryPool {
 public:
  /// `weights` can change its units. Of `pools` those take part that give memory back; each asks
  /// this object before it grows, so it must outlive the last text.
  MemoryPool(Streamer& weights, const SweepLayout& sweep, Stream& compute, std::uint64_t bytes,
             const std::vector<KvPool*>& pools);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Forgets texts that nobody has used for `idle_sweeps` sweeps, and lets units come back that fit
  /// next to one block more for each of the `texts` texts of the next sweep.
  void before_sweep(int texts, int idle_sweeps);
  /// Counts the sweeps after which a remembered block has cost as much as reading its tokens anew
  /// would: as weights in its place would not have travelled. 256 where nothing was measured.
  int worth_keeping(const Plan& plan) const;
  /// Puts what rests now into the planner's view of the weights; true if that has changed.
  bool describe(WeightPlan& weights);
  PoolReport report() const;

 private:
  void make_room(std::uint64_t bytes);
  std::uint64_t text_bytes() const;
  std::uint64_t release_free();
  void evict_one();

  Streamer& weights_;
  const SweepLayout& sweep_;
  Stream& compute_;
  const std::uint64_t bytes_;
  std::vector<KvPool*> pools_;
  Residency residency_;                          // of the units that stay or will
  std::uint64_t weight_bytes_ = 0;               // of these, as far as they may go
  std::deque<std::vector<std::uint64_t>> uses_;  // of each pool, before the last sweeps
  std::uint64_t evicted_ = 0, returned_ = 0;
  bool changed_ = true;
};

}  // namespace canopy
