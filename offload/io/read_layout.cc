#include "offload/io/read_layout.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "src/base/error.h"

namespace canopy {

ReadLayout lay_out(std::span<const TensorEntry* const> tensors, std::size_t alignment) {
  require(std::has_single_bit(alignment), "the alignment of reads must be a power of two");
  const std::uint64_t mask = alignment - 1;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(tensors[a]->file, tensors[a]->offset) <
           std::pair(tensors[b]->file, tensors[b]->offset);
  });

  ReadLayout layout;
  layout.slab_at.resize(tensors.size());
  for (const std::size_t i : order) {
    const TensorEntry& t = *tensors[i];
    if (t.offset > UINT64_MAX / 4 || t.bytes > UINT64_MAX / 4)
      throw Error("tensor " + t.name + " lies beyond any file: offset " + std::to_string(t.offset));
    const std::uint64_t begin = t.offset & ~mask, end = t.offset + t.bytes;
    const std::uint64_t aligned_end = (end + mask) & ~mask;
    Extent* last = layout.extents.empty() ? nullptr : &layout.extents.back();
    if (!last || last->file != t.file || begin > last->offset + last->bytes) {
      layout.extents.push_back({t.file, begin, 0, 0, layout.slab_bytes});
      last = &layout.extents.back();
    }
    const std::size_t grown = std::max<std::size_t>(last->bytes, aligned_end - last->offset);
    layout.slab_bytes += grown - last->bytes;
    last->bytes = grown;
    last->needed = std::max<std::size_t>(last->needed, end - last->offset);
    layout.slab_at[i] = last->slab_offset + static_cast<std::size_t>(t.offset - last->offset);
  }
  return layout;
}

std::vector<Extent> part_of(std::span<const Extent> extents, std::size_t begin, std::size_t end) {
  std::vector<Extent> parts;
  for (Extent part : extents) {
    const std::size_t from = std::clamp(begin, part.slab_offset, part.slab_offset + part.bytes);
    const std::size_t to = std::clamp(end, part.slab_offset, part.slab_offset + part.bytes);
    const std::size_t skipped = from - part.slab_offset;
    if (from == to) continue;
    part.offset += skipped;
    part.slab_offset = from;
    part.bytes = to - from;
    part.needed = std::min(part.needed - std::min(part.needed, skipped), part.bytes);
    parts.push_back(part);
  }
  return parts;
}

}  // namespace canopy
