#include "src/speculation/drafters/inner_drafter.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

/// Its texts are cut again and again, and begin none that come later.
KvRoom without_snapshots(KvRoom room) {
  room.snapshots = 0;
  return room;
}

}  // namespace

class InnerDrafter::State final : public DraftState {
 public:
  explicit State(KvCaches::Loan cache) : cache_(std::move(cache)) {}

  /// The cache, holding as much of the text before its last token as has been read of it.
  KvCache& cache_for(std::span<const TokenId> text, TextLength length) {
    cache_->turn_to(length);
    const auto held = std::span(read_).first(static_cast<std::size_t>(cache_->length()));
    const auto before = text.first(text.size() - 1);
    const auto common = std::mismatch(held.begin(), held.end(), before.begin(), before.end());
    cache_->truncate(static_cast<int>(common.first - held.begin()));
    read_.assign(before.begin(), before.end());
    return *cache_;
  }

 private:
  KvCaches::Loan cache_;
  std::vector<TokenId> read_;  // the cache's slots hold its beginning
};

InnerDrafter::InnerDrafter(Device& device, Transformer& model, const ShapeGrower::Config& config,
                           KvRoom room, int texts)
    : model_(model),
      longest_(config.shape),
      grower_(device, config),
      caches_(device, model.config(), without_snapshots(room), texts) {}

std::unique_ptr<DraftState> InnerDrafter::open() { return std::make_unique<State>(caches_.lend()); }

std::vector<Draft> InnerDrafter::grow(std::span<const DraftRequest> requests,
                                      const TreeShape& shape, Stream& stream,
                                      std::stop_token stop) {
  require(requests.size() == 1, "the inner draft guesses for one text at a time");
  if (grower_.shape() != shape) grower_.reshape(shape);
  const DraftRequest& request = requests.front();
  KvCache& cache = static_cast<State&>(*request.state)
                       .cache_for(request.text, model_.config().text_length(request.text.size()));
  const ShapeGrower::Request guess{request.text.subspan(static_cast<std::size_t>(cache.length())),
                                   &cache,
                                   {},
                                   {},
                                   true,
                                   nullptr};
  return in_context("the draft's draft", [&] {
    return grower_.grow(model_, {&guess, 1}, stream, std::move(stop));
  });
}

}  // namespace canopy
