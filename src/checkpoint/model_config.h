#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// The shape of a decoder, as plain data that every room may read. Filled by offload/checkpoint
/// from config.json (both generations of keys) or GGUF metadata; anything it cannot express is
/// refused there, by name.
struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3", "mistral"
  int layers = 0, dim = 0, hidden_dim = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int vocab = 0, max_positions = 0;
  bool tied_head = false, qkv_bias = false, qk_norm = false;
  float rms_eps = 1e-5f;
  std::vector<float>
      rope_inverse_frequency;        // [head_dim / 2], after linear, llama3 or yarn scaling
  float rope_magnitude = 1.0f;       // yarn's attention factor
  bool rope_adjacent_pairs = false;  // GGUF files of llama and mistral; Hugging Face rotates halves
  std::vector<TokenId> end_tokens;
  std::string inflated_from;  // not empty: a function-preserving enlargement (docs/formats.md), so
                              // say so in reports
};

}  // namespace canopy
