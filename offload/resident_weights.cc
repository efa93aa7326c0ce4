#include <memory>
#include <vector>

#include "offload/embedding.h"
#include "offload/host_weights.h"
#include "offload/streamer.h"
#include "offload/unit_layout.h"
#include "offload/upload/device_weights.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// Reads a model once.
class Reading {
 public:
  Reading(const SweepLayout& sweep, Notes& notes)
      : engine_(make_read_engine(sweep.files, {}, {}, notes)),
        pump_(*engine_, sweep.files, std::size_t{1} << 20,
              [&](std::uint64_t) { return "the weights of " + sweep.root.string(); }) {}
  ReadPump& pump() { return pump_; }

 private:
  std::unique_ptr<ReadEngine> engine_;
  ReadPump pump_;
};

/// Lends what rests: HostWeights or DeviceWeights. One thread at a time.
template <class Weights>
class ResidentWeights final : public WeightSource {
 public:
  /// make_table(table) gives the embedding.
  template <class MakeTable>
  ResidentWeights(const SweepLayout& sweep, Weights weights, const MakeTable& make_table)
      : weights_(std::move(weights)), embedding_(make_table(weights_.table())) {
    for (const UnitLayout& layout : sweep.units) units_.push_back(layout.unit);
  }

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token&) override {
    return lend(index, weights_.unit(index), compute);
  }
  const UnitWeights* resting(std::size_t index) const override { return &weights_.unit(index); }
  void abandon_sweep() noexcept override {}
  EmbeddingTable& embedding() override { return *embedding_; }

 private:
  void give_back(std::size_t, Stream&) noexcept override {}

  std::vector<Unit> units_;
  Weights weights_;
  std::unique_ptr<EmbeddingTable> embedding_;
};

template <class Weights, class MakeTable>
std::unique_ptr<WeightSource> resident(const SweepLayout& sweep, Weights weights,
                                       const MakeTable& make_table) {
  return std::make_unique<ResidentWeights<Weights>>(sweep, std::move(weights), make_table);
}

}  // namespace

std::unique_ptr<WeightSource> load_resident(Device& device, const SweepLayout& sweep,
                                            const Loading& loading) {
  return in_context("loading " + sweep.root.string(), [&] {
    Reading reading(sweep, loading.notes);
    const auto lookup = [&](WeightView table) {
      return std::make_unique<EmbeddingLookup>(device, table);
    };
    if (device.shares_host_memory())
      return resident(
          sweep, HostWeights(device, sweep, all_resident(sweep), reading.pump(), loading), lookup);
    return resident(
        sweep,
        DeviceWeights(device, sweep, all_resident(sweep, Tier::kDevice), reading.pump(), loading),
        lookup);
  });
}

std::size_t resident_bytes(const SweepLayout& sweep) {
  return HostWeights::bytes_needed(sweep, all_resident(sweep)) + EmbeddingLookup::bytes_needed();
}

std::size_t device_resident_bytes(const SweepLayout& sweep) {
  return DeviceWeights::bytes_needed(sweep, all_resident(sweep, Tier::kDevice)) +
         EmbeddingLookup::bytes_needed();
}

std::unique_ptr<WeightSource> load_on_host(Device& device, const SweepLayout& sweep,
                                           const Residency& residency, const Loading& loading,
                                           const MemoryNode& on) {
  return in_context("loading " + sweep.root.string(), [&] {
    require(travelling_bytes(sweep, residency) == 0, "units on disk take a streamer");
    Reading reading(sweep, loading.notes);
    const auto table_of = [&](WeightView table) -> std::unique_ptr<EmbeddingTable> {
      if (residency.table != Tier::kHost)
        return std::make_unique<EmbeddingReader>(
            device, sweep, make_read_engine(sweep.files, {}, {}, loading.notes));
      if (device.shares_host_memory()) return std::make_unique<EmbeddingLookup>(device, table);
      return std::make_unique<HostEmbedding>(device, sweep.embedding, table);
    };
    return resident(sweep, HostWeights(device, sweep, residency, reading.pump(), loading, on),
                    table_of);
  });
}

}  // namespace canopy
