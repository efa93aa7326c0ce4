#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "offload/host_weights.h"
#include "offload/io/disk_limit.h"
#include "offload/io/link_clock.h"
#include "offload/io/link_probe.h"
#include "offload/io/read_engine.h"
#include "offload/resting_units.h"
#include "offload/weight_source.h"
#include "src/base/trace.h"
#include "src/base/types.h"
#include "src/machine/topology.h"

namespace canopy {

struct StreamerOptions {
  /// Bytes in transit, at least least_ring(): that is double buffering, more hides drafting.
  std::size_t ring_bytes = 0;
  bool direct = true;    // O_DIRECT; where the filesystem refuses it, the fallback is reported
  bool io_uring = true;  // else the pread pool
  std::size_t read_bytes = 1u << 20;  // one read request
  std::size_t queue_depth = 16;       // most reads in flight
  MemoryNode ring_node = {};  // of the ring, and of the host's weights for a device with memory of
                              // its own; the topology must outlive the making
  std::vector<int> reader_cpus = {};  // the reader's thread is bound to these; empty: unbound
  bool checksums = false;             // compare each unit with what it was when first read
  bool units_change = false;          // evict() and keep() will be called
  /// Search for the best way to read the link, before the first sweep, into the ring, in `rounds`
  /// of `round` each: it sets read_bytes and queue_depth.
  struct Trial {
    int rounds = 0;
    Seconds round{};
  };
  std::optional<Trial> trial = {};
  std::size_t most_in_flight = kMostInFlight;  // that the trial chooses
  std::shared_ptr<LinkClock> clock = {};       // of all that share a disk; null: the source's own
  std::shared_ptr<DiskLimit> limit = {};  // of the same; null: as fast as it can. No trial then
  Trace* trace = nullptr;                 // gains a span per unit read; must outlive the streamer
  /// Wraps the engine between the streamer and the disk: tests inject faults here. Empty: nothing
  /// does.
  std::function<std::unique_ptr<ReadEngine>(std::unique_ptr<ReadEngine>)> wrap_engine = {};
};

/// Totals of the link since the streamer was made: take differences.
struct LinkTotals {
  std::uint64_t disk_bytes = 0;  // as read: over-read, prefetches and embedding rows included
  Seconds busy{};                // with at least one read of weights in flight, by the clock
  Seconds stall{};               // host time spent blocked in acquire()
  Seconds checksums{};           // the reader's time spent on them

  LinkTotals& operator+=(const LinkTotals& more);
  friend LinkTotals operator-(const LinkTotals& later, const LinkTotals& earlier);
};

/// Disk -> slab, in a cycle over the units that never stops: while the draft model grows a tree,
/// the first units of the next sweep arrive. The link stays busy while
/// ring bytes - unit bytes >= (draft + verify time) x bandwidth.
/// The ring is one slab of bytes, so that a small unit leaves room for more of the next. Norms and
/// biases rest in memory, and what the residency says; an embedding table that does not is read
/// row by row. A unit is lent where it landed: for a device with memory of its own, UploadedWeights
/// (offload/upload/device_weights.h) takes it from there.
/// One thread calls acquire, give-back and abandon_sweep, and holds one lease at a time; one
/// thread, maybe another, looks rows of the embedding up; the figures may be read from any. A
/// reader thread of its own owns the ReadEngine.
class Streamer final : public WeightSource {
 public:
  /// Reads what rests in memory, then starts the reader. The sweep must outlive the streamer.
  /// Throws: Error if nothing is read from disk, the ring is too small, memory is short or a read
  /// fails; Stopped on request.
  Streamer(Device& device, const SweepLayout& sweep, const Residency& residency,
           const StreamerOptions& options, const LoadProgress& progress = {},
           std::stop_token stop = {});
  ~Streamer() override;  // stops the reader, drains reads, waits for leased work, frees slabs

  std::span<const Unit> units() const override;
  /// Blocks until the unit has arrived. Throws: Error if a read failed (naming file and byte), if
  /// the file was written to since the start or the unit's checksum differs: the streamer is then
  /// unusable; if `index` is not the next in the cycle, or if a lease is out. Throws Stopped.
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token& stop = {}) override;
  void abandon_sweep() noexcept override;
  EmbeddingTable& embedding() override;

  // The next four take options.units_change. They are called between two sweeps, by the thread that
  // acquires. The bits of no text depend on them.
  /// Returns where units are: those that will stay as soon as they have passed through the ring
  /// count as staying.
  Residency residency() const;
  /// Frees the memory of a unit that stays and whose last use is over: it travels from the next
  /// sweep on.
  void evict(std::size_t unit);
  /// Says if the reader has passed the unit: to evict it drops what is in the ring.
  bool is_passed(std::size_t unit) const;
  /// Lets a unit that travels stay, from its next acquisition on, which throws Error if memory is
  /// short.
  void keep(std::size_t unit);

  std::size_t held_bytes() const;  // in memory: the ring, and what rests
  /// The units that do not travel, on a device that shares the host's memory; their weights stay
  /// where they are for as long as the streamer lives.
  std::vector<RestingUnit> resting() const;

  LinkTotals totals() const;
  /// Returns how weights are read, and what that gave in the trial: 0 bytes without one.
  const LinkSample& read_settings() const;
  const Notes& notes() const;

  /// Predicts held_bytes() without the ring. Pure: opens nothing.
  static std::size_t resting_bytes(const SweepLayout& sweep, const Residency& residency,
                                   bool units_change = false);

 private:
  void give_back(std::size_t index, Stream& compute) noexcept override;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Everything where the device computes on it, loaded once through direct reads: the draft model's
/// source. Throws: Error as the Streamer's constructor does; Stopped on request. The source must
/// outlive all work queued on its leases.
std::unique_ptr<WeightSource> load_resident(Device& device, const SweepLayout& sweep,
                                            const Loading& loading);
std::size_t resident_bytes(const SweepLayout& sweep);         // what load_resident holds on a CPU
std::size_t device_resident_bytes(const SweepLayout& sweep);  // and on other devices

/// Lends from host memory what the residency does not keep on a device with memory of its own;
/// nothing of it may be on disk but the embedding table. It lies `on` a NUMA node while that has
/// room. As load_resident in all else.
std::unique_ptr<WeightSource> load_on_host(Device& device, const SweepLayout& sweep,
                                           const Residency& residency, const Loading& loading,
                                           const MemoryNode& on = {});

}  // namespace canopy
