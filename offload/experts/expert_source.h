#pragma once
#include <cstdint>
#include <span>
#include <stop_token>
#include <utility>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace canopy {

class ExpertLease;

/// Gives out the experts of mixtures one at a time, where a unit's weights do not have them. A
/// sweep asks for what a layer's rows chose as soon as it knows, then acquires these by rising
/// index. One thread.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  /// Begins to bring what the rows of the sweep chose at a layer; waits for nothing. Layers come in
  /// the order of the sweep. Shapes: chosen [rows, active], each row rising; -1 in place of an
  /// expert that is not asked for here.
  virtual void want(int layer, std::span<const std::int32_t> chosen) = 0;
  /// True if it may help to name what a layer is likely to be asked for.
  virtual bool may_lack(int layer) const = 0;
  /// Names experts that rows are likely to choose at a layer after the one that was asked last, the
  /// likeliest first. They are brought while nothing that was asked for is on its way, as far as
  /// slots are free. Waits for nothing.
  virtual void expect(int layer, std::span<const std::int32_t> likely) = 0;
  /// True if acquire() would not wait for one of them.
  virtual bool is_there(int layer, int expert) const = 0;
  /// Lends one of them, the next by index: makes `compute` wait for its arrival. Throws Error if a
  /// read failed, naming layer and expert; the source is then unusable. Throws Stopped where `stop`
  /// is requested while it waits: the sweep is to be abandoned.
  virtual ExpertLease acquire(int layer, int expert, Stream& compute,
                              const std::stop_token& stop) = 0;
  /// Rows of the last sweep that became text: what they chose is likely to be chosen again. All
  /// rows, where nobody says before the next sweep.
  virtual void keep_rows(std::span<const std::int32_t> rows) = 0;
  /// Ends a sweep early: what has not been asked of the disk is not wanted any more.
  virtual void abandon_sweep() noexcept = 0;

 protected:
  ExpertLease lend(std::size_t slot, const ExpertWeights& weights, Stream& compute);

 private:
  friend class ExpertLease;
  virtual void give_back(std::size_t slot, Stream& compute) noexcept = 0;  // records "last use"
};

/// The right to read one expert's weights; ends when destroyed. Move-only.
class ExpertLease {
 public:
  ExpertLease(ExpertLease&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        slot_(other.slot_),
        weights_(other.weights_),
        compute_(other.compute_) {}
  ExpertLease& operator=(ExpertLease&&) = delete;
  ~ExpertLease() {
    if (source_) source_->give_back(slot_, *compute_);
  }
  const ExpertWeights& operator*() const { return weights_; }

 private:
  friend class ExpertSource;
  ExpertLease(ExpertSource& source, std::size_t slot, const ExpertWeights& weights, Stream& compute)
      : source_(&source), slot_(slot), weights_(weights), compute_(&compute) {}
  ExpertSource* source_;
  std::size_t slot_;
  ExpertWeights weights_;
  Stream* compute_;
};

inline ExpertLease ExpertSource::lend(std::size_t slot, const ExpertWeights& weights,
                                      Stream& compute) {
  return ExpertLease(*this, slot, weights, compute);
}

}  // namespace canopy
