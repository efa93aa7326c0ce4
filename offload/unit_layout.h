#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kernels/ranks.h"
#include "offload/io/read_layout.h"
#include "offload/placed_matrix.h"
#include "offload/weight_source.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A weight of a unit, and where it lies in the model's files.
struct UnitTensor {
  TensorRole role;
  TensorEntry tensor;
  int expert = -1;  // that it is of; -1: of none
};

/// A vector as f32: [n], or [experts, n] where each expert has one.
ConstTensorView vector_at(const std::byte* data, const TensorEntry& tensor);
std::int64_t vector_length(const TensorEntry& tensor);  // all of its numbers

/// Places of a unit's matrices on a device with memory of its own: one after the other, without
/// what was read besides, each at a multiple of kSlotAlignment (device_bytes()).
struct SlotLayout {
  std::vector<std::size_t> at;  // of each matrix, in the order of the unit's
  std::size_t bytes = 0;
};

/// One unit of the sweep. Its matrices travel or rest; its vectors (norms, biases) are a thousandth
/// of them and stay in memory, as f32. The matrix of a slice of the head is those rows of the
/// tensor.
struct UnitLayout {
  Unit unit;
  std::vector<UnitTensor> matrices;
  std::vector<UnitTensor> vectors;
  ReadLayout read;  // of the matrices, in that order
  SlotLayout slot;  // of the matrices, on a device with memory of its own
  /// Columns of products that ranks which share the rows gather, for each row of the sweep.
  std::int64_t gathered = 0;
};

/// An expert of a mixture that is read and lent alone.
struct ExpertLayout {
  int layer = 0, expert = 0;
  std::vector<UnitTensor> matrices;
  ReadLayout read;  // of the matrices, in that order
};

/// Place of the experts of mixtures: in their layers' units, or each alone.
enum class ExpertsAre : bool { kInUnits, kApart };

/// A model as it is swept: all that sources of weights, and who plans for them, know of it. Made
/// once, when a model is opened, and shared by all of them. Plain data.
struct SweepLayout {
  std::filesystem::path root;  // as the checkpoint was opened, for messages
  std::vector<std::filesystem::path> files;
  ModelConfig config;
  TensorEntry embedding;  // the table, whose rows are looked up
  std::vector<UnitLayout> units;
  std::vector<ExpertLayout> experts;  // by layer and index; none where units have them
};

inline constexpr std::int64_t kHeadBlock = 128;  // rows
/// The sweep: attention and MLP of each layer, as far as it has them, then the head in slices no
/// larger than the largest of those units (but of one row at least), cut between blocks of
/// kHeadBlock rows where one fits. Of a share of the rows: of each matrix that is cut by rows
/// (is_cut_by_rows()) those of its rank, none where it has none; the other tensors whole. Throws:
/// Error naming a tensor that is missing, whose shape or size is not what its dtype and the config
/// say, or whose format cannot be cut as the share is.
SweepLayout lay_out_sweep(const Checkpoint& checkpoint, ExpertsAre experts = ExpertsAre::kInUnits,
                          const Share& share = {});

/// Adds a unit's matrices, as they were read into host memory.
void add_matrices_at(const UnitLayout& unit, const std::byte* slab, UnitWeights& weights);
/// Adds a unit's matrices, as they lie in a slot's memory.
void place_matrices(const UnitLayout& unit, const std::byte* slot, UnitWeights& weights);

/// The index of each layer's first expert among all; of a layer without experts, any.
std::vector<std::size_t> first_experts(const SweepLayout& sweep);

std::string describe(const Unit& unit);  // "attention of layer 3", "head rows 0..4095"

}  // namespace canopy
