#include "src/model/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy {

static_assert(kAnchorStep % kKvBlock == 0, "a snapshot is of whole blocks");

std::size_t KvCache::bytes_needed(int capacity) {
  return static_cast<std::size_t>(capacity + KvPool::blocks_for(capacity)) * sizeof(std::int32_t);
}

KvCache::KvCache(KvPool& pool, int capacity, int nodes) : pool_(&pool), capacity_(capacity) {
  require(capacity > 0, "a KV cache needs at least one slot");
  const auto slots = static_cast<std::size_t>(capacity);
  const auto blocks = static_cast<std::size_t>(KvPool::blocks_for(capacity));
  table_ = pool.device().allocate(blocks * sizeof(std::int32_t));
  path_ = pool.device().allocate(slots * sizeof(std::int32_t));
  blocks_.reserve(blocks);
  host_path_.reserve(slots);
  uploaded_ = pool.device().make_event();
  if (pool.config().recurrent())
    recurrent_ = std::make_unique<RecurrentState>(pool.device(), pool.config(), capacity, nodes,
                                                  pool.snapshots());
}

KvCache::KvCache(std::unique_ptr<KvPool> own, int capacity, int nodes)
    : KvCache(*own, capacity, nodes) {
  own_ = std::move(own);
}

KvCache::KvCache(Device& device, const ModelConfig& config, int capacity, KvTypes types, int nodes)
    : KvCache(std::make_unique<KvPool>(device, config, std::max(1, KvPool::blocks_for(capacity)),
                                       types),
              capacity, nodes) {}

KvCache::~KvCache() {
  if (uploaded_) wait_quietly(*uploaded_);  // none: it was moved from
  give_back_all();
}

void KvCache::give_back_all() noexcept {
  if (!mirrors_)
    for (const std::int32_t block : blocks_) pool_->give_back(block);
  blocks_.clear();
}

void KvCache::mirror(const KvState& state, Stream& stream) {
  require(!recurrent_,
          "a text of a model with recurrent layers has no mirror: their states are not "
          "sent between processes");
  require(mirrors_ || blocks_.empty(), "a cache that holds a text does not mirror another");
  require(std::ssize(state.blocks) <= KvPool::blocks_for(capacity_) &&
              state.length <= static_cast<int>(state.blocks.size()) * kKvBlock &&
              std::ranges::all_of(
                  state.blocks,
                  [&](std::int32_t block) { return block >= 0 && block < pool_->blocks(); }),
          "a mirrored cache has other blocks than its pool");
  mirrors_ = true;
  length_ = state.length;
  text_length_ = state.text_length;
  if (std::ranges::equal(state.blocks, blocks_)) return;
  uploaded_->wait();
  blocks_.assign(state.blocks.begin(), state.blocks.end());
  send_table(stream);
}

KvView KvCache::layer(int index) const {
  return {pool_->keys(index), pool_->values(index), table(),
          static_cast<std::int64_t>(pool_->stride())};
}

ConstTensorView KvCache::table() const {
  return ConstTensorView(table_.data(), DType::kI32, {KvPool::blocks_for(capacity_)});
}

bool KvCache::turn_to(TextLength length) {
  if (length == text_length_) return false;
  const bool held = length_ > 0;
  truncate(0);
  text_length_ = length;
  return held;
}

void KvCache::send_table(Stream& stream) {
  pool_->device().upload(stream, table_.data(), std::as_bytes(std::span(blocks_)));
  stream.record(*uploaded_);
}

void KvCache::reserve(int slots, Stream& stream) {
  if (slots > capacity_)
    throw Error("the sequence needs " + std::to_string(slots) + " slots and its KV cache has " +
                std::to_string(capacity_));
  const auto wanted = static_cast<std::size_t>(KvPool::blocks_for(slots));
  if (blocks_.size() >= wanted) return;
  require(!mirrors_, "a mirrored cache has no blocks for what it is to hold");
  uploaded_->wait();
  while (blocks_.size() < wanted) blocks_.push_back(pool_->take());
  send_table(stream);
}

