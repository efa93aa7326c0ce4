#include "src/speculation/model_drafter.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/speculation/draft_reading.h"

namespace canopy {

/// Borrows a cache; gives it back when the text has ended.
class ModelDrafter::State final : public DraftState {
 public:
  State(std::vector<KvCache*>& free, KvCache& cache) : free_(free), cache_(&cache) {}
  ~State() override {
    cache_->truncate(0);  // its blocks go back; what they hold is remembered
    free_.push_back(cache_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  KvCache& cache() const { return *cache_; }

 private:
  std::vector<KvCache*>& free_;
  KvCache* cache_;
};

ModelDrafter::ModelDrafter(Device& device, Transformer& model, const DraftPolicy::Config& config,
                           KvRoom room)
    : model_(model),
      policy_(device, config),
      pool_(device, model.config(), room.blocks, room.types) {
  for (int i = 0; i < config.max_requests; ++i)
    caches_.push_back(std::make_unique<KvCache>(pool_, room.slots));
  for (auto cache = caches_.rbegin(); cache != caches_.rend(); ++cache)
    free_.push_back(cache->get());
}

std::unique_ptr<DraftState> ModelDrafter::open() {
  require(!free_.empty(), "the draft has a cache for no more texts");
  KvCache& cache = *free_.back();
  auto state = std::make_unique<State>(free_, cache);
  free_.pop_back();
  return state;
}

std::vector<Draft> ModelDrafter::grow(std::span<const DraftRequest> requests,
                                      const TreeShape& shape, Stream& stream,
                                      std::stop_token stop) {
  if (policy_.shape() != shape) policy_.reshape(shape);
  std::vector<DraftPolicy::Request> growing;
  for (const DraftRequest& request : requests) {
    KvCache& cache = static_cast<State&>(*request.state).cache();
    cache.share(request.text);
    cache.adopt(request.text.first(request.text.size() - 1), stream);
    growing.push_back({request.text.subspan(static_cast<std::size_t>(cache.length())), &cache,
                       request.sampling, request.rng, request.best_tokens, request.editor});
  }
  return policy_.grow(model_, growing, stream, std::move(stop));
}

void ModelDrafter::read(DraftState& state, std::span<const TokenId> text, Stream& stream,
                        std::stop_token stop) {
  KvCache& cache = static_cast<State&>(state).cache();
  cache.adopt(text, stream);
  const auto known = static_cast<std::size_t>(cache.length());  // more than `text`: after a stop
  read_text(model_, text.subspan(std::min(known, text.size())), cache, stream, stop);
}

void ModelDrafter::conclude(DraftState& state, const Draft& draft, const Verdict& verdict,
                            Stream& stream) {
  std::vector<NodeId> known;  // a last leaf was never run: it is read with the next tree
  for (const NodeId node : verdict.path)
    if (const std::int32_t slot = draft.row[static_cast<std::size_t>(node)]; slot >= 0)
      known.push_back(slot);
  static_cast<State&>(state).cache().commit(known, stream);
}

std::string ModelDrafter::note() const {
  if (policy_.why_no_graphs().empty()) return {};
  return "the draft's levels could not be launched as CUDA graphs (" + policy_.why_no_graphs() +
         "); its kernels are launched one by one, as with --enforce-eager";
}

}  // namespace canopy
