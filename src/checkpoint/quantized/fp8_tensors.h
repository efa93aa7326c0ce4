#pragma once
#include <optional>

#include "src/checkpoint/quantized/fp8_scheme.h"
#include "src/checkpoint/readers.h"

namespace canopy {

/// Joins the FP8 matrices of a directory with their scales, under the names that its files have,
/// and leaves out what scales activations. Reads the scales, and checks them; not the codes, of
/// which there may be hundreds of gigabytes: one that is no number ends a run by its layer's name,
/// and a conversion by the row's. Says in the config what there was. Throws Error naming the tensor
/// where the files do not agree with the scheme.
void join_fp8_tensors(TensorIndex& index, const std::optional<Fp8Scheme>& scheme,
                      const Family& family, ModelConfig& config);

}  // namespace canopy
