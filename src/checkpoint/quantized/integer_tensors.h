#pragma once
#include "src/checkpoint/quantized/integer_scheme.h"
#include "src/checkpoint/readers.h"

namespace canopy {

/// Joins codes, scales and zero points of a directory's matrices to tensors NAME.weight that have
/// TensorEntry::parts. The tensors decide which modules have them; the scheme says in what form.
/// Says in the config what there was. Throws Error naming the tensor where the files do not agree
/// with the scheme, and where no format of rows has its groups.
void join_integer_tensors(TensorIndex& index, const IntegerScheme& scheme, ModelConfig& config);

}  // namespace canopy
