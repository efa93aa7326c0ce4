#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/checkpoint/model_config.h"
#include "src/model/kv_arena.h"
#include "src/model/state_snapshots.h"

namespace canopy {

/// Types of keys and values in the cache: f32, f16 or bf16 each.
struct KvTypes {
  DType k = DType::kF32, v = DType::kF32;
};

/// Room that caches are made of: blocks that they share, and the most slots of one.
struct KvRoom {
  int blocks = 0, slots = 0;
  KvTypes types;
  int nodes = 64;            // of a text's tree at most, where the model has recurrent layers
  int snapshots = 0;         // of their states, for the texts of all caches
  KvArena* arena = nullptr;  // that holds the blocks; null: the pool has memory of its own
};

struct KvState;  // of kv_cache.h

/// Thrown where every block of a pool is in use.
class KvPoolFull : public Error {
 public:
  KvPoolFull() : Error("the KV pool is full: all its blocks hold texts that are being written") {}
};

/// Keys and values of one model on one device, in blocks of kKvBlock slots for all layers: a block
/// is one piece of memory. Caches take blocks as their texts grow. Whole blocks of committed text
/// are remembered by their tokens, so that texts with a common beginning hold it once, at the same
/// time or one after another; a remembered block that no cache holds is forgotten when its memory
/// is wanted, the one used least recently first. Where the model has recurrent layers, a text goes
/// on from snapshots of their states alone, which are remembered with blocks. One thread at a time.
class KvPool {
 public:
  /// `snapshots`: of recurrent layers, where the model has some. The arena, if any, must outlive
  /// the pool. Throws Error if the device is full.
  KvPool(Device& device, const ModelConfig& config, int blocks, KvTypes types, int snapshots = 0,
         KvArena* arena = nullptr);
  /// Predicts what the constructor will hold besides snapshots. Pure.
  static std::size_t bytes_needed(const ModelConfig& config, int blocks, KvTypes types);
  static std::size_t block_bytes(const ModelConfig& config, KvTypes types);
  /// Says if a block fills whole pages, so that it can give its memory back.
  static bool is_of_pages(const ModelConfig& config, KvTypes types, std::size_t page_bytes);
  static constexpr int kAllocations = 1;  // that hold it
  /// Null where a text goes on from any block, or from none as there is no room for states.
  StateSnapshots* snapshots() const { return snapshots_.get(); }
  /// False for a model with recurrent layers whose states are not kept.
  bool remembers() const { return !config_.recurrent() || snapshots_; }
  static int blocks_for(int slots) { return (slots + kKvBlock - 1) / kKvBlock; }

  Device& device() const { return *device_; }
  const ModelConfig& config() const { return config_; }
  int layers() const { return static_cast<int>(layers_.size()); }
  /// True if this layer attends: others have no storage.
  bool has(int layer) const { return layers_.at(static_cast<std::size_t>(layer)).kv_heads > 0; }
  int blocks() const { return blocks_; }
  int free_blocks() const;  // those that are only remembered count
  /// The part of a layer that has() any in block 0; other blocks lie stride() bytes apart. Shapes:
  /// [kv_heads, kKvBlock, head_dim], of its own sizes.
  TensorView keys(int layer) const;
  TensorView values(int layer) const;
  std::size_t stride() const { return arena_ ? arena_->cell_bytes() : block_bytes_; }

  bool gives_back() const { return sparse_ || arena_; }  // the memory of free blocks
  KvArena* arena() const { return arena_; }              // null: none
  /// Counts the blocks that have taken memory: those in use, those remembered, and those that are
  /// free but were not released; in an arena, all below the highest of these. All of the pool where
  /// its device takes memory at once, or where blocks are not of whole pages.
  int held_blocks() const { return blocks_ - static_cast<int>(bare_.size()); }
  int least_held_blocks() const;  // after release_free()
  /// Has `make_room` called before the pool takes memory for one block more. It may release and
  /// forget blocks; it throws where there is no room.
  void on_growth(std::function<void()> make_room) { make_room_ = std::move(make_room); }
  /// Has `keep` called with the state of a cache, before what follows its committed slots moves
  /// there, and the path that moves: for those who hold the same elsewhere.
  void on_keep(std::function<void(const KvState&, std::span<const std::int32_t>)> keep) {
    on_keep_ = std::move(keep);
  }
  void kept(const KvState& state, std::span<const std::int32_t> path) const {
    if (on_keep_) on_keep_(state, path);
  }
  /// Gives the memory of free blocks back, to the system or to the arena, where that can be done;
  /// returns how many blocks had it.
  int release_free();
  /// Counts lookups and memories, so that a place in time has a number.
  std::uint64_t uses() const { return uses_; }
  /// Forgets the blocks that no cache holds and nobody has used since uses() was `mark`.
  void forget_before(std::uint64_t mark);

