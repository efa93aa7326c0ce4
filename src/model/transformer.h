#pragma once
// Room src/model: the forward pass of a decoder over trees of tokens, and the KV caches.
// In: a ModelConfig, a WeightSource, rows of tokens. Out: logits, the same bits wherever the
// weights are.
// Must not know: files, drafts, sampling, plans.
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "kernels/ranks.h"
#include "offload/weight_source.h"
#include "src/model/kv_cache.h"

namespace canopy {

/// Rows that one forward runs over: nodes of a tree hung below a committed prefix.
/// A prompt is the degenerate tree, a chain; so prefill and decode are one code path.
struct TreeBatch {
  std::span<const TokenId> tokens;         // [n]: nodes [first_node, first_node + n) of the tree
  std::span<const std::int32_t> position;  // [n], prefix + depth
  std::span<const std::uint64_t> ancestor_bits;  // [n, ceil((first_node + n) / 64)]; empty: a chain
  int first_node = 0;  // > 0: earlier nodes already sit in the cache's scratch slots
  std::span<const std::int32_t>
      logit_rows;  // which of the n rows need logits, ascending: few, as they are big
  /// Rows whose logits a reader of the forward is handed, ascending: as many as one likes.
  std::span<const std::int32_t> read_rows = {};
};

/// One sequence's share of a sweep. Several sequences may share one: each layer is then read once
/// for all. Parts run in order, so a later part sees what an earlier one wrote to the same cache: a
/// prompt and the first tree below it are two parts of one sweep, the second with the prompt as its
/// `first_scratch_slot`.
struct SequenceRows {
  TreeBatch batch;
  KvCache* kv = nullptr;
  int first_scratch_slot =
      0;  // slots after kv->length() that earlier parts of this sweep fill: they count as prefix
};

/// A decoder of any Family. Draft and target are two objects of this one class; only their
/// WeightSource differs. One thread at a time; all calls on the same stream.
class Transformer {
 public:
  struct Limits {
    int max_nodes = 0;       // most nodes of one forward, all parts together
    int max_tree = 0;        // most of them with ancestor bits; a chain needs none
    int max_logit_rows = 0;  // most rows of logits of one forward
    int max_context = 0;     // longest prefix + tree
    int chunk = 256;         // rows worked on at once inside a layer: bounds the activations
    int max_read_rows = 0;   // most rows whose logits are handed to a reader
  };
  /// `weights` must outlive the model. Where `ranks` share its rows, the weights are laid out for
  /// their Share, all ranks run the same forwards, and the first alone has the logits; stop
  /// requests then count at the next gather, on all of them. Throws Error if the device is full, or
  /// has memory of its own that ranks cannot gather in.
  Transformer(Device& device, const ModelConfig& config, WeightSource& weights,
              const Limits& limits, Ranks* ranks = nullptr);
  ~Transformer();

  /// Device bytes that a model of this shape holds besides weights, KV and the ops' scratch. Pure.
  static std::size_t activation_bytes(const ModelConfig& config, const Limits& limits);
  static constexpr int kAllocations = 13;  // that hold them
  /// Work that Ops::reserve needs for it. Pure.
  static Workload workload(const ModelConfig& config, const Limits& limits);

  const ModelConfig& config() const;
  const Limits& limits() const;

  using OnUnit = std::function<void(const Unit&)>;
  /// Reads a piece of the logits of all read_rows of a forward, counted over its parts: rows
  /// [first_row, first_row + n) of tokens [first_token, first_token + m). A row's pieces come in
  /// the order of the tokens. Shape: logits [n, m] f32, ready when `compute` gets there, and the
  /// reader's until it returns, by when `compute` must be there.
  using OnLogits =
      std::function<void(int first_row, std::int64_t first_token, const ConstTensorView& logits)>;
  /// One sweep: each unit is acquired once, however many parts and nodes. Returns logits [sum of
  /// logit_rows, vocab] f32, the caller's until the next forward, ready when `compute` gets there.
  /// Allocates no device memory. on_unit hears of each unit whose work is about to be queued: for a
  /// streamed model, of each that has arrived. Without on_logits nobody computes read_rows'. A stop
  /// request ends the sweep at the next unit: throws Stopped; the caches' committed slots are
  /// intact. Whatever it throws, `compute` is idle by then.
  TensorView forward(std::span<const SequenceRows> parts, Stream& compute,
                     std::stop_token stop = {}, const OnUnit& on_unit = {},
                     const OnLogits& on_logits = {});

  /// Returns what enters the next unit: while a forward runs on_unit, the result of the units
  /// before; after it, of the last layer. Shapes: [nodes of the forward, dim] f32, and [nodes,
  /// embedding_width()] of what enters the first. Ready when `compute` gets there.
  ConstTensorView hidden() const;

  /// Returns what the head read for each row of the last forward's logits: of the last layer,
  /// normalised and projected where the model does so. Shapes: [sum of logit_rows,
  /// embedding_width()] f32, the caller's until the next forward.
  ConstTensorView logit_inputs() const;

  /// forward() in two halves, the second of which can be captured (Stream::capture) where weights
  /// rest: run() queues the same work after each prepare() of parts that differ in no more than
  /// their tokens, positions, bits and lengths of text.
  void prepare(std::span<const SequenceRows> parts, Stream& compute);
  TensorView run(Stream& compute, std::stop_token stop = {}, const OnUnit& on_unit = {},
                 const OnLogits& on_logits = {});

  /// The same for several forwards, of which nobody knows yet on the host what tokens they run:
  /// those of the parts stand for them. All together have no more nodes than one forward may have.
  void prepare_all(std::span<const std::vector<SequenceRows>> forwards, Stream& compute);
  /// Runs one of them over tokens that the device has. Shapes: tokens [its nodes] i32, of the
  /// vocabulary. Needs embeds_on_device().
  TensorView run(std::size_t forward, ConstTensorView tokens, Stream& compute,
                 std::stop_token stop = {});
  /// True if the embedding table is where the device can look tokens up.
  bool embeds_on_device() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
