#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

/// The shape of a function-preserving enlargement of `small` whose BF16 weights take about `bytes`
/// (docs/formats.md): dim is 4 times as wide (16 times, where 128 layers of 4 times would not be
/// enough), heads and KV heads 4, 2 or 1 times as many, then the MLP and at last the layers grow
/// until the size is met. Pure. Throws: Error naming the smallest size possible.
ModelConfig enlarge(const ModelConfig& small, std::uint64_t bytes);

/// A Mixtral whose experts each compute what the MLP of `small` does: `count` of them in each
/// layer, of which `active` compute for a row. Pure. Throws: Error if `small` is not a Llama, or if
/// there are fewer experts than are to compute.
ModelConfig with_experts(const ModelConfig& small, int count, int active);

/// Bytes of all tensors in BF16.
std::uint64_t bf16_bytes(const ModelConfig& config);

/// One tensor of an enlargement. Its first source_rows x source_columns values belong to the small
/// model: copied from `source` (times `scale`, a power of two), or nothing where `source` is null.
///   [ source | added  ]      added, by `beside`: random, or zero where the columns are written to
///   [ zero   | random ]      the residual stream or are biases
/// An expert's matrices have the rows of gate and up, and the columns of down, in an order of its
/// own; a row of up and its column of down are multiplied by 2 and 1/2, by 1/2 and 2, or not at
/// all. So each expert has bytes of its own, and the same function.
/// A vector is one row. The zeros keep added dimensions of the residual stream at zero, and added
/// heads and neurons from reading the small model's.
struct EnlargedTensor {
  enum class Beside : std::uint8_t { kRandom, kZero };
  std::string name;
  std::vector<std::int64_t> shape;
  const TensorEntry* source = nullptr;
  std::int64_t source_rows = 0, source_columns = 0;
  float scale = 1.0f;
  Beside beside = Beside::kRandom;
  std::optional<ModelTensor> of_expert = {};
};
/// All tensors of `big`, in the order a sweep reads them. enlarge()'s result, or the small config
/// itself for a plain copy. Throws: Error if `small` lacks a tensor.
std::vector<EnlargedTensor> enlarged_tensors(const Checkpoint& small, const ModelConfig& big);

/// The layer of the small model that layer `layer` of the enlargement carries; -1 for an identity.
/// The small model's layers are spread evenly.
int source_layer(int layer, int small_layers, int big_layers);

}  // namespace canopy
