#pragma once
// Room offload: weights on their way: read from disk by direct reads, resident or streamed through
// a ring, experts from a cache, uploads to a GPU.
// In: a SweepLayout and how much memory each part has. Out: leases of units and experts, in the
// order of a sweep.
// Must not know: tokens, trees, plans, the arithmetic that is done with the weights.
#include <cstdint>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "kernels/weight_view.h"
#include "offload/embedding_table.h"
#include "offload/experts/expert_source.h"
#include "src/base/tensor_role.h"
#include "src/base/types.h"
#include "src/base/unit_kind.h"

namespace canopy {

/// Part of a model that is read, lent and given back as one: the attention or the MLP of a layer,
/// or a slice of the head's rows. Small enough that two or three fit any budget; large enough that
/// one read keeps the link busy.
struct Unit {
  int layer = 0;  // layer_count for the head
  UnitKind kind = UnitKind::kAttention;
  std::int64_t first_row = 0, rows = 0;  // kHead only: the rows of lm_head in this slice
};

/// The weights of one unit, on the device, by what they are to the decoder. A unit has a handful,
/// and experts if it is of a mixture.
class UnitWeights {
 public:
  /// [out, in]; empty where the unit has none of this role.
  WeightView matrix(TensorRole role) const { return find(matrices_, role); }
  WeightView matrix(TensorRole role, int expert) const {
    if (expert < 0) return matrix(role);
    return matrix_of(experts_.at(static_cast<std::size_t>(expert)), role);
  }
  static const WeightView& matrix_of(const ExpertWeights& expert, TensorRole role) {
    return expert.*member(role);
  }
  std::span<const ExpertWeights> experts() const { return experts_; }
  /// [n] f32, a norm or a bias, or [experts, n], a bias of each; empty where the unit has none of
  /// this role.
  ConstTensorView vector(TensorRole role) const { return find(vectors_, role); }
  /// Each role once, and once for each expert.
  void add(TensorRole role, const WeightView& matrix, int expert = -1) {
    if (expert < 0) return static_cast<void>(matrices_.emplace_back(role, matrix));
    const auto at = static_cast<std::size_t>(expert);
    if (experts_.size() <= at) experts_.resize(at + 1);
    experts_[at].*member(role) = matrix;
  }
  void add(TensorRole role, const ConstTensorView& vector) { vectors_.emplace_back(role, vector); }

 private:
  static WeightView ExpertWeights::*member(TensorRole role) {
    return role == TensorRole::kExpertGate ? &ExpertWeights::gate
           : role == TensorRole::kExpertUp ? &ExpertWeights::up
                                           : &ExpertWeights::down;
  }
  template <class View>
  using ByRole = std::vector<std::pair<TensorRole, View>>;
  template <class View>
  static View find(const ByRole<View>& views, TensorRole role) {
    for (const auto& [of, view] : views)
      if (of == role) return view;
    return {};
  }

  ByRole<WeightView> matrices_;
  ByRole<ConstTensorView> vectors_;
  std::vector<ExpertWeights> experts_;
};

class UnitLease;

/// Gives out weights one unit at a time. A forward pass does not know, and cannot ask,
/// whether a unit was resident or has just arrived from disk.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The sweep, in order. The same at every sweep.
  virtual std::span<const Unit> units() const = 0;

  /// Makes `compute` wait for the unit's arrival and lends its weights. Units are acquired in the
  /// order of units(), again and again: sources prefetch in that cycle, past the end of the sweep.
  /// Throws Error if a read failed; the source is then unusable. Throws Stopped where `stop` is
  /// requested while it waits: nothing is lent, and the sweep is to be abandoned.
  virtual UnitLease acquire(std::size_t index, Stream& compute,
                            const std::stop_token& stop = {}) = 0;

  /// The weights of a unit that stays where it is as long as the source lives, and needs no lease;
  /// null where it may move.
  virtual const UnitWeights* resting(std::size_t) const { return nullptr; }

  /// Ends a sweep early (cancel, error): the cycle continues at unit 0, its bookkeeping intact.
  virtual void abandon_sweep() noexcept = 0;

  /// Returns the same model's, which lives as long as the source.
  virtual EmbeddingTable& embedding() = 0;

  /// Lends the experts of mixtures where the units have none of theirs; else null. They, too, live
  /// as long as the source.
  virtual ExpertSource* experts() { return nullptr; }

 protected:
  UnitLease lend(std::size_t index, UnitWeights weights, Stream& compute);

 private:
  friend class UnitLease;
  virtual void give_back(std::size_t index, Stream& compute) noexcept = 0;  // records "last use"
};

/// The right to read one unit's weights; ends when destroyed. Move-only.
class UnitLease {
 public:
  UnitLease(UnitLease&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        index_(other.index_),
        weights_(std::move(other.weights_)),
        compute_(other.compute_) {}
  UnitLease& operator=(UnitLease&&) = delete;
  ~UnitLease() {
    if (source_) source_->give_back(index_, *compute_);
  }
  const UnitWeights& operator*() const { return weights_; }
  const UnitWeights* operator->() const { return &weights_; }

 private:
  friend class WeightSource;
  UnitLease(WeightSource& source, std::size_t index, UnitWeights weights, Stream& compute)
      : source_(&source), index_(index), weights_(std::move(weights)), compute_(&compute) {}
  WeightSource* source_;
  std::size_t index_;
  UnitWeights weights_;
  Stream* compute_;
};

inline UnitLease WeightSource::lend(std::size_t index, UnitWeights weights, Stream& compute) {
  return UnitLease(*this, index, std::move(weights), compute);
}

}  // namespace canopy