  /// A block for one cache, the lowest there is. Throws KvPoolFull, or what `make_room` throws.
  int take();
  /// The blocks that hold the beginning of this text, as far as it is known of texts of this
  /// length, and a text can go on from there; they count as held by one cache more.
  std::vector<int> find(std::span<const TokenId> text, TextLength length = TextLength::kShort);
  /// Counts the tokens of this text with which a remembered one begins, as far as its whole blocks
  /// show: there the two part, within a block perhaps.
  int known_prefix(std::span<const TokenId> text, TextLength length = TextLength::kShort) const;
  void give_back(int block) noexcept;
  /// `blocks` hold the beginning of `text`, all committed: whole ones can be found from now on.
  void remember(std::span<const TokenId> text, std::span<const int> blocks,
                TextLength length = TextLength::kShort);
  /// The snapshot is of `text`, whose blocks are remembered: of whole ones. Else it is dropped.
  void remember_snapshot(std::span<const TokenId> text, const SnapshotId& snapshot,
                         TextLength length = TextLength::kShort);
  /// The snapshot of a text up to the end of this remembered block; it may be none.
  SnapshotId snapshot_at(int block) const;

  /// A remembered block: its tokens follow those of its parent, which stands before it in the list.
  struct Remembered {
    int parent = -1;  // its number in the list; -1: the text begins here
    std::vector<TokenId> tokens;
    int block = -1;
    TextLength length = TextLength::kShort;  // of its text
    SnapshotId snapshot = {};                // at its end, where StateSnapshots has it
  };
  std::vector<Remembered> remembered() const;
  /// Keys and values of one block, all layers.
  std::size_t block_bytes() const { return block_bytes_; }
  /// Copies them from the device and waits, or to it.
  void read(int block, std::span<std::byte> to, Stream& stream) const;
  void write(int block, std::span<const std::byte> from, Stream& stream);

 private:
  /// A block in a tree of remembered texts: its tokens follow those of its parent.
  struct Node {
    Node* parent = nullptr;
    int block = -1;
    std::vector<TokenId> tokens;
    std::map<std::vector<TokenId>, std::unique_ptr<Node>> children;
    std::uint64_t used = 0;
    SnapshotId snapshot = {};  // at its end; may be gone
  };
  /// One layer's part of a block: keys, then values.
  struct Layer {
    std::size_t begin = 0;
    int kv_heads = 0, head_dim = 0;
  };
  Node& root_of(TextLength length) { return length == TextLength::kLong ? long_root_ : root_; }
  const Node& root_of(TextLength length) const {
    return length == TextLength::kLong ? long_root_ : root_;
  }
  Node* oldest() const;  // of the blocks that are only remembered, and that no other hangs below
  void forget(Node* node);
  std::byte* at(int block) const {
    return first_block_ + static_cast<std::size_t>(block) * stride();
  }

  Device* device_;
  ModelConfig config_;
  std::vector<Layer> layers_;
  int blocks_;
  KvTypes types_;
  std::size_t block_bytes_ = 0;
  KvArena* arena_;
  Buffer storage_;  // without an arena
  std::byte* first_block_;
  std::unique_ptr<StateSnapshots> snapshots_;
  bool sparse_;  // free blocks can give their memory back to the system
  std::function<void()> make_room_;
  std::function<void(const KvState&, std::span<const std::int32_t>)> on_keep_;
  Node root_, long_root_;         // of short texts and of long ones, whose keys differ
  std::vector<Node*> node_of_;    // by block; null: not remembered
  std::vector<int> holders_;      // caches, by block
  std::vector<int> free_, bare_;  // with memory and without; the lowest of these is the last
  std::uint64_t uses_ = 0;
};

}  // namespace canopy
