#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// One contiguous read: aligned at both ends, so it may cover a few bytes that nobody asked for and
/// may reach past the end of the file.
struct Extent {
  int file = 0;
  std::uint64_t offset = 0;     // bytes in the file, multiple of the alignment
  std::size_t bytes = 0;        // multiple of the alignment
  std::size_t needed = 0;       // the first `needed` bytes must exist: tensors end there
  std::size_t slab_offset = 0;  // where it lands in the slab
};

/// Reads of a set of tensors: few aligned extents, in file order, packed into one slab.
struct ReadLayout {
  std::vector<Extent> extents;       // extents that touch or overlap are one
  std::vector<std::size_t> slab_at;  // of each tensor, as given: its first byte in the slab; any
                                     // residue, since tensors start at any byte of a file
  std::size_t slab_bytes = 0;        // sum of the extents
};

/// Throws Error if alignment is not a power of two. Tensors may repeat and lie in several files.
ReadLayout lay_out(std::span<const TensorEntry* const> tensors, std::size_t alignment);

/// Returns what of the extents lands in bytes [begin, end) of the slab; both are multiples of the
/// alignment.
std::vector<Extent> part_of(std::span<const Extent> extents, std::size_t begin, std::size_t end);

}  // namespace canopy
