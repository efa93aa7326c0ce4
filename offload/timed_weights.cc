#include "offload/timed_weights.h"

#include "offload/unit_layout.h"

namespace canopy {

namespace {

using Clock = Trace::Clock;
constexpr std::chrono::microseconds kLeastWait{50};  // a shorter one is none in a trace

}  // namespace

TimedWeights::TimedWeights(Device& device, std::unique_ptr<WeightSource> source, Trace* trace,
                           Trace::Lane lane)
    : source_(std::move(source)), trace_(trace), lane_(lane) {
  if (trace_) clock_.emplace(device);
  for (const Unit& unit : source_->units()) {
    UnitTimers& timers = timers_.emplace_back();
    timers.begun = device.make_timer();
    timers.ended = device.make_timer();
    if (!trace_) continue;
    timers.asked = device.make_timer();
    timers.name = describe(unit);
  }
  times_.unit.resize(timers_.size());
}

const SweepTimes& TimedWeights::times() {
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    UnitTimers& timers = timers_[i];
    if (!timers.fresh) continue;
    timers.fresh = false;
    times_.unit[i] = timers.ended->since(*timers.begun);
    if (!trace_) continue;
    const auto asked = clock_->when(*timers.asked), begun = clock_->when(*timers.begun);
    trace_->span(lane_, timers.name, begun, clock_->when(*timers.ended));
    if (lane_ == Trace::Lane::kTarget && begun - asked > kLeastWait)
      trace_->span(Trace::Lane::kUploadWait, timers.name, asked, begun);
  }
  return times_;
}

/// The spans of the sweep before, and a look at the clock, for which the stream must be idle.
void TimedWeights::begin_trace_of_sweep(Stream& compute) {
  compute.synchronize();
  times();
  clock_->set(compute);
}

UnitLease TimedWeights::acquire(std::size_t index, Stream& compute, const std::stop_token& stop) {
  if (failure_) std::rethrow_exception(failure_);
  if (trace_ && index == 0) begin_trace_of_sweep(compute);
  UnitTimers& timers = timers_.at(index);
  const auto asked = Clock::now();
  if (trace_) compute.record(*timers.asked);
  lent_.emplace(source_->acquire(index, compute, stop));
  if (const auto now = Clock::now(); trace_ && now - asked > kLeastWait)
    trace_->span(Trace::Lane::kHost, "wait: " + timers.name, asked, now);
  timers.fresh = false;
  try {
    compute.record(*timers.begun);
  } catch (...) {
    lent_.reset();
    throw;
  }
  return lend(index, **lent_, compute);
}

void TimedWeights::give_back(std::size_t index, Stream& compute) noexcept {
  try {
    compute.record(*timers_[index].ended);
    timers_[index].fresh = true;
  } catch (...) {
    failure_ = std::current_exception();
  }
  lent_.reset();
}

void TimedWeights::TimedTable::look_up(std::span<const TokenId> ids, Stream& compute,
                                       TensorView out) {
  const auto begin = Clock::now();
  of_source().look_up(ids, compute, out);
  const auto end = Clock::now();
  times_.times_.embed = end - begin;
  if (times_.trace_ && end - begin > kLeastWait)
    times_.trace_->span(Trace::Lane::kHost, "embedding rows", begin, end);
}

}  // namespace canopy
