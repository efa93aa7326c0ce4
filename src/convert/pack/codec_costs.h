#pragma once
#include <cstddef>
#include <vector>

#include "kernels/device.h"
#include "src/base/formats/packed_format.h"

namespace canopy {

/// Cost of BF16 weights in one form of them on a device.
struct CodecCost {
  DType dtype;         // kBF16, or a format that packs it
  double bits;         // of a weight, drawn from a normal distribution
  Seconds per_weight;  // of a product of one row with a matrix that is in no cache, unpacking it
};

/// Times products of one row with `bytes` bytes of BF16 or somewhat less, and with the same weights
/// packed by each codec, in turns; they take 2.5 times as many bytes of memory together. BF16
/// itself comes first. Throws Error where the device has no room.
std::vector<CodecCost> measure_codecs(Device& device, std::size_t bytes);

}  // namespace canopy
