#pragma once
#include <memory>
#include <vector>

#include "src/model/kv_caches.h"
#include "src/speculation/drafter.h"
#include "src/speculation/growers/shape_grower.h"

namespace canopy {

/// Guesses what a draft model would write, by a second and smaller model: a chain of its likeliest
/// tokens. Unlike those of other drafters its texts may change their ends from one guess to the
/// next, as what the draft model wrote is refused by the target: what has been read is kept as far
/// as the text is the same. Guesses change no text, only how fast it comes, so nothing is drawn and
/// no edits are made. One text at a time is grown for.
class InnerDrafter final : public Drafter {
 public:
  /// `model` must outlive the drafter. `config` has the longest chain for its shape and is of
  /// kTopK, for one request; `texts` can be open at a time. Throws Error if the device is full.
  InnerDrafter(Device& device, Transformer& model, const ShapeGrower::Config& config, KvRoom room,
               int texts);

  std::unique_ptr<DraftState> open() override;
  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                          Stream& stream, std::stop_token stop) override;
  void conclude(DraftState&, const Draft&, const Verdict&, ConstTensorView, Stream&) override {}
  std::vector<KvPool*> kv_pools() override { return {&caches_.pool()}; }
  TreeRoom room() const override { return TreeRoom::of(longest_); }

 private:
  class State;
  Transformer& model_;
  TreeShape longest_;
  ShapeGrower grower_;
  KvCaches caches_;
};

}  // namespace canopy
