#include "src/engine/memory_pool.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

MemoryPool::MemoryPool(Streamer& weights, const SweepLayout& sweep, Stream& compute,
                       std::uint64_t bytes, const std::vector<KvPool*>& pools)
    : weights_(weights),
      sweep_(sweep),
      compute_(compute),
      bytes_(bytes),
      residency_(weights.residency()) {
  weight_bytes_ = travelling_bytes(sweep_, fixed_part(sweep_, residency_)) -
                  travelling_bytes(sweep_, residency_);
  for (KvPool* const pool : pools)
    if (pool->gives_back()) pools_.push_back(pool);
  for (KvPool* const pool : pools_) pool->on_growth([this](std::size_t more) { make_room(more); });
}

std::uint64_t MemoryPool::text_bytes() const {
  std::uint64_t bytes = 0;
  for (const KvPool* pool : pools_) bytes += pool->held_bytes();
  return bytes;
}

std::uint64_t MemoryPool::release_free() {
  std::uint64_t bytes = 0;
  for (KvPool* const pool : pools_) bytes += pool->release_free();
  return bytes;
}

void MemoryPool::make_room(std::uint64_t bytes) {
  const auto fits = [&] { return weight_bytes_ + text_bytes() + bytes <= bytes_; };
  if (fits()) return;
  compute_.synchronize();  // the last sweep's work reads what may go
  release_free();
  while (!fits()) evict_one();
}

void MemoryPool::evict_one() {
  // A unit that the reader has passed costs what is in the ring: others go first.
  const Residency fixed = fixed_part(sweep_, residency_);
  std::vector<bool> any, ahead;
  for (std::size_t i = 0; i < residency_.unit.size(); ++i) {
    any.push_back(fixed.unit[i] == Tier::kDisk);
    ahead.push_back(any[i] && !weights_.is_passed(i));
  }
  auto unit = next_change(sweep_, residency_, Tier::kHost, ahead);
  if (!unit) unit = next_change(sweep_, residency_, Tier::kHost, any);
  require(unit.has_value(), "the pool of weights and texts has no unit left to give");
  weights_.evict(*unit);
  residency_.unit[*unit] = Tier::kDisk;
  weight_bytes_ -= sweep_.units[*unit].read.slab_bytes;
  ++evicted_;
  changed_ = true;
}

void MemoryPool::before_sweep(int texts, int idle_sweeps) {
  std::vector<std::uint64_t> now;
  std::uint64_t more = 0;  // blocks that the texts may want next
  for (const KvPool* pool : pools_) {
    now.push_back(pool->uses());
    more += static_cast<std::uint64_t>(texts) * pool->block_bytes();
  }
  uses_.push_back(std::move(now));
  while (std::ssize(uses_) > idle_sweeps) {
    for (std::size_t i = 0; i < pools_.size(); ++i) pools_[i]->forget_before(uses_.front()[i]);
    uses_.pop_front();
  }
  const auto smallest_that_travels = [&] {
    std::uint64_t least = UINT64_MAX;
    for (std::size_t i = 0; i < residency_.unit.size(); ++i)
      if (const std::uint64_t own = sweep_.units[i].read.slab_bytes;
          residency_.unit[i] == Tier::kDisk && own > 0)
        least = std::min(least, own);
    return least;
  };
  std::uint64_t taken = weight_bytes_ + text_bytes() + more;
  const std::uint64_t least = smallest_that_travels();
  if (taken + least > bytes_) {
    std::uint64_t free = 0;
    for (const KvPool* pool : pools_) free += pool->free_bytes();
    if (taken - free + least > bytes_) return;
    compute_.synchronize();
    taken -= release_free();
  }
  const Residency wanted = filled(sweep_, residency_, bytes_ - taken);
  for (std::size_t i = 0; i < wanted.unit.size(); ++i) {
    if (wanted.unit[i] == residency_.unit[i]) continue;
    weights_.keep(i);
    weight_bytes_ += sweep_.units[i].read.slab_bytes;
    ++returned_;
    changed_ = true;
  }
  residency_ = wanted;
}

int MemoryPool::worth_keeping(const Plan& plan) const {
  constexpr int kUnknown = 256, kMost = 4096;  // sweeps
  if (!plan.cost || pools_.empty()) return kUnknown;
  const TreeShape root;
  StepQuery query{.shape = &root, .context = plan.priced_context};
  const Seconds without = plan.cost->step(query, plan.weights).compute;
  query.prompt_rows = kKvBlock;
  const Seconds anew = plan.cost->step(query, plan.weights).compute - without;
  std::uint64_t block = 0;
  for (const KvPool* pool : pools_) block += pool->block_bytes();
  const double rent = static_cast<double>(block) / plan.cost->bandwidth(plan.weights);
  return static_cast<int>(std::clamp(anew.count() / rent, 1.0, static_cast<double>(kMost)));
}

bool MemoryPool::describe(WeightPlan& weights) {
  if (!std::exchange(changed_, false)) return false;
  weights.resident_bytes =
      travelling_bytes(sweep_, none_resident(sweep_)) - travelling_bytes(sweep_, residency_);
  for (std::size_t i = 0; i < weights.units.size(); ++i) {
    SweepUnit& unit = weights.units[i];
    unit.own_bytes = sweep_.units[i].read.slab_bytes;
    unit.bytes = residency_.unit[i] == Tier::kDisk ? unit.own_bytes : 0;
  }
  return true;
}

PoolReport MemoryPool::report() const {
  return {bytes_,
          weight_bytes_,
          text_bytes(),
          travelling_bytes(sweep_, none_resident(sweep_)) - travelling_bytes(sweep_, residency_),
          evicted_,
          returned_};
}

}  // namespace canopy
