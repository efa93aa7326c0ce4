#pragma once
#include <cstddef>
#include <span>

#include "kernels/tensor.h"

namespace canopy {

/// One row of weights as blocks of 32 of `type` (kQ8_0, kQ4_0, kQ4_1: src/base/weight_format.h has
/// the formats), to nearest. Q8_0's scale is that of the largest magnitude. The four-bit types
/// search: several candidate scales (and minima), each refitted by least squares to the codes it
/// gave; the block with the least squared error is kept, never worse than the plain range. Pure.
/// Shapes: row [32 n]; out [row_bytes(type, 32 n)].
/// Throws: Error if row is not whole blocks, type is another one, or a scale exceeds f16.
void quantize_row(DType type, std::span<const float> row, std::span<std::byte> out);

}  // namespace canopy
