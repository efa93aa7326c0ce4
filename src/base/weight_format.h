#pragma once
#include <cstddef>
#include <span>

#include "src/base/dtype.h"

namespace canopy {

/// One row of weights as f32: the plain definition of each format, which the fast kernels are
/// tested against. `row` may start at any byte. Blocks (little-endian; d, m are f16):
///   Q8_0 {d, i8 q[32]}: d q.   Q4_0 {d, u4 q[32]}: d (q - 8).   Q4_1 {d, m, u4 q[32]}: d q + m,
///   byte i of a 4-bit block holding q[i] in its low and q[16 + i] in its high half.
/// Throws Error if out.size() is not whole blocks, or for dtypes that are not weights or that no
/// kernel computes with yet (Q4_K, Q6_K).
void dequantize_row(DType dtype, const std::byte* row, std::span<float> out);

}  // namespace canopy
