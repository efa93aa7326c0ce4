#pragma once
#include <utility>
#include <vector>

#include "offload/weight_source.h"

namespace canopy {

/// A unit whose weights never travel.
struct RestingUnit {
  Unit unit;
  UnitWeights weights;
};

/// The part of another source's sweep that is at rest where it is computed with: nothing moves for
/// it, and the other's cycle does not know of it. Used by the threads that use the other one.
class RestingUnits final : public WeightSource {
 public:
  /// `whole` lends its embedding, and must outlive this; `resting`: units of its sweep, in order.
  RestingUnits(WeightSource& whole, const std::vector<RestingUnit>& resting) : whole_(whole) {
    for (const RestingUnit& one : resting) {
      units_.push_back(one.unit);
      weights_.push_back(one.weights);
    }
  }

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token&) override {
    return lend(index, weights_[index], compute);
  }
  void abandon_sweep() noexcept override {}
  EmbeddingTable& embedding() override { return whole_.embedding(); }

 private:
  void give_back(std::size_t, Stream&) noexcept override {}

  WeightSource& whole_;
  std::vector<Unit> units_;
  std::vector<UnitWeights> weights_;
};

}  // namespace canopy
