#include "src/engine/pool/memory_pool.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

MemoryPool::MemoryPool(std::unique_ptr<PooledWeights> weights, Stream& compute, std::uint64_t bytes,
                       const std::vector<KvPool*>& pools)
    : weights_(std::move(weights)), compute_(compute), bytes_(bytes) {
  for (KvPool* const pool : pools)
    if (pool->gives_back()) pools_.push_back(pool);
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    require(pools_[i]->arena() == pools_[0]->arena(), "KV pools share one arena, or none");
    pools_[i]->on_growth([this, i] { make_room(i); });
  }
}

std::uint64_t MemoryPool::text_bytes(const std::vector<int>& blocks) const {
  if (pools_.empty()) return 0;
  if (const KvArena* const arena = pools_[0]->arena())
    return static_cast<std::uint64_t>(std::ranges::max(blocks)) * arena->cell_bytes();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pools_.size(); ++i)
    bytes += static_cast<std::uint64_t>(blocks[i]) * pools_[i]->block_bytes();
  return bytes;
}

std::vector<int> MemoryPool::held() const {
  std::vector<int> blocks;
  for (const KvPool* pool : pools_) blocks.push_back(pool->held_blocks());
  return blocks;
}

std::vector<int> MemoryPool::least_held() const {
  std::vector<int> blocks;
  for (const KvPool* pool : pools_) blocks.push_back(pool->least_held_blocks());
  return blocks;
}

void MemoryPool::release_free() {
  for (KvPool* const pool : pools_) pool->release_free();
}

void MemoryPool::make_room(std::size_t pool) {
  const auto taken = [&] {
    std::vector<int> blocks = held();
    ++blocks[pool];
    return weights_->bytes() + text_bytes(blocks);
  };
  if (taken() <= bytes_) return;
  compute_.synchronize();  // the last sweep's work reads what may go
  release_free();
  if (taken() <= bytes_) return;
  evicted_ += static_cast<std::uint64_t>(weights_->give(taken() - bytes_));
  changed_ = true;
}

void MemoryPool::before_sweep(int texts, int idle_sweeps) {
  std::vector<std::uint64_t> now;
  for (const KvPool* pool : pools_) now.push_back(pool->uses());
  uses_.push_back(std::move(now));
  while (std::ssize(uses_) > idle_sweeps) {
    for (std::size_t i = 0; i < pools_.size(); ++i) pools_[i]->forget_before(uses_.front()[i]);
    uses_.pop_front();
  }
  // With what the texts may want next.
  const auto taken_with = [&](std::vector<int> blocks) {
    for (int& of_pool : blocks) of_pool += texts;
    return weights_->bytes() + text_bytes(blocks);
  };
  const std::uint64_t least = weights_->least_return();
  if (least > bytes_) return;
  if (taken_with(held()) + least > bytes_) {
    if (taken_with(least_held()) + least > bytes_) return;
    compute_.synchronize();
    release_free();
  }
  if (const int count = weights_->take(bytes_ - taken_with(held())); count > 0) {
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
  return {bytes_,   weights_->bytes(), text_bytes(held()), weights_->resident_bytes(),
          evicted_, returned_};
}

}  // namespace canopy
