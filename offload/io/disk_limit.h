#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "offload/io/read_engine.h"
#include "src/base/types.h"

namespace canopy {

/// A disk's rate that reads are held to, of all engines that share it. Any thread.
class DiskLimit {
 public:
  /// Throws Error unless the rate is above 0.
  explicit DiskLimit(double bytes_per_second);

  /// Returns when a read of `bytes`, asked for now, would be done by a disk that serves one read
  /// after another at this rate. A pause saves nothing up.
  Clock::time_point done_by(Clock::time_point now, std::size_t bytes);

 private:
  const double bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point idle_from_;  // the reads asked for so far are done then
};

/// The clock that reads are held by. Tests have one of their own.
struct ReadTime {
  std::function<Clock::time_point()> now = &Clock::now;
  std::function<void(Clock::time_point)> sleep_until = [](Clock::time_point then) {
    std::this_thread::sleep_until(then);
  };
};

/// Holds each read of `engine` back until the limit lets it be done; bytes and their order are the
/// engine's.
std::unique_ptr<ReadEngine> limit_reads(std::unique_ptr<ReadEngine> engine,
                                        std::shared_ptr<DiskLimit> limit, ReadTime time = {});

}  // namespace canopy
