#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "kernels/device.h"
#include "offload/io/link_probe.h"
#include "offload/streamer.h"

namespace canopy {

/// Raw reads, then a sweep in which nobody computes.
struct LinkTurn {
  double raw = 0;  // bytes per second, into as much memory as the ring has
  std::optional<double> raw_beyond_caches;
  double sweep = 0;               // bytes per second
  double busy = 0;                // share of the sweep with a read in flight
  double cpu_seconds_per_gb = 0;  // in the sweep
};

/// A measurement of the speed of the disk under a model, and of the part that a run can use at
/// best. One thread.
class LinkMeasurement {
 public:
  explicit LinkMeasurement(const Checkpoint& model);

  std::uint64_t least_ring() const;                                   // bytes
  const std::filesystem::path& file() const { return file_; }         // that raw reads read
  std::size_t bytes_beyond_caches() const { return beyond_caches_; }  // of memory

  /// The fastest of some sizes and depths of reads into that ring. Throws Error, Stopped.
  LinkSample best_reads(const StreamerOptions& options, const std::stop_token& stop) const;
  /// Takes one turn. `on_unit` is given the number of units of the sweep that have come. Throws
  /// Error, Stopped.
  LinkTurn turn(const StreamerOptions& options, const std::function<void(std::size_t)>& on_unit,
                const std::stop_token& stop);

  std::size_t units() const { return layout_.units.size(); }
  const Notes& notes() const { return notes_; }  // of the last sweep

 private:
  double raw_reads(const StreamerOptions& options, std::size_t memory,
                   const std::stop_token& stop) const;
  void sweep(const StreamerOptions& options, const std::function<void(std::size_t)>& on_unit,
             const std::stop_token& stop, LinkTurn& turn);

  std::filesystem::path file_;
  SweepLayout layout_;
  Residency nothing_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  std::size_t beyond_caches_;
  Notes notes_;
};

}  // namespace canopy
