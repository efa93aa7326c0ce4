#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "src/model/kv_caches.h"
#include "src/speculation/drafter.h"
#include "src/speculation/growers/frontier_grower.h"
#include "src/speculation/growers/shape_grower.h"

namespace canopy {

/// Drafts by a small model: each text has a KV cache of it. Trees have the shape that is asked for,
/// or less of it where the config has a growth. Where trees are valued, they are so for texts of
/// which the target's own sample decides, and of the shape for the others.
class ModelDrafter final : public Drafter {
 public:
  /// `model` must outlive the drafter. config.max_requests texts can be open at a time. `inner`, of
  /// a hierarchy alone: guesses what the model would write, for as many texts. `calibrated`: of
  /// valued trees, what is known of the pair. Throws Error if the device is full.
  ModelDrafter(Device& device, Transformer& model, const ShapeGrower::Config& config, KvRoom room,
               std::unique_ptr<Drafter> inner = nullptr, Calibrated calibrated = {});

  std::unique_ptr<DraftState> open() override;
  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                          Stream& stream, std::stop_token stop) override;
  void read(DraftState& state, std::span<const TokenId> text, Stream& stream,
            std::stop_token stop) override;
  void conclude(DraftState& state, const Draft& draft, const Verdict& verdict, ConstTensorView read,
                Stream& stream) override;
  TreeRoom room() const override { return ShapeGrower::room_of(config_); }
  void set_prices(const GrowthPrices& prices) override { prices_ = prices; }
  Calibrated take_shown() override { return learner_->take_shown(); }
  std::vector<KvPool*> kv_pools() override {
    std::vector<KvPool*> pools{&caches_.pool()};
    if (!inner_) return pools;
    for (KvPool* const pool : inner_->kv_pools()) pools.push_back(pool);
    return pools;
  }
  std::string note() const override;

  /// Device bytes of what grows its trees, and how many allocations hold them. Pure.
  static std::size_t grower_bytes(const ShapeGrower::Config& config);
  static int grower_allocations(const ShapeGrower::Config& config);
  /// Bytes of the host that the texts' states hold, of at most this many tokens each. Pure.
  static std::size_t state_bytes(const ShapeGrower::Config& config, int context);

 private:
  class State;
  std::vector<Draft> grow_by_rows(std::span<const DraftRequest> requests,
                                  std::span<const ShapeGrower::Request> texts,
                                  const TreeShape& shape, Stream& stream,
                                  const std::stop_token& stop);
  std::vector<Draft> grow_valued(std::span<const DraftRequest> requests,
                                 std::span<const ShapeGrower::Request> texts,
                                 const TreeShape& shape, Stream& stream,
                                 const std::stop_token& stop);
  bool is_valued(const ShapeGrower::Request& text) const {
    return text.best_tokens || target_decides(config_.drawing);
  }

  std::unique_ptr<Grower> grower_of(const DraftRequest& request, const ShapeGrower::Request& text,
                                    const TreeShape& shape, Stream& stream,
                                    const std::stop_token& stop) const;

  Transformer& model_;
  ShapeGrower::Config config_;
  std::unique_ptr<Drafter> inner_;           // of a hierarchy
  std::optional<ShapeGrower> shape_grower_;  // for trees of a shape
  std::optional<FrontierGrower> frontier_;   // for those that the draft's own rows end or make
  GrowthPrices prices_;                      // of valued trees
  std::shared_ptr<ChanceLearner> learner_;   // shared with the texts' states
  KvCaches caches_;
};

}  // namespace canopy
