#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "offload/weight_source.h"
#include "src/base/trace.h"

namespace canopy {

/// Another source's weights, with a span for each unit's compute (on the stream's own time) and one
/// for each wait of the host. Whoever uses it must let the stream finish before it goes.
class TracedWeights final : public WeightSource {
 public:
  TracedWeights(std::unique_ptr<WeightSource> source, Trace& trace, Trace::Lane lane);

  std::span<const Unit> units() const override { return source_->units(); }
  UnitLease acquire(std::size_t index, Stream& compute) override;
  std::size_t held_bytes() const override { return source_->held_bytes(); }
  void abandon_sweep() noexcept override { source_->abandon_sweep(); }
  void embed(std::span<const TokenId> ids, Stream& compute, TensorView out) override;

 private:
  struct UnitSpan {
    Trace* trace;
    Trace::Lane lane;
    std::string name;
    Trace::Clock::time_point begin;
  };
  void give_back(std::size_t index, Stream& compute) noexcept override;

  std::unique_ptr<WeightSource> source_;
  Trace& trace_;
  std::deque<UnitSpan> spans_;  // by unit; a stream reaches them in order, a sweep after another
  std::optional<UnitLease> lent_;
};

}  // namespace canopy
