#include "src/engine/pool/memory_pool.h"

#include <algorithm>
#include <utility>

namespace canopy {

MemoryPool::MemoryPool(std::unique_ptr<PooledWeights> weights, Stream& compute, std::uint64_t bytes,
                       const std::vector<KvPool*>& pools)
    : weights_(std::move(weights)), compute_(compute), bytes_(bytes) {
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
  const auto taken = [&] { return weights_->bytes() + text_bytes() + bytes; };
  if (taken() <= bytes_) return;
  compute_.synchronize();  // the last sweep's work reads what may go
  release_free();
  if (taken() <= bytes_) return;
  evicted_ += static_cast<std::uint64_t>(weights_->give(taken() - bytes_));
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
  std::uint64_t taken = weights_->bytes() + text_bytes() + more;
  const std::uint64_t least = weights_->least_return();
  if (least > bytes_) return;
  if (taken + least > bytes_) {
    std::uint64_t free = 0;
    for (const KvPool* pool : pools_) free += pool->free_bytes();
    if (taken - free + least > bytes_) return;
    compute_.synchronize();
    taken -= release_free();
  }
  if (const int count = weights_->take(bytes_ - taken); count > 0) {
    returned_ += static_cast<std::uint64_t>(count);
    changed_ = true;
  }
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
  weights_->describe(weights);
  return true;
}

PoolReport MemoryPool::report() const {
  return {bytes_, weights_->bytes(), text_bytes(), weights_->resident_bytes(), evicted_, returned_};
}

}  // namespace canopy
