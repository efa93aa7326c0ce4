#pragma once
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "offload/read_engine.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"
#include "src/base/types.h"

namespace canopy {

struct StreamerOptions {
  int ring_units = 2;    // units in transit; 2 is double buffering, more hide drafting
  bool direct = true;    // O_DIRECT; where the filesystem refuses it, the fallback is reported
  bool io_uring = true;  // else the pread pool
  std::size_t read_bytes = 1u << 20;  // one read request
  std::size_t queue_depth = 16;       // most reads in flight
};

using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;

/// Where the last sweep's time went. stall is host time spent blocked in acquire().
struct SweepStats {
  std::uint64_t disk_bytes = 0;  // as read, over-read included
  Seconds wall{};                // from the first acquire to the last give-back
  Seconds disk_busy{};           // time with at least one read in flight
  Seconds stall{};               // host time spent blocked in acquire()
};

/// Disk -> pinned slab -> device slot, in a cycle over the units that never stops:
/// while the draft model grows a tree, the first units of the next sweep arrive.
/// The link stays busy while free slots >= (draft + verify time) x bandwidth / unit bytes.
/// One reader thread owns the ReadEngine and the copy stream.
class Streamer final : public WeightSource {
 public:
  Streamer(Device& device, const Checkpoint& checkpoint, const StreamerOptions& options);
  ~Streamer() override;  // stops the reader, drains reads, then frees slabs

  std::span<const Unit> units() const override;
  UnitLease acquire(std::size_t index, Stream& compute) override;
  void abandon_sweep() noexcept override;
  void embed(std::span<const TokenId> ids, Stream& compute, TensorView out) override;
  std::size_t held_bytes() const override;

  SweepStats last_sweep() const;
  std::uint64_t total_disk_bytes() const;  // since construction, prefetches included
  std::span<const std::string> notes()
      const;  // each fallback taken: what, why, and how to get the fast path

  /// Bytes a streamer of this many units would hold: ring, embedding table and head. Pure; opens
  /// nothing.
  static std::size_t bytes_needed(const Checkpoint& checkpoint, int ring_units);

 private:
  void give_back(std::size_t index, Stream& compute) noexcept override;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Everything on the device, loaded once: the draft model's source.
std::unique_ptr<WeightSource> load_resident(Device& device, const Checkpoint& checkpoint,
                                            const LoadProgress& progress = {},
                                            std::stop_token stop = {});
std::size_t resident_bytes(const Checkpoint& checkpoint);  // what load_resident will hold

}  // namespace canopy
