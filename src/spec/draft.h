#pragma once
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"
#include "src/spec/token_tree.h"

namespace canopy {

/// How siblings were drawn. The verifier's proof depends on it, so it travels with
/// the tree and the two are never chosen apart.
enum class Drawing : std::uint8_t {
  kTopK,                // the draft's best tokens; the target's own sample decides
  kWithoutReplacement,  // drawn from q, never one twice; Sequoia's rule decides
};

/// A tree of guesses, as the verifier needs it. Plain data.
struct Draft {
  TokenTree tree;
  Drawing drawing = Drawing::kTopK;
  /// Per node: its scratch slot in the draft's KV cache and its row of q; -1: a leaf, which the
  /// draft never ran.
  std::vector<std::int32_t> row;
  /// [inner nodes, vocab both models share] f32, what siblings were drawn from; empty for kTopK.
  /// Target tokens beyond its columns had no chance to be drawn. Lives in the policy until its next
  /// grow.
  ConstTensorView q;
};

/// The draft of plain decoding: only the root.
inline Draft root_only(TokenId root) { return {TokenTree(root), Drawing::kTopK, {-1}, {}}; }

}  // namespace canopy
