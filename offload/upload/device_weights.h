#pragma once
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "offload/embedding.h"
#include "offload/host_weights.h"
#include "offload/io/read_pump.h"
#include "offload/residency.h"
#include "offload/resting_units.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"
#include "src/base/trace.h"

namespace canopy {

/// Weights that stay in the memory of a device that has its own: the matrices of the units of
/// Tier::kDevice, every unit's vectors, and the embedding table if that is of this tier. Immutable
/// once loaded.
class DeviceWeights {
 public:
  /// Reads through the pump into two slabs of pinned memory, one of which is on its way to the
  /// device while the other is read. Throws: Error as the pump does, or if the device is full;
  /// Stopped on request.
  DeviceWeights(Device& device, const SweepLayout& sweep, const Residency& residency,
                ReadPump& pump, const Loading& loading);

  /// Unit i has its vectors [n] f32, and its matrices if they rest here; other fields are empty.
  const UnitWeights& unit(std::size_t i) const { return units_[i]; }
  WeightView table() const { return table_; }  // [vocab, dim]; empty unless it rests here
  std::size_t bytes() const { return memory_.bytes(); }

  /// Predicts bytes(). Pure.
  static std::size_t bytes_needed(const SweepLayout& sweep, const Residency& residency);

 private:
  Buffer memory_;
  std::vector<UnitWeights> units_;
  WeightView table_;
};

/// Host memory -> device, in the same free-running cycle as a Streamer's: while a draft grows its
/// tree, the first units of the next sweep arrive. The link stays busy while ring bytes - unit
/// bytes
/// >= (draft + verify time) x its bandwidth. Compute waits for a unit's arrival by event, the copy
/// waits for a slot's last use by event; the host waits only until a copy is queued.
/// One thread calls acquire, give-back and abandon_sweep, and holds one lease at a time; the
/// figures may be read from any. A thread of its own takes leases of `host`.
class UploadedWeights final : public WeightSource {
 public:
  /// Loads what rests on the device. `host` lends host memory of the same sweep: its units of
  /// Tier::kDevice are never asked for matrices, and rows of the embedding come from it. The trace,
  /// if any, gains a span for each unit's copy. It and the sweep must outlive the source.
  UploadedWeights(Device& device, const SweepLayout& sweep, const Residency& residency,
                  std::unique_ptr<WeightSource> host, const Loading& loading,
                  Trace* trace = nullptr);
  ~UploadedWeights() override;
  /// Makes the ring, and begins to fill it: once, when all else that is to be on the device is
  /// there. ring_bytes: at least least_device_ring(). Where the device has less left, after all,
  /// the ring is smaller, and Notes says so. Throws Error if even the least does not fit.
  void begin(std::size_t ring_bytes, Notes& notes);
  std::size_t ring_bytes() const;

  std::span<const Unit> units() const override;
  /// Blocks until the unit's copy is queued. Throws: what `host` threw: the source is then
  /// unusable; Error if `index` is not the next in the cycle, or if a lease is out.
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token& stop = {}) override;
  void abandon_sweep() noexcept override;
  EmbeddingTable& embedding() override;

  // The next two are called between two sweeps, by the thread that acquires. The bits of no text
  // depend on them.
  /// Lets a unit that travels stay in memory of the caller's: its next copy goes `at` there, which
  /// has room for its slot and is used for nothing else from now on.
  void keep(std::size_t unit, std::byte* at);
  /// Lets a unit that was kept travel from the next sweep on. When it returns, nothing is on its
  /// way to the memory; the caller knows that no work reads it.
  void evict(std::size_t unit);

  std::size_t held_bytes() const;  // of the device, without the memory that was given to keep()
  /// The units that rest on the device; their weights stay for as long as the source lives.
  std::vector<RestingUnit> resting() const;

  /// Bytes copied since the start, and the time with a copy under way.
  struct Totals {
    std::uint64_t bytes = 0;
    Seconds busy{};
    Seconds stall{};  // host time spent blocked in acquire()
  };
  Totals totals() const;

 private:
  void give_back(std::size_t index, Stream& compute) noexcept override;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
