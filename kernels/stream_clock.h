#pragma once
#include <chrono>
#include <memory>

#include "kernels/device.h"

namespace canopy {

/// Puts a device's timers on the host's clock, for a timeline. One thread at a time.
class StreamClock {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StreamClock(Device& device) : zero_(device.make_timer()) {}

  /// Compares the clocks, which drift: once in a while, with the stream idle. Waits a moment.
  /// Timers that were recorded earlier can no longer be asked for.
  void set(Stream& stream) {
    stream.record(*zero_);
    zero_->wait();
    at_zero_ = Clock::now();
  }
  /// When `timer` was reached, which it must be.
  Clock::time_point when(const Timer& timer) const {
    return at_zero_ + std::chrono::duration_cast<Clock::duration>(timer.since(*zero_));
  }

 private:
  std::unique_ptr<Timer> zero_;
  Clock::time_point at_zero_;
};

}  // namespace canopy
