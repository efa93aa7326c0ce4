#pragma once
#include "src/checkpoint/quantized/nvfp4_scheme.h"
#include "src/checkpoint/readers.h"

namespace canopy {

/// Joins codes, scales and the one factor of a directory's matrices to tensors NAME.weight that
/// have TensorEntry::parts. Scales of activations, keys and values are left out. Says in the config
/// what there was. Throws Error naming the tensor where a part is missing or has another type or
/// shape, where a factor is not finite and above zero, and where rows are not whole blocks of 256.
void join_nvfp4_tensors(TensorIndex& index, const Nvfp4Scheme& scheme, ModelConfig& config);

}  // namespace canopy
