#pragma once
#include <chrono>
#include <memory>
#include <utility>

#include "kernels/device.h"

namespace canopy {

/// Puts a device's timers on the host's clock, for a timeline. One thread at a time.
class StreamClock {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StreamClock(Device& device)
      : zero_(device.make_timer()), another_(device.make_timer()) {}

  /// Compares the clocks, which drift: once in a while, with the stream idle. Waits a moment.
  /// Timers that were recorded earlier can no longer be asked for.
  void set(Stream& stream) {
    // Other programs may hold a comparison up for milliseconds: the quickest of several is taken.
    auto quickest = Clock::duration::max();
    for (int i = 0; i < kComparisons; ++i) {
      const Clock::time_point begun = Clock::now();
      stream.record(*another_);
      another_->wait();
      const Clock::time_point now = Clock::now();
      if (now - begun >= quickest) continue;
      quickest = now - begun;
      at_zero_ = now;
      std::swap(zero_, another_);
    }
  }
  /// When `timer` was reached, which it must be.
  Clock::time_point when(const Timer& timer) const {
    return at_zero_ + std::chrono::duration_cast<Clock::duration>(timer.since(*zero_));
  }

 private:
  static constexpr int kComparisons = 4;

  std::unique_ptr<Timer> zero_, another_;
  Clock::time_point at_zero_;
};

}  // namespace canopy
