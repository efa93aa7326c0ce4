#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "offload/weight_source.h"
#include "src/base/trace.h"

namespace canopy {

/// Another source's weights, with a watch on them. Whoever uses it must let the stream finish
/// before it goes.
class TimedWeights final : public WeightSource {
 public:
  using Clock = Trace::Clock;
  using OnSpan =
      std::function<void(std::size_t unit, Clock::time_point begin, Clock::time_point end)>;
  /// What is told of each unit: must be quick and must not throw. Empty: nothing.
  struct Watch {
    OnSpan computed;     // on the stream's own time; called from a thread of the device
    OnSpan waited = {};  // of the host, for the unit to arrive
    std::function<void(Clock::time_point begin, Clock::time_point end)> embedded = {};
  };
  TimedWeights(std::unique_ptr<WeightSource> source, Watch watch);

  std::span<const Unit> units() const override { return source_->units(); }
  UnitLease acquire(std::size_t index, Stream& compute) override;
  std::size_t held_bytes() const override { return source_->held_bytes(); }
  void abandon_sweep() noexcept override { source_->abandon_sweep(); }
  void embed(std::span<const TokenId> ids, Stream& compute, TensorView out) override;

 private:
  struct UnitSpan {
    const Watch* watch;
    std::size_t unit;
    Clock::time_point begin;
  };
  void give_back(std::size_t index, Stream& compute) noexcept override;

  std::unique_ptr<WeightSource> source_;
  Watch watch_;
  std::deque<UnitSpan> spans_;  // by unit; a stream reaches them in order, a sweep after another
  std::optional<UnitLease> lent_;
};

/// A span in the trace for each unit's compute, and one for each wait of the host. The trace must
/// outlive it.
std::unique_ptr<WeightSource> traced(std::unique_ptr<WeightSource> source, Trace& trace,
                                     Trace::Lane lane);

}  // namespace canopy
