#pragma once
#include <cmath>

#include "src/checkpoint/model_config.h"

namespace canopy {

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
  for (int i = 0; i < c.head_dim / 2; ++i)
    c.rope_inverse_frequency.push_back(
        std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.head_dim)));
  return c;
}

}  // namespace canopy
