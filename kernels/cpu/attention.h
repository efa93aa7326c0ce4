#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// Scratch of attend for calls up to `largest`. Grows with each of its fields; per thread at most 8
/// MB of scores, or one row of them where the context is longer than that.
std::size_t attention_scratch_bytes(const Workload& largest, std::size_t threads);

/// Ops::attend, now, on the pool, with the prefix by value. scratch: 256-byte aligned.
void attend(Pool& pool, std::byte* scratch, const TreeAttention& call);

}  // namespace canopy::cpu
