#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Heads next to a model's own: head i guesses, from the row of values that the model's head reads,
/// the token i + 1 places after the next. z = h; z += silu(W z + b) for each block; logits = U z.
/// Source: arXiv:2401.10774, 2.1.1. Plain data: the places of their tensors.
struct MedusaHeads {
  struct Block {
    TensorEntry weight;               // [dim, dim]
    std::optional<TensorEntry> bias;  // [dim]
  };
  struct Head {
    std::vector<Block> blocks;
    std::optional<TensorEntry> matrix;  // U, [vocab, dim]; none in all heads: the model's own head
  };
  std::filesystem::path file;
  int dim = 0;  // of the model that they were trained for: an enlargement's rows begin with its row
  std::vector<Head> heads;
  /// Per head: how often the token is its guess of rank k, where the tokens before it were among
  /// the guesses; as measured when the heads were trained. Empty where the file does not say.
  std::vector<std::vector<double>> acceptance;
  bool names_its_model = false;  // and it is this one
};

/// The heads of a safetensors file, or of a directory's medusa_lm_head.safetensors or
/// model.safetensors: tensors "I.L.linear.weight", "I.L.linear.bias" for block L of head I and
/// "I.L.weight" for the matrix after the last block, as published checkpoints have them, with or
/// without "medusa_head.", "medusa_heads." or "medusa." in front; "acceptance" [heads, ranks], if
/// it is there. `model` may be an enlargement of the model that they name. Throws Error naming the
/// tensor; where the heads are another model's, by its fingerprint or their shapes.
MedusaHeads open_medusa_heads(const std::filesystem::path& path, const Checkpoint& model,
                              Holes holes = Holes::kRefused);

/// The matrix of the model's own head, [vocab, dim], which may be its embedding. Throws Error if it
/// is missing.
const TensorEntry& own_head(const Checkpoint& model);

}  // namespace canopy
