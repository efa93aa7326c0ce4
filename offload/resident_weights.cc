#include <optional>
#include <vector>

#include "offload/device_weights.h"
#include "offload/embedding.h"
#include "offload/resting_weights.h"
#include "offload/streamer.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// Reads a checkpoint once.
class Reading {
 public:
  Reading(const Checkpoint& checkpoint, Notes& notes)
      : engine_(make_read_engine(checkpoint.files(), {}, {}, notes)),
        pump_(*engine_, checkpoint.files(), std::size_t{1} << 20,
              [&](std::uint64_t) { return "the weights of " + checkpoint.root().string(); }) {}
  ReadPump& pump() { return pump_; }

 private:
  std::unique_ptr<ReadEngine> engine_;
  ReadPump pump_;
};

/// Lends what rests: Weights are RestingWeights or DeviceWeights, Lookup finds rows of the
/// embedding. One thread at a time.
template <class Weights, class Lookup>
class ResidentWeights final : public WeightSource {
 public:
  template <class MakeLookup>
  ResidentWeights(std::span<const UnitLayout> layouts, Weights weights, const MakeLookup& lookup)
      : weights_(std::move(weights)), lookup_(lookup(weights_.table())) {
    for (const UnitLayout& layout : layouts) units_.push_back(layout.unit);
  }

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute) override {
    return lend(index, weights_.unit(index), compute);
  }
  void abandon_sweep() noexcept override {}
  void embed(std::span<const TokenId> ids, Stream& compute, TensorView out) override {
    lookup_(ids, compute, out);
  }

 private:
  void give_back(std::size_t, Stream&) noexcept override {}

  std::vector<Unit> units_;
  Weights weights_;
  Lookup lookup_;
};

template <class Lookup, class Weights, class MakeLookup>
std::unique_ptr<WeightSource> resident(std::span<const UnitLayout> layouts, Weights weights,
                                       const MakeLookup& lookup) {
  return std::make_unique<ResidentWeights<Weights, Lookup>>(layouts, std::move(weights), lookup);
}

Residency all_on_device(std::span<const UnitLayout> units) {
  return {std::vector<Tier>(units.size(), Tier::kDevice), false};
}

}  // namespace

std::unique_ptr<WeightSource> load_resident(Device& device, const Checkpoint& checkpoint,
                                            Notes& notes, const LoadProgress& progress,
                                            std::stop_token stop) {
  return in_context("loading " + checkpoint.root().string(), [&] {
    const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
    Reading reading(checkpoint, notes);
    const auto lookup = [&](ConstTensorView table) { return EmbeddingLookup(device, table); };
    if (device.shares_host_memory())
      return resident<EmbeddingLookup>(
          units,
          RestingWeights(device, checkpoint, units, all_resident(units), reading.pump(), progress,
                         std::move(stop), notes),
          lookup);
    return resident<EmbeddingLookup>(units,
                                     DeviceWeights(device, checkpoint, units, all_on_device(units),
                                                   true, reading.pump(), notes, progress, stop),
                                     lookup);
  });
}

std::size_t resident_bytes(const Checkpoint& checkpoint) {
  const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
  return RestingWeights::bytes_needed(checkpoint, units, all_resident(units)) +
         EmbeddingLookup::bytes_needed();
}

std::size_t device_resident_bytes(const Checkpoint& checkpoint) {
  const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
  return DeviceWeights::bytes_needed(checkpoint, units, all_on_device(units), true) +
         EmbeddingLookup::bytes_needed();
}

std::unique_ptr<WeightSource> load_on_host(Device& device, const Checkpoint& checkpoint,
                                           const Residency& residency, Notes& notes,
                                           const MemoryNode& on, const LoadProgress& progress,
                                           std::stop_token stop) {
  return in_context("loading " + checkpoint.root().string(), [&] {
    const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
    require(travelling_bytes(units, residency) == 0 && residency.table,
            "units on disk take a streamer");
    Reading reading(checkpoint, notes);
    return resident<HostEmbedding>(
        units,
        RestingWeights(device, checkpoint, units, residency, reading.pump(), progress,
                       std::move(stop), notes, on),
        [&](ConstTensorView table) { return HostEmbedding(device, checkpoint, table); });
  });
}

}  // namespace canopy
