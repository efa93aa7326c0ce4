#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/io/read_layout.h"
#include "offload/weight_source.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A weight of a unit: which tensor becomes which field of its UnitWeights.
struct UnitTensor {
  ConstTensorView UnitWeights::*field;
  TensorEntry tensor;
};

/// One unit of the sweep. Its matrices travel or rest; its vectors (norms, biases) are a thousandth
/// of them and stay in memory, as f32. The matrix of a slice of the head is those rows of the
/// tensor.
struct UnitLayout {
  Unit unit;
  std::vector<UnitTensor> matrices, vectors;
  ReadLayout read;  // of the matrices, in that order
};

inline constexpr std::int64_t kHeadBlock = 128;  // rows
/// The sweep: attention and MLP of each layer, then the head in slices no larger than the largest
/// of those units (but of one row at least), cut between blocks of kHeadBlock rows where one fits.
/// Throws: Error naming a tensor that is missing, or whose shape or size is not what its dtype and
/// the config say.
std::vector<UnitLayout> lay_out_units(const Checkpoint& checkpoint, std::size_t alignment);

inline constexpr std::size_t kSlotAlignment = 256;  // bytes: what kernels like
/// Where a unit's matrices lie on a device with memory of its own: one behind the other, without
/// what was read beside them, each at a multiple of kSlotAlignment.
struct SlotLayout {
  std::vector<std::size_t> at;  // of each matrix, in the order of the unit's
  std::size_t bytes = 0;
};
SlotLayout lay_out_slot(const UnitLayout& unit);

/// Sets the fields of a unit's matrices to a slot's memory.
void place_matrices(const UnitLayout& unit, const SlotLayout& slot, const std::byte* data,
                    UnitWeights& weights);

/// Rows [first, first + rows) of a matrix, as a tensor of its own.
TensorEntry rows_of(const TensorEntry& matrix, std::int64_t first, std::int64_t rows);

std::size_t matrix_bytes(const TensorEntry& matrix);

/// Throws Error if the checkpoint has none.
const TensorEntry& embedding_table(const Checkpoint& checkpoint);

std::string describe(const Unit& unit);  // "attention of layer 3", "head rows 0..4095"

}  // namespace canopy
