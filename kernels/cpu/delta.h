#pragma once
#include <cstddef>

#include "kernels/cpu/pool.h"
#include "kernels/delta.h"

namespace canopy::cpu {

/// The ops of the same name in Ops, now, on the pool.
void delta_enter(Pool& pool, const DeltaEntry& call);
/// scratch: delta_scratch_bytes of the nodes. Throws Error if a node's anchor has no state.
void delta_rule(Pool& pool, std::byte* scratch, const DeltaRule& call);
std::size_t delta_scratch_bytes(std::int64_t rows, std::size_t threads);
void delta_fold(Pool& pool, const DeltaFold& call);
void gated_norm(Pool& pool, const GatedNorm& call);
void gate_heads(Pool& pool, ConstTensorView fused, TensorView x);

}  // namespace canopy::cpu
