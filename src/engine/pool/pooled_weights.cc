#include "src/engine/pool/pooled_weights.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "offload/residency.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// Fills in all bytes of the units and what travels of them: those that rest below `resting`.
void describe_units(const SweepLayout& sweep, const Residency& residency, Tier resting,
                    WeightPlan& weights) {
  for (std::size_t i = 0; i < weights.units.size(); ++i) {
    SweepUnit& unit = weights.units[i];
    unit.own_bytes = bytes_at_rest(sweep.units[i], resting);
    unit.bytes = residency.unit[i] < resting ? 0 : unit.own_bytes;
  }
}

class PooledUnits final : public PooledWeights {
 public:
  PooledUnits(Streamer& weights, const SweepLayout& sweep)
      : weights_(weights), sweep_(sweep), residency_(weights.residency()) {
    bytes_ = travelling_bytes(sweep_, fixed_part(sweep_, residency_)) -
             travelling_bytes(sweep_, residency_);
  }

  std::uint64_t bytes() const override { return bytes_; }

  int give(std::uint64_t bytes) override {
    int count = 0;
    for (const std::uint64_t before = bytes_; before - bytes_ < bytes; ++count)
      evict_one(bytes - (before - bytes_));
    return count;
  }

  std::uint64_t least_return() const override {
    std::uint64_t least = UINT64_MAX;
    for (std::size_t i = 0; i < residency_.unit.size(); ++i)
      if (const std::uint64_t own = sweep_.units[i].read.slab_bytes;
          residency_.unit[i] == Tier::kDisk && own > 0)
        least = std::min(least, own);
    return least;
  }

  int take(std::uint64_t bytes) override {
    int count = 0;
    const Residency wanted = filled(sweep_, residency_, bytes);
    for (std::size_t i = 0; i < wanted.unit.size(); ++i) {
      if (wanted.unit[i] == residency_.unit[i]) continue;
      weights_.keep(i);
      bytes_ += sweep_.units[i].read.slab_bytes;
      ++count;
    }
    residency_ = wanted;
    return count;
  }

  void describe(WeightPlan& weights) const override {
    weights.resident_bytes = resident_bytes();
    describe_units(sweep_, residency_, Tier::kHost, weights);
  }

  std::uint64_t resident_bytes() const override {
    return travelling_bytes(sweep_, none_resident(sweep_)) - travelling_bytes(sweep_, residency_);
  }

 private:
  /// Makes room for `bytes`. What goes beyond them is read for nothing.
  void evict_one(std::uint64_t bytes) {
    // A unit that the reader has passed costs what is in the ring: others go first.
    const Residency fixed = fixed_part(sweep_, residency_);
    std::vector<bool> any, ahead;
    for (std::size_t i = 0; i < residency_.unit.size(); ++i) {
      any.push_back(fixed.unit[i] == Tier::kDisk);
      ahead.push_back(any[i] && !weights_.is_passed(i));
    }
    auto unit = next_to_travel(sweep_, residency_, bytes, ahead);
    if (!unit) unit = next_to_travel(sweep_, residency_, bytes, any);
    require(unit.has_value(), "the pool of weights and texts has no unit left to give");
    weights_.evict(*unit);
    residency_.unit[*unit] = Tier::kDisk;
    bytes_ -= sweep_.units[*unit].read.slab_bytes;
  }

  Streamer& weights_;
  const SweepLayout& sweep_;
  Residency residency_;      // of the units that stay or will
  std::uint64_t bytes_ = 0;  // of these, as far as they may go
};

class PooledUploads final : public PooledWeights {
 public:
  PooledUploads(UploadedWeights& weights, const SweepLayout& sweep, Residency residency,
                KvArena& arena)
      : weights_(weights), sweep_(sweep), arena_(arena), residency_(std::move(residency)) {}

  std::uint64_t bytes() const override { return bytes_; }

  int give(std::uint64_t bytes) override {
    int count = 0;
    for (const std::uint64_t before = bytes_; before - bytes_ < bytes; ++count) {
      require(!stack_.empty(), "the pool of weights and texts has no unit left to give");
      const std::size_t unit = stack_.back();
      stack_.pop_back();
      weights_.evict(unit);
      residency_.unit[unit] = Tier::kHost;
      bytes_ -= bytes_at_rest(sweep_.units[unit], Tier::kDevice);
    }
    return count;
  }

