#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "src/engine/plan/plan.h"
#include "src/engine/pool/pool_report.h"
#include "src/engine/pool/pooled_weights.h"
#include "src/model/kv_pool.h"

namespace canopy {

/// Memory that resident weights share with texts. Weights fill what texts do not need: where a KV
/// pool takes a block more, first memory that free blocks still have goes, then remembered texts
/// that are past their time, then weights: units, or the experts that texts choose least. Between
/// two sweeps they come back into what texts have left. All KV blocks of the plan have room at any
/// time, so a text that was admitted ends. On a device with memory of its own the pool is an arena:
/// texts have its beginning up to their highest block, weights its end. No bit of a text depends on
/// what is resident. One thread, that of the sweeps.
class MemoryPool {
 public:
  /// Takes those of `pools` that give memory back, all in one arena or none; each asks this object
  /// before it grows, so it must outlive the last text.
  MemoryPool(std::unique_ptr<PooledWeights> weights, Stream& compute, std::uint64_t bytes,
             const std::vector<KvPool*>& pools);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Forgets texts that nobody has used for `idle_sweeps` sweeps, and lets weights come back that
  /// fit next to one block more for each of the `texts` texts of the next sweep.
  void before_sweep(int texts, int idle_sweeps);
  /// Counts the sweeps after which a remembered block has cost as much as reading its tokens anew
  /// would: as weights in its place would not have travelled. 256 where nothing was measured.
  int worth_keeping(const Plan& plan) const;
  /// Puts what rests now into the planner's view of the weights; true if that has changed.
  bool describe(WeightPlan& weights);
  PoolReport report() const;

 private:
  /// Makes room for a block more of one pool.
  void make_room(std::size_t pool);
  /// Bytes of texts where each pool holds that many blocks.
  std::uint64_t text_bytes(const std::vector<int>& blocks) const;
  std::vector<int> held() const;        // blocks, by pool
  std::vector<int> least_held() const;  // after release_free()
  void release_free();

  const std::unique_ptr<PooledWeights> weights_;
  Stream& compute_;
  const std::uint64_t bytes_;
  std::vector<KvPool*> pools_;
  std::deque<std::vector<std::uint64_t>> uses_;  // of each pool, before the last sweeps
  std::uint64_t evicted_ = 0, returned_ = 0;
  bool changed_ = true;
};

}  // namespace canopy
