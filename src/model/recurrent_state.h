#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/delta.h"
#include "kernels/device.h"
#include "src/base/types.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

/// Places of a text's last slots among a few rows. Those of committed slots that are still read
/// stay as they are; slots after them take the others by turns, so that a long chain has its end
/// there. Plain data.
class SlotRows {
 public:
  /// A text of at most `slots`. `rows`: at least one.
  SlotRows(int slots, int rows);

  /// Row of each slot; of one that has none, any.
  const std::vector<std::int32_t>& table() const { return row_; }
  int length() const { return length_; }
  /// Gives slots [first, first + count) rows: what was in later slots is lost. Throws Error where
  /// slots between the committed ones and `first` have none.
  void lay_out(int first, int count);
  /// Commits slots length() + path(i), ascending, as those after length(). Of these and of earlier
  /// ones, those from `needed` on are read by the next sweeps, and those from `now` on before the
  /// next lay_out() is run. Throws Error if one of them is lost.
  void commit(std::span<const NodeId> path, int needed, int now);
  /// Forgets the slots that are not committed; or all.
  void drop_others() { top_ = length_; }
  void clear();
  /// Takes `length` slots for committed, of which those from `needed` on are read again.
  void pretend(int length, int needed);

 private:
  void refill(int needed);

  std::vector<std::int32_t> row_, free_;  // by slot; those of slots after length_, by turns
  std::vector<bool> taken_;               // by row
  int length_ = 0, top_ = 0;              // committed slots, and the end of those after them
};

/// A step of a recurrent layer over some rows of a sweep: a state that is moved on, or rows that
/// are run. The same for each layer.
struct DeltaStep {
  struct At {
    std::int64_t anchor = 0;
    int buffer = -1;  // of RecurrentState; -1: the state is 0
  };
  std::array<At, 2> states;     // that the rows start from; of a move, from the first to the second
  int first_row = 0, rows = 0;  // counted from those that were laid out; no rows: a move
};

/// The recurrent layers of one text: states after a few numbers of its tokens, and rows of the
/// tokens since (math.md "Recurrent layers"). The state that the next token starts from is never
/// written to, so that a sweep may fail or be run again. One thread at a time; device work is
/// enqueued on the stream given, always the same one.
class RecurrentState {
 public:
  /// A text of at most `slots` tokens, trees of at most `nodes` among them. Throws Error if the
  /// device is full.
  RecurrentState(Device& device, const ModelConfig& config, int slots, int nodes);
  RecurrentState(const RecurrentState&) = delete;
  ~RecurrentState();
  /// Predicts what the constructor will hold; 0 without recurrent layers. Pure.
  static std::size_t bytes_needed(const ModelConfig& config, int slots, int nodes);
  static constexpr int kAllocations = 2;  // that hold it

  /// Gives rows to nodes [first_node, first_node + count) after `prefix` slots, and says what each
  /// layer has to do. `ancestors`: of these nodes, as in TreeBatch. Throws Error where a node lies
  /// deeper than kDeepestTree, or the tree has more nodes than there is room for.
  std::vector<DeltaStep> lay_out(int prefix, int first_node, int count,
                                 std::span<const std::uint64_t> ancestors, Stream& stream);
  /// Commits a path of nodes, as KvCache does.
  void commit(std::span<const NodeId> path, Stream& stream);
  /// Forgets all but `length` committed tokens, where that is none of them or all; returns how many
  /// are left: a state cannot be cut, so that it is none otherwise.
  int truncate(int length);
  /// Holds a text of `length` tokens, of which nobody says which: to time what follows it.
  void pretend(int length, Stream& stream);

  /// A layer's rows and one of its states.
  DeltaRows rows(int layer) const;
  TensorView state(int layer, int buffer) const;

 private:
  /// Floats of one layer's parts, and where they begin.
  struct Parts {
    int input_rows, rows;
    std::size_t input, key, update, decay, states, all;
    Parts(const DeltaConfig& delta, int nodes);
  };
  /// Returns where the state after `anchor` tokens is, or will be after the moves that it adds.
  int move_to(std::int64_t anchor, std::vector<DeltaStep>& moves);
  void send_tables(int first, int count, Stream& stream);
  std::byte* of_layer(int layer) const;

  Device* device_;
  DeltaConfig delta_;
  std::vector<int> ordinal_;  // among recurrent layers, by layer; -1: it is none
  int nodes_, layers_ = 0;
  Parts parts_;
  SlotRows inputs_, rows_;
  std::array<std::int64_t, 3> anchors_{-1, -1, -1};  // of the states; -1: of no text
  std::array<bool, 3> sure_{};  // those of committed tokens, which were computed
  int kept_ = -1;               // the state that the next token starts from; -1: 0
  Buffer storage_, tables_;
  std::unique_ptr<Event> uploaded_;  // the tables
};

}  // namespace canopy
