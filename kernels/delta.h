#pragma once
// Calls of recurrent layers: gated delta nets (arXiv:2412.06464) over trees, math.md "Recurrent
// layers".
#include <array>
#include <cstdint>

#include "kernels/ops.h"

namespace canopy {

/// Levels below a tree's root at most, and tokens between the texts' lengths after which states are
/// kept. Constants, so that bits do not depend on a plan.
inline constexpr int kDeepestTree = 64, kAnchorStep = 64;
static_assert(kAnchorStep >= kDeepestTree, "a tree's nodes start from two states at most");
/// Most tokens between the state that one starts from and the token, and the token itself.
inline constexpr int kLongestWay = kDeepestTree + kAnchorStep;

/// Number of the tokens after which the state lies that the token at `position` starts from.
constexpr std::int64_t anchor_of(std::int64_t position) {
  return position < kDeepestTree ? 0 : (position - kDeepestTree) / kAnchorStep * kAnchorStep;
}

inline constexpr std::int64_t kDeltaTaps = 4;  // of the convolution: a token's own row is the last

/// Rows that a text keeps of one recurrent layer, and the places of its slots among them. Shapes:
/// input [any, channels] f32, before the convolution; key [rows, key_heads, key_dim], update [rows,
/// value_heads, value_dim], decay [rows, value_heads] f32; input_row, row [slots] i32. A row of the
/// convolution has queries, then keys, then values: channels = 2 key_heads key_dim + value_heads
/// value_dim.
struct DeltaRows {
  TensorView input, key, update, decay;
  ConstTensorView input_row, row;
};

/// Nodes [first_node, first_node + n) of a tree, as TreeAttention has them; slot s < prefix holds
/// the token at position s. Their paths' rows since their anchors are kept.
struct DeltaNodes {
  DeltaRows kept;
  ConstTensorView ancestors;  // [n, any] u64; empty: a chain
  std::int64_t prefix = 0, first_node = 0;
};

/// Keys of value heads: head h has key head h / (value_heads / key_heads), or, where they take
/// turns, h modulo key_heads.
enum class KeyHeads : bool { kInGroups, kByTurns };

/// Keeps the nodes' inputs, keys and decays. mixed: the inputs, then convolved along each node's
/// path and passed through silu, its queries and keys divided by their lengths, the queries by
/// sqrt(key_dim), too. beta: then its sigmoid. decay = exp(rate softplus(a + dt)), where rate is
/// -exp(A), or given. Shapes: mixed [n, channels]; beta, a [n, value_heads]; taps [channels, 4];
/// rate, dt [value_heads], all f32.
struct DeltaEntry {
  DeltaNodes nodes;
  TensorView mixed, beta;
  ConstTensorView a, taps, rate, dt;
  bool rate_is_log = true;  // of -rate
};

/// A state after the text's first `anchor` tokens. Shape: [value_heads, key_dim, value_dim] f32;
/// empty: zeros.
struct DeltaState {
  std::int64_t anchor = 0;
  ConstTensorView state;
};

/// Runs the delta rule over nodes that were entered, and keeps their updates: with w the product of
/// the decays after a row of the path, W of all since the anchor, S its state, u = beta (v - W
/// S^T k - sum w (k_j . k) u_j), out = W S^T q + sum w (k_j . q) u_j, u among them, in the path's
/// order. Shapes: mixed, beta as DeltaEntry leaves them; out [n, value_heads, value_dim] f32.
struct DeltaRule {
  DeltaNodes nodes;
  ConstTensorView mixed, beta;
  std::array<DeltaState, 2> states;  // one of them has each node's anchor
  KeyHeads key_heads = KeyHeads::kInGroups;
  TensorView out;
};

/// Moves a state on: to = W from + sum w k_j u_j^T over the slots [from.anchor, from.anchor +
/// kAnchorStep), in their order. `to` is another memory.
struct DeltaFold {
  DeltaRows kept;
  DeltaState from;
  TensorView to;
  KeyHeads key_heads = KeyHeads::kInGroups;
};

/// x_ij = g_j x_ij / sqrt(mean_k x_ik^2 + eps) silu(z_ij). Shapes: x, z [n, dim]; g [dim], all f32.
struct GatedNorm {
  TensorView x;
  ConstTensorView g, z;
  float eps = 0.0f;
};

}  // namespace canopy
