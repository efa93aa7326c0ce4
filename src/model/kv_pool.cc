#include "src/model/kv_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace canopy {

namespace {

/// Keys and values of one layer in a block.
std::size_t layer_bytes(const KvTypes& types, const LayerSizes& sizes) {
  return static_cast<std::size_t>(sizes.kv_heads) * kKvBlock *
         (row_bytes(types.k, sizes.head_dim) + row_bytes(types.v, sizes.head_dim));
}

}  // namespace

std::size_t KvPool::block_bytes(const ModelConfig& config, KvTypes types) {
  std::size_t bytes = 0;
  for (int layer = 0; layer < config.layers; ++layer)
    bytes += layer_bytes(types, config.sizes(layer));
  return bytes;
}

std::size_t KvPool::bytes_needed(const ModelConfig& config, int blocks, KvTypes types) {
  return static_cast<std::size_t>(blocks) * block_bytes(config, types);
}

bool KvPool::is_of_pages(const ModelConfig& config, KvTypes types, std::size_t page_bytes) {
  return block_bytes(config, types) % page_bytes == 0;
}

KvPool::KvPool(Device& device, const ModelConfig& config, int blocks, KvTypes types, int snapshots,
               KvArena* arena)
    : device_(&device),
      config_(config),
      blocks_(blocks),
      types_(types),
      arena_(arena),
      node_of_(static_cast<std::size_t>(blocks)),
      holders_(static_cast<std::size_t>(blocks)) {
  require(blocks > 0, "a KV pool needs at least one block");
  for (int layer = 0; layer < config.layers; ++layer) {
    const LayerSizes sizes = config.sizes(layer);
    layers_.push_back({block_bytes_, sizes.kv_heads, sizes.head_dim});
    block_bytes_ += layer_bytes(types, sizes);
  }
  if (!arena_) storage_ = device.allocate_sparse(static_cast<std::size_t>(blocks) * block_bytes_);
  first_block_ = arena_ ? arena_->place(block_bytes_) : storage_.data();
  if (snapshots > 0 && config.recurrent())
    snapshots_ = std::make_unique<StateSnapshots>(device, config, snapshots);
  sparse_ = !arena_ && device.page_bytes() > 0 && is_of_pages(config, types, device.page_bytes());
  std::vector<int>& all = gives_back() ? bare_ : free_;
  for (int block = blocks; block-- > 0;) all.push_back(block);  // the first is taken first
}

TensorView KvPool::keys(int layer) const {
  require(layer >= 0 && layer < layers() && has(layer), "no such layer in the KV pool");
  const Layer& own = layers_[static_cast<std::size_t>(layer)];
  return TensorView(first_block_ + own.begin, types_.k, {own.kv_heads, kKvBlock, own.head_dim});
}

TensorView KvPool::values(int layer) const {
  const TensorView k = keys(layer);
  return TensorView(k.data() + k.bytes(), types_.v, {k.dim(0), k.dim(1), k.dim(2)});
}

int KvPool::free_blocks() const {
  int count = static_cast<int>(free_.size() + bare_.size());
  for (std::size_t block = 0; block < holders_.size(); ++block)
    count += node_of_[block] != nullptr && holders_[block] == 0 ? 1 : 0;
  return count;
}

int KvPool::least_held_blocks() const {
  if (!gives_back()) return blocks_;
  if (!arena_) return held_blocks() - static_cast<int>(free_.size());
  int held = held_blocks();
  while (held > 0 && holders_[static_cast<std::size_t>(held) - 1] == 0 &&
         node_of_[static_cast<std::size_t>(held) - 1] == nullptr)
    --held;
  return held;
}

int KvPool::take() {
  if (free_.empty() && !bare_.empty() && make_room_) make_room_();
  if (free_.empty() && !bare_.empty()) {
    free_.push_back(bare_.back());
    bare_.pop_back();
  }
  if (free_.empty()) {
    Node* const node = oldest();
    if (node == nullptr) throw KvPoolFull();
    forget(node);
  }
  const auto lowest = std::ranges::min_element(free_);
  const int block = *lowest;
  free_.erase(lowest);
  holders_[static_cast<std::size_t>(block)] = 1;
  return block;
}

KvPool::Node* KvPool::oldest() const {
  Node* oldest = nullptr;  // a leaf: what hangs below a block cannot be found without it
  for (std::size_t block = 0; block < holders_.size(); ++block) {
    Node* const node = node_of_[block];
    if (node == nullptr || holders_[block] > 0 || !node->children.empty()) continue;
    if (oldest == nullptr || node->used < oldest->used) oldest = node;
  }
  return oldest;
}

void KvPool::forget(Node* node) {
  if (snapshots_) snapshots_->drop(node->snapshot);
  free_.push_back(node->block);
  node_of_[static_cast<std::size_t>(node->block)] = nullptr;
  const std::vector<TokenId> tokens = node->tokens;
  node->parent->children.erase(tokens);
}

void KvPool::forget_before(std::uint64_t mark) {
  for (Node* node = oldest(); node != nullptr && node->used <= mark; node = oldest()) forget(node);
}

