#include <vector>

#include "offload/embedding.h"
#include "offload/resting_weights.h"
#include "offload/streamer.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"

namespace canopy {

namespace {

constexpr std::size_t kReadBytes = 1u << 20;

RestingWeights load_all(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                        const LoadProgress& progress, std::stop_token stop, Notes& notes) {
  const auto engine = make_read_engine(checkpoint.files(), {}, {}, notes);
  ReadPump pump(*engine, checkpoint.files(), kReadBytes,
                [&](std::uint64_t) { return "the weights of " + checkpoint.root().string(); });
  return {checkpoint, units, all_resident(units), pump, progress, std::move(stop)};
}

/// Lends what rests in memory. One thread at a time.
class ResidentWeights final : public WeightSource {
 public:
  ResidentWeights(Device& device, const Checkpoint& checkpoint, const LoadProgress& progress,
                  std::stop_token stop, Notes& notes)
      : ResidentWeights(device, lay_out_units(checkpoint, kReadAlignment), checkpoint, progress,
                        std::move(stop), notes) {}

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute) override {
    return lend(index, weights_.unit(index), compute);
  }
  std::size_t held_bytes() const override { return weights_.bytes(); }
  void abandon_sweep() noexcept override {}
  void embed(std::span<const TokenId> ids, Stream& compute, TensorView out) override {
    lookup_(ids, compute, out);
  }

 private:
  ResidentWeights(Device& device, const std::vector<UnitLayout>& layouts,
                  const Checkpoint& checkpoint, const LoadProgress& progress, std::stop_token stop,
                  Notes& notes)
      : weights_(load_all(checkpoint, layouts, progress, std::move(stop), notes)),
        lookup_(device, weights_.table()) {
    for (const UnitLayout& layout : layouts) units_.push_back(layout.unit);
  }
  void give_back(std::size_t, Stream&) noexcept override {}

  std::vector<Unit> units_;
  RestingWeights weights_;
  EmbeddingLookup lookup_;
};

}  // namespace

std::unique_ptr<WeightSource> load_resident(Device& device, const Checkpoint& checkpoint,
                                            Notes& notes, const LoadProgress& progress,
                                            std::stop_token stop) {
  require(device.shares_host_memory(),
          "weights can only rest in host memory so far: choose the CPU device");
  return in_context("loading " + checkpoint.root().string(), [&] {
    return std::make_unique<ResidentWeights>(device, checkpoint, progress, std::move(stop), notes);
  });
}

std::size_t resident_bytes(const Checkpoint& checkpoint) {
  const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
  return RestingWeights::bytes_needed(checkpoint, units, all_resident(units));
}

}  // namespace canopy
