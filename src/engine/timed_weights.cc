#include "src/engine/timed_weights.h"

#include <string>
#include <vector>

#include "offload/unit_layout.h"

namespace canopy {

namespace {

constexpr std::chrono::microseconds kLeastWait{50};  // a shorter one is none in a trace

}  // namespace

TimedWeights::TimedWeights(std::unique_ptr<WeightSource> source, Watch watch)
    : source_(std::move(source)), watch_(std::move(watch)) {
  for (std::size_t i = 0; i < source_->units().size(); ++i) spans_.push_back({&watch_, i, {}});
}

UnitLease TimedWeights::acquire(std::size_t index, Stream& compute) {
  const auto asked = Clock::now();
  lent_.emplace(source_->acquire(index, compute));
  if (watch_.waited) watch_.waited(index, asked, Clock::now());
  compute.host_call([](void* of) { static_cast<UnitSpan*>(of)->begin = Clock::now(); },
                    &spans_[index]);
  return lend(index, **lent_, compute);
}

void TimedWeights::give_back(std::size_t index, Stream& compute) noexcept {
  compute.host_call(
      [](void* of) {
        const auto& span = *static_cast<UnitSpan*>(of);
        span.watch->computed(span.unit, span.begin, Clock::now());
      },
      &spans_[index]);
  lent_.reset();
}

void TimedWeights::embed(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  const auto begin = Clock::now();
  source_->embed(ids, compute, out);
  if (watch_.embedded) watch_.embedded(begin, Clock::now());
}

std::unique_ptr<WeightSource> traced(std::unique_ptr<WeightSource> source, Trace& trace,
                                     Trace::Lane lane) {
  using TimePoint = TimedWeights::Clock::time_point;
  std::vector<std::string> names;
  for (const Unit& unit : source->units()) names.push_back(describe(unit));
  TimedWeights::Watch watch;
  watch.computed = [&trace, lane, names](std::size_t unit, TimePoint begin, TimePoint end) {
    trace.span(lane, names[unit], begin, end);
  };
  watch.waited = [&trace, names](std::size_t unit, TimePoint begin, TimePoint end) {
    if (end - begin > kLeastWait)
      trace.span(Trace::Lane::kHost, "wait: " + names[unit], begin, end);
  };
  watch.embedded = [&trace](TimePoint begin, TimePoint end) {
    if (end - begin > kLeastWait) trace.span(Trace::Lane::kHost, "embedding rows", begin, end);
  };
  return std::make_unique<TimedWeights>(std::move(source), std::move(watch));
}

}  // namespace canopy
