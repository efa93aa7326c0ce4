#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "planner/tree_shape.h"
#include "src/model/transformer.h"
#include "src/speculation/draft.h"
#include "src/speculation/growers/grower.h"
#include "src/speculation/logits/logit_editor.h"

namespace canopy {

/// Grows trees of one shape, and by one drawing, below the last committed token. Level by
/// level, one forward of the draft model for each; only inner nodes are run, as nothing hangs below
/// a leaf. What a level proposes becomes the next one's tokens on the device: the host waits once
/// for the whole tree. One thread at a time.
class ShapeGrower {
 public:
  /// One sequence's part of a step of drafting.
  struct Request {
    /// Committed tokens that the draft has not run yet, at least one; the last is the root.
    std::span<const TokenId> pending;
    KvCache* kv = nullptr;  // the draft's, holding all text before `pending`
    Sampling sampling;
    StepRng rng;
    bool best_tokens = false;  // its tree is of kTopK, whatever the grower draws
    /// Edits each node's row by the way to it, before its children are proposed; null: none.
    LogitEditor* editor = nullptr;
  };

  struct Config {
    TreeShape shape;  // at least two nodes; root_only() needs no grower
    Drawing drawing = Drawing::kTopK;
    int vocab = 0;         // tokens that both models know: the ids below the smaller vocabulary
    int max_requests = 1;  // most sequences of one grow
    /// Room for all sequences of a grow together; where empty, what max_requests trees of the shape
    /// need.
    TreeRoom room = {};
    Growth growth = {};   // kShape, or what a FrontierGrower is made for
    bool graphs = false;  // the levels are captured once and then launched as one
    /// Room for edits of logits: the longest text, tree included, and the larger vocabulary of
    /// draft and target; 0: none can be made.
    int edited_context = 0, edited_vocab = 0;
  };
  ShapeGrower(Device& device, const Config& config);
  /// Room that the buffers of such a grower have; and for edits. Pure.
  static TreeRoom room_of(const Config& config);
  static RowEditor::Room room_of_edits(const Config& config);
  /// Device bytes such a grower holds; q, a row for each inner node, is most of it. Pure.
  static std::size_t device_bytes(const Config& config);
  static constexpr int kAllocations = 5 + RowEditor::kAllocations;  // that hold them
  /// Most nodes, and as many rows of logits, that a level asks of the draft model, for all
  /// requests together. Pure. (Besides, the model must take the longest `pending`.)
  static int widest_forward(const Config& config);

  const TreeShape& shape() const { return config_.shape; }
  const TreeRoom& room() const { return config_.room; }
  /// True if the levels have been captured: all but the root's, whose `pending` differs in length.
  bool captured() const { return graph_ != nullptr; }
  /// Why no graphs are made any more, though they were asked for; "" while they are.
  const std::string& why_no_graphs() const { return why_no_graphs_; }
  /// Trees have this shape from now on. Throws Error if there is no room for one.
  void reshape(TreeShape shape);

  /// Runs `pending`, then the tree. Commits `pending` but its last token to the draft's KV cache;
  /// after it the inner nodes are in scratch slots (Draft::row), the root in slot 0.
  /// Tokens from Config::vocab on are never proposed; those of `pending` that the draft has no row
  /// for are run as another. At temperature 0 prefer kTopK: from a
  /// one-hot q all children but the first are arbitrary, or the same (and the text still exact).
  /// Waits for the stream once; where a request has an editor, or the draft's embedding does not
  /// rest on the device, once a level, which then run kernel by kernel. Throws Error or Stopped
  /// with each KV cache as it was.
  std::vector<Draft> grow(Transformer& model, std::span<const Request> requests, Stream& stream,
                          std::stop_token stop = {});

 private:
  /// The inner nodes of one level, in breadth-first order. Their numbers among all inner nodes are
  /// their scratch slots and their rows of q.
  struct Level {
    int first = 0, count = 0;              // inner nodes [first, first + count)
    int children = 0;                      // of the node that has most
    std::uint64_t first_draw = 0;          // random numbers that the levels above use
    std::vector<std::uint64_t> ancestors;  // [count, ceil((first + count) / 64)]
    std::vector<std::int32_t> logit_rows;  // all
  };
  /// Origin of an inner node: its parent's number among inner nodes, and which child it is.
  struct Origin {
    int parent = 0, child = 0;
  };
  /// Everything that follows from the shape alone.
  struct Layout {
    explicit Layout(const TreeShape& shape);
    std::vector<NodeId> inner;      // the nodes that have children
    std::vector<std::int32_t> row;  // per node: its number in `inner`, or -1
    std::vector<Origin> origin;     // of each in `inner`
    std::vector<Level> levels;
  };

  void send_rngs(std::span<const Request>, Stream&);
  /// Level by level: each one's proposals are edited and read before the next is run.
  void grow_by_levels(Transformer&, std::span<const Request>, TensorView root_logits,
                      std::span<Draft>, Stream&, const std::stop_token&);
  void prepare_level(Transformer&, std::span<const Request>, const Level&, std::size_t depth,
                     std::span<const Draft>, Stream&);
  /// Grows all levels below the root's, whose tokens never leave the device.
  void grow_at_once(Transformer&, std::span<const Request>, Stream&, const std::stop_token&);
  void prepare_tree(Transformer&, std::span<const Request>, Stream&);
  void run_tree(Transformer&, std::span<const Request>, Stream&, const std::stop_token&);
  /// Edits the level's rows in place.
  void edit(std::span<const Request>, const Level&, std::span<const Draft>, TensorView logits,
            Stream&);
  void propose(std::span<const Request>, const Level&, ConstTensorView logits, Stream&);
  /// The proposals of the level's nodes of `requests` requests, and their own tokens.
  TensorView proposals_of(const Level&, std::size_t requests) const;
  TensorView tokens_of(const Level&, std::size_t requests, const Buffer& of) const;
  /// Reads what these levels, which follow one another, have proposed, and hangs it into the trees.
  void add_children(std::span<const Level>, std::span<Draft>, Stream&);
  void forget_graphs_of_others(const Transformer&, std::span<const Request>, const Stream&);
  TensorView q_of(std::size_t request) const;  // [inner nodes, vocab]
  Drawing drawing_of(const Request& request) const {
    return request.best_tokens ? Drawing::kTopK : config_.drawing;
  }

  Device* device_;
  Config config_;
  Layout layout_;
  Buffer q_, proposals_, rngs_;
  Buffer tokens_, picks_;  // of inner nodes: what they are, and which proposals these were
  std::optional<RowEditor> row_editor_;
  std::vector<TokenId> host_proposals_;
  std::vector<StepRng> host_rngs_;  // of the requests
  std::vector<std::int32_t> host_picks_;

  /// Contents of the captured levels besides the shape.
  struct CapturedFor {
    struct Cached {
      const std::byte* table;  // of the cache: its blocks may change
      int capacity;
      TextLength length;
      Sampling sampling;
      Drawing drawing;
      bool operator==(const Cached&) const = default;
    };
    const Transformer* model = nullptr;
    const Stream* stream = nullptr;
    std::vector<Cached> requests;
    bool operator==(const CapturedFor&) const = default;
  };
  CapturedFor captured_for_;
  std::string why_no_graphs_;
  bool warm_ = false;             // all levels have run for it
  std::unique_ptr<Graph> graph_;  // of all levels but the root's
};

}  // namespace canopy
