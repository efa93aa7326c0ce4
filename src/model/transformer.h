#pragma once
#include <memory>
#include <span>
#include <stop_token>

#include "offload/weight_source.h"
#include "src/model/kv_cache.h"

namespace canopy {

/// What one forward runs over: nodes of a tree hung below a committed prefix.
/// A prompt is the degenerate tree, a chain; so prefill and decode are one code path.
struct TreeBatch {
  std::span<const TokenId> tokens;         // [n]: nodes [first_node, first_node + n) of the tree
  std::span<const std::int32_t> position;  // [n], prefix length + depth
  std::span<const std::uint64_t> ancestor_bits;  // [n, ceil((first_node + n) / 64)]; empty: a chain
  int first_node = 0;  // > 0: earlier nodes already sit in the cache's scratch slots
  std::span<const std::int32_t>
      logit_rows;  // which of the n rows need logits: few, as they are big
};
/// One sequence's share of a sweep. Several sequences may share one: each layer is then read once
/// for all.
struct SweepPart {
  TreeBatch batch;
  KvCache* kv = nullptr;
};

/// A Llama-family decoder. Draft and target are two objects of this one class;
/// only their WeightSource differs.
class Transformer {
 public:
  /// max_batch: most nodes of one forward (all parts); larger prompts are cut inside each layer.
  /// max_logit_rows: most rows of logits of one forward. max_context: longest prefix + tree.
  struct Limits {
    int max_batch = 0, max_logit_rows = 0, max_context = 0;
  };
  Transformer(Device& device, ModelConfig config, WeightSource& weights, const Limits& limits);
  /// Device bytes a model of this shape holds beside weights and KV. Pure.
  static std::size_t activation_bytes(const ModelConfig& config, const Limits& limits);
  ~Transformer();
  const ModelConfig& config() const;

  /// One sweep: each unit is acquired once, however many parts and nodes. Returns logits [sum of
  /// logit_rows, vocab], valid until the next forward. Allocates nothing. A stop request ends the
  /// sweep at the next unit: throws Stopped.
  ConstTensorView forward(std::span<const SweepPart> parts, Stream& compute,
                          std::stop_token stop = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