void KvCache::reuse_prefix(std::span<const TokenId> text, Stream& stream) {
  if (!pool_->remembers()) return;
  if (length_ % kKvBlock != 0) return;  // the block that it is in is its own
  const std::vector<int> found = pool_->find(text, text_length_);
  const auto kept = static_cast<std::size_t>(length_ / kKvBlock);
  if (found.size() > kept) {
    uploaded_->wait();
    for (std::size_t i = kept; i < blocks_.size(); ++i) pool_->give_back(blocks_[i]);
    blocks_.resize(kept);
    blocks_.insert(blocks_.end(), found.begin() + length_ / kKvBlock, found.end());
    length_ = shared_ = static_cast<int>(blocks_.size()) * kKvBlock;
    send_table(stream);
    if (recurrent_) recurrent_->restore(length_, pool_->snapshot_at(blocks_.back()), stream);
  }
  // Blocks that it has already, or did not take.
  for (std::size_t i = 0; i < std::min(kept, found.size()); ++i) pool_->give_back(found[i]);
  // A text parts from a remembered one where others may do so, too.
  if (const int known = recurrent_ ? pool_->known_prefix(text, text_length_) : 0; known > length_)
    recurrent_->want_snapshot(known);
}

void KvCache::share(std::span<const TokenId> text) {
  const auto whole = static_cast<std::size_t>(length_ / kKvBlock);
  if (!pool_->remembers() || static_cast<int>(whole) * kKvBlock <= shared_) return;
  shared_ = static_cast<int>(whole) * kKvBlock;
  pool_->remember(text.first(static_cast<std::size_t>(shared_)), std::span(blocks_).first(whole),
                  text_length_);
  if (!recurrent_) return;
  for (const TakenSnapshot& taken : recurrent_->hand_out_snapshots())
    if (pool_->snapshots()->has(taken.id))
      pool_->remember_snapshot(text.first(static_cast<std::size_t>(taken.tokens)), taken.id,
                               text_length_);
}

void KvCache::commit(std::span<const NodeId> path, Stream& stream) {
  const auto count = static_cast<int>(path.size());
  if (count > capacity_ - length_)
    throw Error("cannot commit " + std::to_string(count) + " slots behind " +
                std::to_string(length_) + " in a KV cache of " + std::to_string(capacity_));
  reserve(length_ + count, stream);
  const auto moved = std::find_if(path.begin(), path.end(),
                                  [&](const NodeId& node) { return node != &node - path.data(); });
  if (moved != path.end()) {
    uploaded_->wait();
    host_path_.assign(path.begin(), path.end());
    pool_->device().upload(stream, path_.data(), std::as_bytes(std::span(host_path_)));
    stream.record(*uploaded_);
    if (!mirrors_) pool_->kept(state(), path);
    const ConstTensorView rows(path_.data(), DType::kI32, {count});
    for (int i = 0; i < pool_->layers(); ++i)
      if (pool_->has(i)) pool_->device().ops().keep_kv(stream, rows, length_, layer(i));
  }
  if (recurrent_) recurrent_->commit(path, stream);
  length_ += count;
}

void KvCache::pretend(int length, Stream& stream) {
  truncate(0);
  reserve(length, stream);
  write_zeros(stream);
  if (recurrent_) recurrent_->pretend(length, stream);
  length_ = length;
}

void KvCache::write_zeros(Stream& stream) {
  const std::vector<std::byte> zeros(pool_->block_bytes());
  for (const std::int32_t block : blocks_) pool_->write(block, zeros, stream);
}

void KvCache::truncate(int length) {
  require(length >= 0 && length <= length_, "a KV cache can only be truncated to what it holds");
  require(length == 0 || length >= shared_, "a KV cache cannot be cut where others may share it");
  if (recurrent_) length = recurrent_->truncate(length);
  length_ = length;
  if (length > 0) return;
  shared_ = 0;
  wait_quietly(*uploaded_);
  give_back_all();
}

}  // namespace canopy
