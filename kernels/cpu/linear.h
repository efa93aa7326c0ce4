#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// Scratch of a linear call with up to `rows` rows and `columns` columns of x. Grows with each.
std::size_t linear_scratch_bytes(std::int64_t rows, std::int64_t columns, std::size_t threads);

/// Ops::linear, now, on the pool. scratch: 256-byte aligned.
void linear(Pool& pool, std::byte* scratch, ConstTensorView x,
            std::span<const Projection> projections);

/// The instruction set chosen at run time, as Highway names it: "AVX2".
const char* instruction_set();

}  // namespace canopy::cpu
