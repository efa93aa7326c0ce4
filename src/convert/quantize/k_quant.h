#pragma once
#include <cstddef>
#include <span>

#include "src/base/formats/weight_format.h"

namespace canopy {

/// A block of 256 weights whose groups have scales of their own. Each group is fitted alone; the
/// scales that the block can hold next to these are then tried, and the block's own scale and
/// minimum refitted by least squares to all codes, until that helps no more. The squared error
/// decides throughout. Throws Error if a scale exceeds f16.
void quantize_block(format::Q2_K, std::span<const float, 256> x, std::byte* out);
void quantize_block(format::Q4_K, std::span<const float, 256> x, std::byte* out);
void quantize_block(format::Q6_K, std::span<const float, 256> x, std::byte* out);

}  // namespace canopy
