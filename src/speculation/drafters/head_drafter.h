#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "src/speculation/drafter.h"

namespace canopy {

/// Heads that guess from what the target's own head reads (MedusaHeads), in a device's memory.
struct HeadWeights {
  Buffer memory = {};  // that holds them, where nobody else does
  struct Block {
    WeightView weight;     // [dim, dim]
    ConstTensorView bias;  // [dim] f32, or empty
  };
  std::vector<std::vector<Block>> blocks;  // by head
  std::vector<WeightView> matrices;        // [vocab, dim], of each head, or one for all
};

/// Returns the acceptance that trees of `heads` heads are planned with: `measured`, by head, else
/// what those of SmolLM2-135M-Instruct had (docs/results/methods.md). After the last head nothing
/// is accepted.
Acceptance acceptance_of_heads(int heads, const std::vector<std::vector<double>>& measured);

/// Proposes, on level i of a tree, the best tokens of head i: the same ones below each node. The
/// heads read what the target's head read for the last node that was accepted, which is known only
/// after a text's first sweep: the first tree is the root alone, and so is a tree's part below the
/// last head. Always of kTopK: children are a function of the text, chosen before the target's
/// sample is drawn. One thread.
/// Source: arXiv:2401.10774, 2.1 and 2.2.
class HeadDrafter final : public Drafter {
 public:
  struct Limits {
    int dim = 0;    // of what the heads read: the first values of a row or all of it
    int vocab = 0;  // of the target
    int nodes = 0;  // of all trees that grow at a time
    int texts = 1;
  };
  /// Weights that have no memory of their own must outlive it. Throws Error if the device is full.
  HeadDrafter(Device& device, HeadWeights weights, const Limits& limits);
  /// Device bytes that one holds besides its weights. Pure.
  static std::size_t device_bytes(int heads, const Limits& limits);
  static constexpr int kAllocations = 6;  // that hold them
  /// Work that Ops::reserve needs for it. Pure.
  static Workload workload(int heads, const Limits& limits);

  std::unique_ptr<DraftState> open() override;
  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                          Stream& stream, std::stop_token stop) override;
  void conclude(DraftState& state, const Draft& draft, const Verdict& verdict, ConstTensorView read,
                Stream& stream) override;
  bool reads_hidden() const override { return true; }
  TreeRoom room() const override { return TreeRoom::of_nodes(limits_.nodes); }

 private:
  class State;
  /// tokens_: of each head up to `heads`, of each of these texts, its `ranks` best tokens.
  void guess(std::span<const std::int32_t> slots, int heads, int ranks, Stream& stream);
  TensorView rows_of(const Buffer& buffer, std::int64_t first, std::int64_t rows,
                     std::int64_t columns) const;

  Device& device_;
  HeadWeights weights_;
  Limits limits_;
  Buffer known_;   // [texts, dim] f32: what was read for each text's last node
  Buffer values_;  // [heads * texts, dim] f32
  Buffer inner_;   // [texts, dim] f32
  Buffer logits_;  // [heads * texts, vocab] f32
  Buffer best_;    // [heads * texts, ranks] i32
  Buffer ids_;     // [2 * texts] i32: 0, 1, 2, ...; then the slots of the texts that grow
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> free_;  // slots of known_
};

}  // namespace canopy
