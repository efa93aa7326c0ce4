#pragma once
#include <cstddef>
#include <span>

#include "src/base/formats/weight_format.h"

namespace canopy {

/// Formats that quantize_row() can make.
using WrittenFormats = format::List<format::Q4_0, format::Q4_1, format::Q5_0, format::Q8_0,
                                    format::Q2_K, format::Q4_K, format::Q6_K>;

/// One row of weights as blocks of `type` (src/base/formats/block_formats.h has them), to nearest.
/// Q8_0's scale is that of the largest magnitude. The others search: several candidate scales (and
/// minima), each refitted by least squares to the codes it gave; the block with the least squared
/// error is kept, of Q4_0, Q4_1 and Q5_0 never worse than the plain range. Pure.
/// Shapes: row [n], whole blocks; out [row_bytes(type, n)].
/// Throws: Error if row is not whole blocks, type is another one, or a scale exceeds f16.
void quantize_row(DType type, std::span<const float> row, std::span<std::byte> out);

}  // namespace canopy
