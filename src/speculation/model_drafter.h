#pragma once
#include <memory>
#include <vector>

#include "src/speculation/draft_policy.h"
#include "src/speculation/drafter.h"

namespace canopy {

/// Drafts by a small model: each text has a KV cache of it.
class ModelDrafter final : public Drafter {
 public:
  /// `model` must outlive the drafter. config.max_requests texts can be open at a time. Throws
  /// Error if the device is full.
  ModelDrafter(Device& device, Transformer& model, const DraftPolicy::Config& config, KvRoom room);

  std::unique_ptr<DraftState> open() override;
  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                          Stream& stream, std::stop_token stop) override;
  void read(DraftState& state, std::span<const TokenId> text, Stream& stream,
            std::stop_token stop) override;
  void conclude(DraftState& state, const Draft& draft, const Verdict& verdict,
                Stream& stream) override;
  bool has_room(const TreeShape& shape, int texts) const override {
    return policy_.has_room(shape, texts);
  }
  int most_nodes(int texts) const override { return policy_.most_nodes(texts); }
  std::string note() const override;

  const DraftPolicy& policy() const { return policy_; }

 private:
  class State;
  Transformer& model_;
  DraftPolicy policy_;
  KvPool pool_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<KvCache*> free_;
};

}  // namespace canopy
