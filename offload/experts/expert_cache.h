#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include "offload/experts/expert_source.h"
#include "offload/experts/route_trace.h"
#include "offload/streamer.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"

namespace canopy {

/// Totals of an expert cache since it was made: take differences.
struct ExpertTotals {
  std::uint64_t hits = 0, misses = 0;  // experts that a layer was asked for, once for each sweep
  /// Reads that were begun ahead: of misses, and of experts that no row wanted.
  std::uint64_t foreseen = 0, wasted = 0;
  LinkTotals link;

  ExpertTotals& operator+=(const ExpertTotals& more);
  friend ExpertTotals operator-(const ExpertTotals& later, const ExpertTotals& earlier);
};

/// Number of slots of an expert cache, and the bounds that it may change between.
struct ExpertSlots {
  std::size_t now = 0, least = 0, most = 0;

  ExpertSlots(std::size_t count)
      : now(count), least(count), most(count) {}  // NOLINT: a number is one
  ExpertSlots(std::size_t count, std::size_t fewest, std::size_t greatest)
      : now(count), least(fewest), most(greatest) {}
};

/// Experts of mixtures in memory, read from disk when rows choose them. Some of each layer stay
/// (offload/experts/expert_policy.h); beyond these a few slots are for what is in use or on its
/// way. All slots are of one size, and change their owner without a copy. What a layer lacks is
/// asked for at once, in the order of use, as soon as its routes are known; what it has is computed
/// meanwhile. A thread of its own reads, and owns the ReadEngine; the figures may be read from any.
class ExpertCache final : public ExpertSource {
 public:
  /// Finds out how the link is best read, then starts the reader; all slots are empty. `options`
  /// are those of a ring, of any size. The sweep has its experts apart, and must outlive the cache.
  /// Throws: Error if the least slots are fewer than spare_slots(), memory is short or a file
  /// cannot be read; Stopped on request.
  ExpertCache(Device& device, const SweepLayout& sweep, const ExpertSlots& slots,
              const StreamerOptions& options, const std::stop_token& stop = {},
              RouteTrace* routes = nullptr);
  ~ExpertCache() override;  // stops the reader, drains reads, waits for leased work

  void want(int layer, std::span<const std::int32_t> chosen) override;
  bool may_lack(int layer) const override;
  void expect(int layer, std::span<const std::int32_t> likely) override;
  bool is_there(int layer, int expert) const override;
  ExpertLease acquire(int layer, int expert, Stream& compute, const std::stop_token& stop) override;
  void keep_rows(std::span<const std::int32_t> rows) override;
  void abandon_sweep() noexcept override;

  /// Has that many slots from now on, between the least and the most: between two sweeps, when the
  /// work of the last one is done. Experts that no longer may stay leave, and the memory of slots
  /// that go is given back before it returns. Throws Error if a read failed or memory is short.
  void resize(std::size_t slots);
  std::size_t slots() const;

  ExpertTotals totals() const;
  const LinkSample& read_settings() const;  // of reading, as Streamer::read_settings
  const Notes& notes() const;

  static std::size_t slot_bytes(const SweepLayout& sweep);  // of the largest expert
  /// Slots beyond those of experts that stay: what a token of text asks a layer for, and two more.
  static std::size_t spare_slots(const SweepLayout& sweep);

 private:
  void give_back(std::size_t slot, Stream& compute) noexcept override;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Units of one source, experts of another.
class WithExperts final : public WeightSource {
 public:
  WithExperts(std::unique_ptr<WeightSource> units, std::unique_ptr<ExpertSource> experts)
      : units_(std::move(units)), experts_(std::move(experts)) {}

  std::span<const Unit> units() const override { return units_->units(); }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token& stop) override {
    return units_->acquire(index, compute, stop);
  }
  const UnitWeights* resting(std::size_t index) const override { return units_->resting(index); }
  void abandon_sweep() noexcept override {
    units_->abandon_sweep();
    experts_->abandon_sweep();
  }
  EmbeddingTable& embedding() override { return units_->embedding(); }
  ExpertSource* experts() override { return experts_.get(); }

 private:
  void give_back(std::size_t, Stream&) noexcept override {}  // leases are of the units' own source

  const std::unique_ptr<WeightSource> units_;
  const std::unique_ptr<ExpertSource> experts_;
};

}  // namespace canopy
