#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include "offload/experts/expert_source.h"
#include "offload/experts/route_trace.h"
#include "offload/unit_layout.h"
#include "offload/upload/device_weights.h"

namespace canopy {

/// Experts of mixtures in the memory of a device that has its own, copied from host memory, which
/// may have a cache of its own, when rows choose them. Some of each layer stay
/// (offload/experts/expert_policy.h); beyond these a few slots are for what is in use or on its
/// way. What a layer lacks is queued in the order of use, as soon as its routes are known, as far
/// as slots are free and the host has it; compute waits for each arrival on the device, and the
/// caller for what the host does not have yet. One thread; the figures may be read from any.
class UploadedExperts final : public ExpertSource {
 public:
  /// `host` lends host memory: all experts, or those out of a cache, which is asked for what the
  /// device lacks and credited with that alone. The sweep has its experts apart, and must outlive
  /// the source, as must the traces, which may be null: `trace` gains a span for the copies of each
  /// layer.
  UploadedExperts(Device& device, const SweepLayout& sweep, std::unique_ptr<ExpertSource> host,
                  RouteTrace* routes = nullptr, Trace* trace = nullptr);
  ~UploadedExperts() override;  // waits for copies, and for leased work
  /// Makes the slots, all empty: once, when all else that is to be on the device is there. Where
  /// the device has less left, after all, they are fewer, and Notes says so. Throws Error if they
  /// are fewer than ExpertCache::spare_slots(), or where even as many do not fit. Others may come
  /// in memory of the caller's, from its end, `end_of_more`, downwards: by resize().
  void begin(std::size_t slots, Notes& notes, std::byte* end_of_more = nullptr);
  std::size_t slots() const;
  /// Has that many slots from now on, at least those of begin(): between two sweeps, when the work
  /// of the last one is done. Experts that no longer may stay leave, and those in slots that go,
  /// too. When it returns, nothing is on its way to these. Throws Error if the device has failed.
  void resize(std::size_t slots);

  void want(int layer, std::span<const std::int32_t> chosen) override;
  bool is_there(int layer, int expert) const override;
  ExpertLease acquire(int layer, int expert, Stream& compute, const std::stop_token& stop) override;
  void keep_rows(std::span<const std::int32_t> rows) override;
  void abandon_sweep() noexcept override;

  /// Totals since it was made. A hit is an expert that a layer found on the device.
  struct Totals {
    std::uint64_t hits = 0, misses = 0;
    UploadedWeights::Totals uploads;
  };
  Totals totals() const;
  std::size_t held_bytes() const;  // of the device, without the caller's memory

  static std::size_t slot_bytes(const SweepLayout& sweep);  // of the largest expert

 private:
  void give_back(std::size_t slot, Stream& compute) noexcept override;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
