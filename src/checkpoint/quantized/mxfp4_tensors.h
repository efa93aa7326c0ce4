#pragma once
#include "src/checkpoint/readers.h"

namespace canopy {

/// Joins codes NAME_blocks [.., rows, columns / 32, 16] and scales NAME_scales [.., rows,
/// columns / 32] of a directory in MXFP4 to tensors NAME [.., rows, columns] that have
/// TensorEntry::parts. Says in the config what there was. Throws Error naming the tensor where a
/// part is missing or has another type or shape, and where no tensor has codes.
void join_mxfp4_tensors(TensorIndex& index, ModelConfig& config);

}  // namespace canopy
