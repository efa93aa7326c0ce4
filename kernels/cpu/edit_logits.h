#pragma once
#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// The op of this name in Ops, now, on the pool: a row by one thread.
void edit_logits(Pool& pool, ConstTensorView logits, const LogitEdits& edits, TensorView y);

}  // namespace canopy::cpu
