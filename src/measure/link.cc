#include "src/measure/link.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "src/base/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/machine/host_slab.h"
#include "src/machine/process_memory.h"
#include "src/machine/topology.h"

namespace canopy {

namespace {

constexpr Seconds kRawTurn{1.0};
constexpr Seconds kTrial{0.8};  // of each way to read, in each of
constexpr int kTrials = 3;      // rounds

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

LinkMeasurement::LinkMeasurement(const Checkpoint& model)
    : file_(largest_file(model.files())),
      layout_(lay_out_sweep(model)),
      nothing_(none_resident(layout_)),
      device_(make_device({.kind = "cpu", .threads = 1})),
      compute_(device_->make_stream("compute")),
      beyond_caches_(
          std::min<std::size_t>(4 * Topology().last_level_cache(), system_memory().free() / 4)) {}

std::uint64_t LinkMeasurement::least_ring() const { return canopy::least_ring(layout_, nothing_); }

LinkSample LinkMeasurement::best_reads(const StreamerOptions& options,
                                       const std::stop_token& stop) const {
  const HostSlab memory(options.ring_bytes);
  Notes same;  // as the streamer's
  return LinkProbe(file_, memory.bytes(), options.direct, options.io_uring)
      .best(kTrials, kTrial, same, stop);
}

LinkTurn LinkMeasurement::turn(const StreamerOptions& options,
                               const std::function<void(std::size_t)>& on_unit,
                               const std::stop_token& stop) {
  if (stop.stop_requested()) throw Stopped();
  LinkTurn turn;
  turn.raw = raw_reads(options, options.ring_bytes, stop);
  if (beyond_caches_ > options.ring_bytes)
    turn.raw_beyond_caches = raw_reads(options, beyond_caches_, stop);
  sweep(options, on_unit, stop, turn);
  return turn;
}

double LinkMeasurement::raw_reads(const StreamerOptions& options, std::size_t bytes,
                                  const std::stop_token& stop) const {
  const HostSlab memory(bytes);
  Notes same;
  return LinkProbe(file_, memory.bytes(), options.direct, options.io_uring)
      .run({options.read_bytes, options.queue_depth}, kRawTurn, same, stop)
      .bytes_per_second();
}

void LinkMeasurement::sweep(const StreamerOptions& options,
                            const std::function<void(std::size_t)>& on_unit,
                            const std::stop_token& stop, LinkTurn& turn) {
  Streamer streamer(*device_, layout_, nothing_, options, {}, stop);
  const double cpu_before = cpu_seconds();
  const LinkTotals before = streamer.totals();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < layout_.units.size(); ++i) {
    if (stop.stop_requested()) throw Stopped();
    streamer.acquire(i, *compute_);
    if (on_unit) on_unit(i + 1);
  }
  const LinkTotals done = streamer.totals() - before;
  const Seconds took = std::chrono::steady_clock::now() - start;
  const auto bytes = static_cast<double>(done.disk_bytes);
  turn.sweep = bytes / took.count();
  turn.busy = done.busy / took;
  turn.cpu_seconds_per_gb = (cpu_seconds() - cpu_before) / (bytes / 1e9);
  notes_ = streamer.notes();
}

}  // namespace canopy
