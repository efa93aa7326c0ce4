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
#include "src/model/state_snapshots.h"

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
  /// Forgets the slots that are not committed.
  void drop_others() { top_ = length_; }
  /// Takes `length` slots for committed, of which those from `needed` on are read again: they have
  /// the first rows, in order.
  void begin_at(int length, int needed);

 private:
  void refill(int needed);

  std::vector<std::int32_t> row_, free_;  // by slot; those of slots after length_, by turns
  std::vector<bool> taken_;               // by row
  int length_ = 0, top_ = 0;              // committed slots, and the end of those after them
};

/// A step of a recurrent layer over some rows of a sweep: a state that is moved on, rows that are
/// run, or a snapshot that is written. The same for each layer.
struct DeltaStep {
  struct At {
    std::int64_t anchor = 0;
    int buffer = -1;  // of RecurrentState; -1: the state is 0
  };
  std::array<At, 2> states;     // that the rows start from; of a move, from the first to the second
  int first_row = 0, rows = 0;  // counted from those that were laid out; no rows: a move
  int snapshot = -1;            // its place: of the first state, and the kAnchorStep rows after it
};

/// A snapshot of a text's first tokens.
struct TakenSnapshot {
  int tokens = 0;
  SnapshotId id;
  bool passing = false;  // of tokens that are of no note: the next one takes its place
};

/// The recurrent layers of one text: states after a few numbers of its tokens, and rows of the
/// tokens since (math.md "Recurrent layers"). The state that the next token starts from is never
/// written to, so that a sweep may fail or be run again. One thread at a time; device work is
/// enqueued on the stream given, always the same one.
class RecurrentState {
 public:
  /// A text of at most `slots` tokens, trees of at most `nodes` among them. `snapshots`, which must
  /// outlive it, takes those of its tokens; null: there are none. Throws Error if the device is
  /// full.
  RecurrentState(Device& device, const ModelConfig& config, int slots, int nodes,
                 StateSnapshots* snapshots = nullptr);
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

  /// The text will have these tokens for long: of them, but for the last that fill no kAnchorStep,
  /// a snapshot is to stay.
  void want_snapshot(int tokens);
  /// Snapshots of committed tokens, each handed out once.
  std::vector<TakenSnapshot> hand_out_snapshots();
  /// Goes on from a snapshot of the text's first `length` tokens, in place of all that it held.
  void restore(int length, const SnapshotId& id, Stream& stream);
  /// Writes one layer's part of the snapshot of a step.
  void write_snapshot(int layer, const DeltaStep& step, Stream& stream) const;

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
  /// Chooses the snapshots that a chain in slots [first, end) is to write, and takes their places.
  void plan_snapshots(int first, int end);
  bool is_noted(int tokens) const;
  /// Slots up to length() were committed, and those before `same` hold what was run there.
  void settle_snapshots(int same);
  /// Takes a snapshot of the most tokens that a tree's path, which was committed after `before`
  /// ones, completes.
  void snapshot_of_path(int before, Stream& stream);
  void hand_in(TakenSnapshot taken);
  void drop_snapshots();
  /// Holds `length` committed tokens, whose state, where that is not 0, and rows are the first
  /// ones of the storage.
  void begin_at(int length);
  void copy_rows(ConstTensorView from, ConstTensorView row, const TensorView& to,
                 Stream& stream) const;
  void send_tables(int first, int count, Stream& stream);
  std::byte* of_layer(int layer) const;

  Device* device_;
  DeltaConfig delta_;
  std::vector<int> ordinal_;  // among recurrent layers, by layer; -1: it is none
  int nodes_, layers_ = 0;
  Parts parts_;
  SlotRows inputs_, rows_;
  std::array<std::int64_t, 3> anchors_{-1, -1, -1};  // of the states; -1: of no text
  std::array<bool, 3> sure_{};       // those of committed tokens, which were computed
  int kept_ = -1;                    // the state that the next token starts from; -1: 0
  StateSnapshots* const snapshots_;  // null: it takes none
  int every_ = 0;                    // tokens between two snapshots that stay; 0: these are none
  std::vector<int> wanted_;          // tokens of which a snapshot stays
  std::vector<TakenSnapshot> pending_, taken_;  // of slots not committed; not handed out yet
  TakenSnapshot passing_;                       // the last one of committed tokens that is
  int chain_end_ = 0;  // slots before it were last written by chains, whose snapshots are pending
  Buffer storage_, tables_;
  std::unique_ptr<Event> uploaded_;  // the tables
  std::unique_ptr<Event> done_;      // what was queued between sweeps
};

}  // namespace canopy
