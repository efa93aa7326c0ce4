#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/model/kv_pool.h"
#include "src/model/recurrent_state.h"

namespace canopy {

/// A cache as a process that holds the same may have it: its committed slots and its table of
/// blocks.
struct KvState {
  int length = 0;
  TextLength text_length = TextLength::kShort;
  std::span<const std::int32_t> blocks;
};

/// Keys and values of one sequence: a table of blocks of a pool. Slots [0, length()) are committed;
/// after them is scratch: a forward over nodes [f, f + n) writes slots [length() + f, length() + f
/// + n), and commit keeps a path of them. The table lies at one address of the device for as long
/// as the cache lives. One thread at a time; device work is enqueued on the stream given, always
/// the same one.
class KvCache {
 public:
  /// It holds at most `capacity` slots, scratch included. Takes blocks as they are needed. `nodes`:
  /// as KvRoom::nodes. Throws Error if the device is full. The pool must outlive the cache.
  KvCache(KvPool& pool, int capacity, int nodes = KvRoom().nodes);
  /// The same with a pool of its own, in which there is room for all slots.
  KvCache(Device& device, const ModelConfig& config, int capacity, KvTypes types,
          int nodes = KvRoom().nodes);
  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) = delete;
  ~KvCache();
  /// Predicts what the first constructor will hold besides the pool and the recurrent layers. Pure.
  static std::size_t bytes_needed(int capacity);
  static constexpr int kAllocations = 2;  // that hold it

  int length() const { return length_; }
  int capacity() const { return capacity_; }
  /// Blocks that it holds.
  int blocks() const { return static_cast<int>(blocks_.size()); }
  KvView layer(int index) const;
  ConstTensorView table() const;  // KvView::block of each layer
  /// Null where the model has no recurrent layers.
  RecurrentState* recurrent() const { return recurrent_.get(); }
  /// Length of the text that it holds: rotary frequencies may depend on it.
  TextLength text_length() const { return text_length_; }
  /// Is for a text of this length from now on. Of one of another it forgets all; says if there was
  /// anything.
  bool turn_to(TextLength length);

  /// Makes room for slots [0, slots). Throws KvPoolFull, or Error beyond the capacity.
  void reserve(int slots, Stream& stream);
  /// Takes over what the pool remembers of this text, beyond what is committed already; `text`
  /// begins with that. The committed length grows by whole blocks; of a model with recurrent layers
  /// up to a snapshot of their states.
  void reuse_prefix(std::span<const TokenId> text, Stream& stream);
  /// The committed slots hold the beginning of `text`: others may reuse it.
  void share(std::span<const TokenId> text);
  /// Others will go on from about these tokens of the text: its prompt's end. Of a model with
  /// recurrent layers a snapshot is taken of as many of them as can be.
  void expect_reuse_at(int tokens) {
    if (recurrent_) recurrent_->want_snapshot(tokens);
  }

  /// Moves the slots of `path` (node ids counted from length(), ascending) to the front of the
  /// scratch area and extends the committed length by path.size(). A path 0, 1, 2, ... moves
  /// nothing.
  void commit(std::span<const NodeId> path, Stream& stream);
  /// Forgets the tail: no device work. Of a model with recurrent layers, whose states cannot be
  /// cut, it forgets all where that is less than is committed. To 0 gives all blocks back. Throws
  /// Error if `length` is more than is committed, or cuts into what others may hold.
  void truncate(int length);

  /// Holds a text of `length` tokens, of which nobody says which: to time what follows it. Keys and
  /// values are written, as zeros: pages that nobody wrote are one and the same in memory.
  void pretend(int length, Stream& stream);

  /// Its state; the blocks are lent until the cache changes.
  KvState state() const { return {length_, text_length_, blocks_}; }
  /// Takes the state of a cache of another process, whose pool has the same blocks as this one's:
  /// from now on it has the other's blocks, and takes and gives back none of its own. Throws Error
  /// if there are no such blocks, or more than it has room for, or the model has recurrent layers.
  void mirror(const KvState& state, Stream& stream);

 private:
  KvCache(std::unique_ptr<KvPool> own, int capacity, int nodes);
  void send_table(Stream& stream);
  void give_back_all() noexcept;
  void write_zeros(Stream& stream);  // to its blocks

  std::unique_ptr<KvPool> own_;
  KvPool* pool_;
  int capacity_, length_ = 0, shared_ = 0;  // slots
  bool mirrors_ = false;                    // blocks are another process' to choose
  TextLength text_length_ = TextLength::kShort;
  Buffer table_, path_;
  std::vector<std::int32_t> blocks_;     // what the table has; its memory never moves
  std::vector<std::int32_t> host_path_;  // lives until uploaded_ is reached
  std::unique_ptr<Event> uploaded_;      // both
  std::unique_ptr<RecurrentState> recurrent_;
};

}  // namespace canopy
