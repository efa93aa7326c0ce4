#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// What layers of a decoder differ in. Everything else has one form today, which has no field: an
/// RMS norm before attention and one before the MLP, attention over the whole text, one table of
/// rotary frequencies, a SwiGLU MLP, no bias but these. Readers refuse a config that asks for
/// another.
struct LayerConfig {
  bool qkv_bias = false, qk_norm = false;
  bool operator==(const LayerConfig&) const = default;
};

/// The shape of a decoder, as plain data that every room may read. Filled by src/checkpoint from
/// config.json (both generations of keys) or GGUF metadata; anything it cannot express is refused
/// there, by name.
struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3", "mistral"
  int layers = 0, dim = 0, hidden_dim = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int vocab = 0, max_positions = 0;
  bool tied_head = false;
  /// Kinds of layers that take turns, layer i being of kind i modulo their number: one kind where
  /// all layers are alike.
  std::vector<LayerConfig> layer_kinds{LayerConfig{}};
  float norm_eps = 1e-5f;
  std::vector<float>
      rope_inverse_frequency;        // [head_dim / 2], after linear, llama3 or yarn scaling
  float rope_magnitude = 1.0f;       // yarn's attention factor
  bool rope_adjacent_pairs = false;  // GGUF files of llama and mistral; Hugging Face rotates halves
  std::vector<TokenId> end_tokens;
  std::string inflated_from;  // not empty: a function-preserving enlargement (docs/formats.md), so
                              // say so in reports

  const LayerConfig& layer(int i) const {
    return layer_kinds[static_cast<std::size_t>(i) % layer_kinds.size()];
  }
  bool any_layer(bool LayerConfig::*property) const {
    return std::any_of(layer_kinds.begin(), layer_kinds.end(),
                       [&](const LayerConfig& layer) { return layer.*property; });
  }
};

}  // namespace canopy
