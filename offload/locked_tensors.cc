#include "offload/locked_tensors.h"

namespace canopy {

std::size_t LockedTensors::bytes_needed(std::span<const TensorEntry* const> tensors) {
  return lay_out(tensors, kReadAlignment).slab_bytes;
}

LockedTensors::LockedTensors(Device& device, std::span<const TensorEntry* const> tensors,
                             ReadPump& pump, const Loading& loading, std::uint64_t all,
                             const MemoryNode& on)
    : layout_(lay_out(tensors, kReadAlignment)),
      slab_(layout_.slab_bytes, on, Touch::kAsFilled),
      pins_(device, slab_.bytes()) {
  // Locked as they are filled: the pages are there, and who waits sees both go on.
  const auto lock_up_to = [&](std::size_t done) {
    loading.check_in(done, all);
    while (pins_.lock_next(done, loading.notes)) loading.check_in(done, all);
  };
  read_all(pump, layout_, slab_.data(), lock_up_to);
  lock_up_to(slab_.size());
}

}  // namespace canopy
