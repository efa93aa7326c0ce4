#pragma once
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"
#include "src/speculation/logits/drawing.h"
#include "src/speculation/token_tree.h"

namespace canopy {

/// Error of a draft model that is damaged, or overflows.
inline constexpr const char* kDraftNotFinite =
    "the draft's logits are not all finite numbers: its file is damaged, or it overflows";

/// A tree of guesses, as the verifier needs it. Plain data.
struct Draft {
  TokenTree tree;
  Drawing drawing = Drawing::kTopK;
  /// Per node: its scratch slot in the draft's KV cache and its row of q; -1: the draft never ran
  /// it.
  std::vector<std::int32_t> row;
  /// [inner nodes, vocab both models share] f32, what siblings were drawn from; empty for kTopK.
  /// Target tokens beyond its columns had no chance to be drawn. Lives in the grower until its next
  /// grow.
  ConstTensorView q;
  std::vector<double> log_q = {};  // per node, of its token; only for rules that ask for it
  int drafted = 0;                // rows that the draft model ran to grow it, the root's among them
  std::vector<bool> copied = {};  // per node: it stands for another that was run; empty: no graph
  /// Per node: the row of q that its children were drawn from, where that may be another node's;
  /// empty: `row`.
  std::vector<std::int32_t> q_row = {};
  /// Per node: the draft's best tokens there, best first, of which any may be its children; empty:
  /// the draft never ran it. Empty: children are the first ones of their ranks.
  std::vector<std::vector<TokenId>> best = {};
};

/// The draft of plain decoding: only the root.
inline Draft root_only(TokenId root) { return {TokenTree(root), Drawing::kTopK, {-1}, {}}; }

}  // namespace canopy
