#pragma once
#include "src/checkpoint/readers.h"

namespace canopy {

/// Joins what bitsandbytes keeps of each matrix of NF4 or FP4 (codes NAME, and NAME.absmax,
/// NAME.quant_map, NAME.quant_state.bitsandbytes__nf4 and others) to one tensor NAME that has
/// TensorEntry::parts. Says in the config what there was. Throws Error naming the tensor where a
/// part is missing or has another type or shape, where the table of a matrix is not the one of its
/// format, and where rows are not whole blocks of 64.
void join_table_tensors(TensorIndex& index, ModelConfig& config);

}  // namespace canopy
