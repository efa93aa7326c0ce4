#pragma once
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "kernels/stream_clock.h"
#include "offload/weight_source.h"
#include "src/base/trace.h"

namespace canopy {

/// Times that the arithmetic of a sweep took.
struct SweepTimes {
  std::vector<Seconds> unit;
  Seconds embed{};
  Seconds total() const { return std::accumulate(unit.begin(), unit.end(), embed); }
};

/// Another source's weights, and how long each unit is computed with, by the stream's own time: two
/// timers a unit, so that nothing holds the stream up. One thread; whoever uses it must let the
/// stream finish before it goes.
class TimedWeights final : public WeightSource {
 public:
  /// A trace gains a span for each unit's compute in `lane`, one for each wait of the stream for a
  /// unit, and of the host. The trace must outlive it.
  TimedWeights(Device& device, std::unique_ptr<WeightSource> source, Trace* trace,
               Trace::Lane lane);

  /// The times of the last sweep, once the stream is idle; what it ended before is as it was.
  const SweepTimes& times();

  std::span<const Unit> units() const override { return source_->units(); }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token& stop = {}) override;
  const UnitWeights* resting(std::size_t index) const override { return source_->resting(index); }
  void abandon_sweep() noexcept override { source_->abandon_sweep(); }
  EmbeddingTable& embedding() override { return embedding_; }
  ExpertSource* experts() override { return source_->experts(); }

 private:
  /// The source's embedding, and how long the host looks rows up.
  class TimedTable final : public EmbeddingTable {
   public:
    explicit TimedTable(TimedWeights& times) : times_(times) {}
    void look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) override;
    WeightView on_device() const override { return of_source().on_device(); }
    std::size_t held_bytes() const override { return of_source().held_bytes(); }
    std::uint64_t disk_bytes() const override { return of_source().disk_bytes(); }

   private:
    EmbeddingTable& of_source() const { return times_.source_->embedding(); }
    TimedWeights& times_;
  };
  struct UnitTimers {
    std::unique_ptr<Timer> asked, begun, ended;
    std::string name;    // with a trace, as `asked`
    bool fresh = false;  // both ends are recorded, and not yet read
  };
  void give_back(std::size_t index, Stream& compute) noexcept override;
  void begin_trace_of_sweep(Stream& compute);

  const std::unique_ptr<WeightSource> source_;
  Trace* const trace_;
  const Trace::Lane lane_;
  std::optional<StreamClock> clock_;  // with a trace
  std::vector<UnitTimers> timers_;    // by unit
  SweepTimes times_;
  TimedTable embedding_{*this};
  std::optional<UnitLease> lent_;
  std::exception_ptr failure_;  // of a lease given back: there nothing can be thrown
};

}  // namespace canopy
