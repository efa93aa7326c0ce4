#include "src/engine/traced_weights.h"

#include "offload/unit_layout.h"

namespace canopy {

namespace {

// A wait shorter than this is none.
constexpr std::chrono::microseconds kLeastWait{50};

}  // namespace

TracedWeights::TracedWeights(std::unique_ptr<WeightSource> source, Trace& trace, Trace::Lane lane)
    : source_(std::move(source)), trace_(trace) {
  for (const Unit& unit : source_->units()) spans_.push_back({&trace, lane, describe(unit), {}});
}

UnitLease TracedWeights::acquire(std::size_t index, Stream& compute) {
  const auto asked = Trace::Clock::now();
  lent_.emplace(source_->acquire(index, compute));
  const auto now = Trace::Clock::now();
  UnitSpan& span = spans_[index];
  if (now - asked > kLeastWait) trace_.span(Trace::Lane::kHost, "wait: " + span.name, asked, now);
  compute.host_call([](void* of) { static_cast<UnitSpan*>(of)->begin = Trace::Clock::now(); },
                    &span);
  return lend(index, **lent_, compute);
}

void TracedWeights::give_back(std::size_t index, Stream& compute) noexcept {
  compute.host_call(
      [](void* of) {
        const auto& span = *static_cast<UnitSpan*>(of);
        span.trace->span(span.lane, span.name, span.begin, Trace::Clock::now());
      },
      &spans_[index]);
  lent_.reset();
}

void TracedWeights::embed(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  const auto begin = Trace::Clock::now();
  source_->embed(ids, compute, out);
  const auto end = Trace::Clock::now();
  if (end - begin > kLeastWait) trace_.span(Trace::Lane::kHost, "embedding rows", begin, end);
}

}  // namespace canopy
