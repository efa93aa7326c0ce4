#pragma once
#include <cmath>
#include <vector>

#include "src/checkpoint/model_config.h"

namespace canopy {

inline std::vector<float> tiny_rope(int head_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim / 2; ++i)
    frequencies.push_back(
        std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
  return frequencies;
}

/// A small decoder's shape. head_dim differs from dim / heads, and heads share keys.
inline ModelConfig tiny_config() {
  ModelConfig c;
  c.architecture = "llama";
  c.layers = 3;
  c.dim = 48;
  c.hidden_dim = 80;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.vocab = 61;
  c.max_positions = 4096;
  c.rope_inverse_frequency = tiny_rope(c.head_dim);
  return c;
}

/// A small decoder whose layers are delta nets but for the last, which gates what its heads give.
inline ModelConfig recurrent_config() {
  ModelConfig c = tiny_config();
  c.layers = 4;
  c.layer_kinds = {{.attention = false, .recurrent = true}, {.qk_norm = true, .output_gate = true}};
  c.kind_of_layer = {0, 0, 0, 1};
  c.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12};
  c.rope_inverse_frequency.resize(2);  // a quarter of each head
  return c;
}

/// A small decoder whose layers differ in heads, KV heads, head size, width and kind, the first
/// from the model's sizes too; one has no MLP and one no attention.
inline ModelConfig unequal_config() {
  ModelConfig c = tiny_config();
  c.layers = 6;
  c.layer_kinds = {{},
                   {.heads = 6, .kv_heads = 3, .head_dim = 8},
                   {.mlp = false},
                   {.attention = false, .hidden_dim = 64},
                   {.qk_norm = true, .kv_heads = 1, .head_dim = 32, .hidden_dim = 96}};
  c.kind_of_layer = {1, 0, 2, 3, 4, 0};
  for (const int head_dim : {16, 8, 16, 16, 32}) c.rope_of_kind.push_back(tiny_rope(head_dim));
  return c;
}

}  // namespace canopy
