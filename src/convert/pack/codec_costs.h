#pragma once
#include <cstddef>
#include <vector>

#include "kernels/device.h"
#include "src/base/formats/packed_format.h"

namespace canopy {

/// Cost of BF16 or FP8 weights in one form of them on a device.
struct CodecCost {
  DType dtype;         // the plain one, or a format that packs it
  double bits;         // of a weight, drawn from a normal distribution
  Seconds per_weight;  // of a product of one row with a matrix that is in no cache, unpacking it
};

/// Times products of one row with `bytes` bytes of `plain` or somewhat less, and with the same
/// weights packed by each codec for it, in turns; they take up to 2.5 times as many bytes of memory
/// together. `plain` itself comes first. Throws Error where the device has no room.
std::vector<CodecCost> measure_codecs(Device& device, std::size_t bytes, DType plain);

}  // namespace canopy