int KvPool::release_free() {
  const int before = held_blocks(), left = least_held_blocks();
  if (left == before) return 0;
  std::ranges::sort(free_, std::greater());
  auto end = free_.end();  // of those that go
  if (arena_) end = std::ranges::find_if(free_, [&](int block) { return block < left; });
  for (auto last = free_.begin(); sparse_ && last != end;) {  // runs of blocks
    auto first = last;
    while (first + 1 != end && *(first + 1) == *first - 1) ++first;
    device_->discard({at(*first), (static_cast<std::size_t>(first - last) + 1) * block_bytes_});
    last = first + 1;
  }
  bare_.insert(bare_.end(), free_.begin(), end);
  free_.erase(free_.begin(), end);
  std::ranges::sort(bare_, std::greater());
  return before - left;
}

std::vector<int> KvPool::find(std::span<const TokenId> text, TextLength length) {
  std::vector<Node*> way;
  std::size_t usable = 0;
  Node* node = &root_of(length);
  for (; text.size() >= kKvBlock; text = text.subspan(kKvBlock)) {
    const auto child = node->children.find({text.begin(), text.begin() + kKvBlock});
    if (child == node->children.end()) break;
    way.push_back(node = child->second.get());
    if (!config_.recurrent() || (snapshots_ && snapshots_->has(node->snapshot)))
      usable = way.size();
  }
  way.resize(usable);
  std::vector<int> found;
  for (Node* const one : way) {
    one->used = ++uses_;
    ++holders_[static_cast<std::size_t>(one->block)];
    found.push_back(one->block);
  }
  return found;
}

SnapshotId KvPool::snapshot_at(int block) const {
  const Node* const node = node_of_.at(static_cast<std::size_t>(block));
  require(node != nullptr, "a snapshot is found by a remembered block");
  return node->snapshot;
}

int KvPool::known_prefix(std::span<const TokenId> text, TextLength length) const {
  const Node* node = &root_of(length);
  std::ptrdiff_t known = 0;
  while (true) {
    const auto rest = text.subspan(static_cast<std::size_t>(known));
    const Node* next = nullptr;
    std::ptrdiff_t most = 0;
    for (const auto& [tokens, child] : node->children) {
      const auto parted = std::mismatch(rest.begin(), rest.end(), tokens.begin(), tokens.end());
      if (parted.second == tokens.end()) next = child.get();
      most = std::max(most, parted.first - rest.begin());
    }
    known += most;
    if (next == nullptr) return static_cast<int>(known);
    node = next;
  }
}

void KvPool::give_back(int block) noexcept {
  const auto at = static_cast<std::size_t>(block);
  if (--holders_[at] == 0 && node_of_[at] == nullptr) free_.push_back(block);
}

void KvPool::remember(std::span<const TokenId> text, std::span<const int> blocks,
                      TextLength length) {
  Node* node = &root_of(length);
  for (const int block : blocks) {
    if (text.size() < kKvBlock) return;
    std::vector<TokenId> tokens(text.begin(), text.begin() + kKvBlock);
    text = text.subspan(kKvBlock);
    auto& child = node->children[tokens];
    if (!child) {
      child = std::make_unique<Node>();
      child->parent = node;
      child->tokens = std::move(tokens);
      child->block = block;
      node_of_[static_cast<std::size_t>(block)] = child.get();
    } else if (child->block != block) {
      // The same tokens in two blocks: what hangs below must be held with what is above it.
      const auto other = static_cast<std::size_t>(child->block);
      if (holders_[other] > 0) return;
      free_.push_back(child->block);
      node_of_[other] = nullptr;
      child->block = block;
      node_of_[static_cast<std::size_t>(block)] = child.get();
    }
    node = child.get();
    node->used = ++uses_;
  }
}

void KvPool::remember_snapshot(std::span<const TokenId> text, const SnapshotId& snapshot,
                               TextLength length) {
  require(snapshots_ != nullptr && text.size() % kKvBlock == 0,
          "a snapshot is of whole blocks of a model with recurrent layers");
  Node* node = &root_of(length);
  for (; node != nullptr && !text.empty(); text = text.subspan(kKvBlock)) {
    const auto child = node->children.find({text.begin(), text.begin() + kKvBlock});
    node = child == node->children.end() ? nullptr : child->second.get();
  }
  if (node == nullptr || node->parent == nullptr) {
    snapshots_->drop(snapshot);
    return;
  }
  if (snapshots_->has(node->snapshot)) {  // another text's, of the same tokens
    snapshots_->drop(snapshot);
    snapshots_->use(node->snapshot);
    return;
  }
  node->snapshot = snapshot;
}

std::vector<KvPool::Remembered> KvPool::remembered() const {
  std::vector<Remembered> list;
  for (const TextLength length : {TextLength::kShort, TextLength::kLong}) {
    std::vector<std::pair<const Node*, int>> open{{&root_of(length), -1}};  // and its number
    while (!open.empty()) {
      const auto [node, number] = open.back();
      open.pop_back();
      for (const auto& [tokens, child] : node->children) {
        open.emplace_back(child.get(), static_cast<int>(list.size()));
        list.push_back({number, tokens, child->block, length, child->snapshot});
      }
    }
  }
  return list;
}

void KvPool::read(int block, std::span<std::byte> to, Stream& stream) const {
  device_->download(stream, to.first(block_bytes_), at(block));
  stream.synchronize();
}

void KvPool::write(int block, std::span<const std::byte> from, Stream& stream) {
  device_->upload(stream, at(block), from.first(block_bytes_));
  stream.synchronize();
}

}  // namespace canopy
