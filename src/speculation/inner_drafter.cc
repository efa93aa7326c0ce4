#include "src/speculation/inner_drafter.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

/// Borrows a cache; gives it back when the text has ended.
class InnerDrafter::State final : public DraftState {
 public:
  State(std::vector<KvCache*>& free, KvCache& cache) : free_(free), cache_(&cache) {}
  ~State() override {
    cache_->truncate(0);
    free_.push_back(cache_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The cache, holding as much of the text before its last token as has been read of it.
  KvCache& cache_for(std::span<const TokenId> text) {
    const auto held = std::span(read_).first(static_cast<std::size_t>(cache_->length()));
    const auto before = text.first(text.size() - 1);
    const auto common = std::mismatch(held.begin(), held.end(), before.begin(), before.end());
    cache_->truncate(static_cast<int>(common.first - held.begin()));
    read_.assign(before.begin(), before.end());
    return *cache_;
  }

 private:
  std::vector<KvCache*>& free_;
  KvCache* cache_;
  std::vector<TokenId> read_;  // the cache's slots hold its beginning
};

InnerDrafter::InnerDrafter(Device& device, Transformer& model, const DraftPolicy::Config& policy,
                           KvRoom room, int texts)
    : model_(model),
      longest_(policy.shape),
      policy_(device, policy),
      pool_(device, model.config(), room.blocks, room.types) {
  for (int i = 0; i < texts; ++i) caches_.push_back(std::make_unique<KvCache>(pool_, room.slots));
  for (const auto& cache : caches_) free_.push_back(cache.get());
}

std::unique_ptr<DraftState> InnerDrafter::open() {
  require(!free_.empty(), "the inner draft has a cache for no more texts");
  KvCache& cache = *free_.back();
  auto state = std::make_unique<State>(free_, cache);
  free_.pop_back();
  return state;
}

std::vector<Draft> InnerDrafter::grow(std::span<const DraftRequest> requests,
                                      const TreeShape& shape, Stream& stream,
                                      std::stop_token stop) {
  require(requests.size() == 1, "the inner draft guesses for one text at a time");
  if (policy_.shape() != shape) policy_.reshape(shape);
  const DraftRequest& request = requests.front();
  KvCache& cache = static_cast<State&>(*request.state).cache_for(request.text);
  const DraftPolicy::Request guess{request.text.subspan(static_cast<std::size_t>(cache.length())),
                                   &cache,
                                   {},
                                   {},
                                   true,
                                   nullptr};
  return policy_.grow(model_, {&guess, 1}, stream, std::move(stop));
}

}  // namespace canopy