  std::uint64_t least_return() const override {
    std::uint64_t least = UINT64_MAX;
    const std::uint64_t travelling = uploaded_bytes(sweep_, residency_);
    for (std::size_t i = 0; i < residency_.unit.size(); ++i)
      if (const std::uint64_t own = bytes_at_rest(sweep_.units[i], Tier::kDevice);
          residency_.unit[i] != Tier::kDevice && own > 0 && own < travelling)
        least = std::min(least, own);
    return least;
  }

  int take(std::uint64_t bytes) override {
    int count = 0;
    for (; const auto unit = next_to_rest(sweep_, residency_, bytes, Tier::kDevice); ++count) {
      const std::uint64_t own = bytes_at_rest(sweep_.units[*unit], Tier::kDevice);
      bytes -= own;
      bytes_ += own;
      weights_.keep(*unit, arena_.end() - bytes_);
      residency_.unit[*unit] = Tier::kDevice;
      stack_.push_back(*unit);
    }
    return count;
  }

  void describe(WeightPlan& weights) const override {
    weights.resident_bytes = resident_bytes();
    describe_units(sweep_, residency_, Tier::kDevice, weights);
  }

  std::uint64_t resident_bytes() const override {
    return uploaded_bytes(sweep_, none_resident(sweep_)) - uploaded_bytes(sweep_, residency_);
  }

 private:
  UploadedWeights& weights_;
  const SweepLayout& sweep_;
  KvArena& arena_;
  Residency residency_;             // of the units that rest or will
  std::vector<std::size_t> stack_;  // of these, as far as they may go, from the arena's end
  std::uint64_t bytes_ = 0;
};

/// Cache: an ExpertCache, or one on a device.
template <class Cache>
class PooledExperts final : public PooledWeights {
 public:
  /// `fixed`: slots that are never given.
  PooledExperts(Cache& cache, const SweepLayout& sweep, const MemoryPlan& plan, std::uint64_t fixed)
      : cache_(cache),
        slot_(Cache::slot_bytes(sweep)),
        spare_(ExpertCache::spare_slots(sweep)),
        fixed_(fixed),
        most_(plan.most_expert_slots),
        other_(plan.resident_bytes - (plan.expert_slots - fixed_) * slot_) {}

  std::uint64_t bytes() const override { return (cache_.slots() - fixed_) * slot_; }

  int give(std::uint64_t bytes) override {
    const std::uint64_t count = (bytes + slot_ - 1) / slot_;
    require(count <= cache_.slots() - fixed_, "the pool of experts and texts has no slot to give");
    cache_.resize(cache_.slots() - count);
    return static_cast<int>(count);
  }

  std::uint64_t least_return() const override {
    return cache_.slots() < most_ ? slot_ : UINT64_MAX;
  }

  int take(std::uint64_t bytes) override {
    const std::uint64_t count = std::min<std::uint64_t>(bytes / slot_, most_ - cache_.slots());
    if (count > 0) cache_.resize(cache_.slots() + count);
    return static_cast<int>(count);
  }

  void describe(WeightPlan& weights) const override {
    weights.resident_bytes = resident_bytes();
    weights.experts.stay = static_cast<int>(cache_.slots() - spare_);
  }

  std::uint64_t resident_bytes() const override { return other_ + bytes(); }

 private:
  Cache& cache_;
  const std::uint64_t slot_, spare_, fixed_, most_;
  const std::uint64_t other_;  // bytes of the weights that rest and are never given
};

}  // namespace

std::unique_ptr<PooledWeights> pooled_units(Streamer& weights, const SweepLayout& sweep) {
  return std::make_unique<PooledUnits>(weights, sweep);
}

std::unique_ptr<PooledWeights> pooled_uploads(UploadedWeights& weights, const SweepLayout& sweep,
                                              Residency residency, KvArena& arena) {
  return std::make_unique<PooledUploads>(weights, sweep, std::move(residency), arena);
}

std::unique_ptr<PooledWeights> pooled_experts(ExpertCache& cache, const SweepLayout& sweep,
                                              const MemoryPlan& plan) {
  return std::make_unique<PooledExperts<ExpertCache>>(cache, sweep, plan,
                                                      ExpertCache::spare_slots(sweep));
}

std::unique_ptr<PooledWeights> pooled_experts(UploadedExperts& cache, const SweepLayout& sweep,
                                              const MemoryPlan& plan) {
  return std::make_unique<PooledExperts<UploadedExperts>>(cache, sweep, plan,
                                                          plan.full_expert_slots);
}

}  // namespace canopy
