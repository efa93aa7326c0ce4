#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "offload/checkpoint.h"
#include "offload/weight_source.h"

namespace canopy {

/// One read: aligned at both ends, so it may cover a few bytes that nobody asked for.
struct Extent {
  int file = 0;
  std::uint64_t offset = 0;     // bytes in the file, multiple of the alignment
  std::size_t bytes = 0;        // multiple of the alignment
  std::size_t slab_offset = 0;  // where it lands in the unit's slab
};

/// One unit of the sweep: what to read, where each tensor then begins in the host slab, and where
/// it goes on a device with its own memory (tensors start at any byte of a file; a GPU wants them
/// aligned).
struct UnitLayout {
  Unit unit;
  std::vector<Extent> extents;       // neighbours merged
  std::vector<std::size_t> slab_at;  // byte offset in the slab, in UnitWeights order
  std::vector<std::size_t> slot_at;  // byte offset in the device slot, 256-byte aligned
  std::size_t slab_bytes = 0, slot_bytes = 0;
  std::uint64_t useful_bytes = 0;  // over-read = sum of extents - useful_bytes
};

std::vector<UnitLayout> lay_out_units(const Checkpoint& checkpoint, std::size_t alignment,
                                      std::size_t most_unit_bytes);

}  // namespace canopy
