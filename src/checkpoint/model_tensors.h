#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/tensor_role.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

/// Unit that a tensor is read and lent with. The embedding is looked up row by row. kEntry: what
/// its rows meet before the first layer, with whose attention it is lent. kHead: what lies between
/// the last layer and the logits.
enum class TensorUnit : std::uint8_t { kEmbedding, kEntry, kAttention, kRecurrent, kMlp, kHead };
/// Matrices may be quantised. Norms and biases are vectors, and never are.
enum class TensorKind : std::uint8_t { kMatrix, kNorm, kBias };
/// A length that follows from the config.
enum class Length : std::uint8_t {
  kOne,
  kDim,
  kEmbeddingDim,
  kHidden,
  kExperts,
  kSharedHidden,
  kSharedScore,
  kVocab,
  kPositionRows,
  kHeads,
  kQueries,
  kQueryRows,  // of queries, and of their heads' gates
  kKeys,
  kQkvRows,
  kHeadDim,
  kQueryNorms,  // of queries: one, or one for each head
  kKeyNorms,
  kNormedQuery,  // columns of one of these: a head's, or a whole row's
  kNormedKey,
  kDeltaChannels,
  kDeltaValues,
  kDeltaJoinedRows,
  kDeltaHeads,
  kDeltaTwoHeads,  // two of each
  kDeltaValueDim,
  kTaps
};
/// In this layer; in the first where none is given.
std::int64_t length(Length of, const ModelConfig& config, int layer = 0);

/// True if a model has a tensor. `layer`: the kind of the tensor's layer, if it has one.
using IsIn = bool (*)(const ModelConfig& model, const LayerConfig& layer);

/// One row of the table: a tensor of the model, or one of each layer.
struct TensorSpec {
  TensorRole role;
  TensorUnit unit;
  TensorKind kind;
  Length rows, columns;  // a vector is one row; those of all experts have one each
  /// Its name in Hugging Face's files, which is the canonical one, and in GGUF files, but for
  /// families that have others. A '#' stands for the number of the layer, a '@' for that of the
  /// expert; GGUF files have the experts of a layer in one tensor.
  std::string_view name, gguf;
  IsIn is_in = nullptr;  // null: every model has it

  bool of_layers() const { return name.find('#') != name.npos; }
  bool of_experts() const { return name.find('@') != name.npos; }
};
/// All tensors of a decoder, in the order of a sweep. Whoever checks, reads, makes or converts the
/// tensors of a model finds them here.
std::span<const TensorSpec> model_tensors();
const TensorSpec& spec_of(TensorRole role);

/// A tensor of one model. `layer`: -1 for those that a model has once. `expert`: -1 for those that
/// a layer has once.
struct ModelTensor {
  const TensorSpec* spec = nullptr;
  int layer = -1, expert = -1;

  std::string name() const;  // canonical
  /// [rows, columns], of one vector [columns].
  std::vector<std::int64_t> shape(const ModelConfig& config) const;
  bool is_in(const ModelConfig& config) const;
};
/// Visits the tensors that a model of this config has, in the order of a sweep.
void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ModelTensor&)>& visit);
/// Visits the tensors of one layer; of layer -1, those that come before and after all layers.
void for_each_tensor_of_layer(const ModelConfig& config, int layer,
                              const std::function<void(const ModelTensor&)>& visit);

std::string tensor_name(TensorRole role, int layer = -1, int expert = -1);  // canonical
/// Finds the tensor of this canonical name.
std::optional<ModelTensor> find_tensor(std::string_view canonical_name);

/// The numbers in a tensor's name, in digits; "" where it has none.
struct NameNumbers {
  std::string_view layer, expert;
};
/// The digits that a name has where the pattern has its '#' and its '@', "" for a pattern without
/// them. Nothing if the name is another.
std::optional<NameNumbers> numbers_in(std::string_view pattern, std::string_view name);
/// The pattern with the numbers in the places of its '#' and its '@', if it has these.
std::string with_numbers(std::string_view pattern, NameNumbers numbers);

}  // namespace canopy
