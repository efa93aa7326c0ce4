#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "offload/io/read_layout.h"
#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "offload/loading.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// Tensors in host memory, locked for copies to the device. Immutable once loaded.
class LockedTensors {
 public:
  /// Reads them through the pump, in file order, and locks them as they come; they lie `on` a NUMA
  /// node while it has room. Progress is of `all` bytes, these among them. Throws: Error as the
  /// pump does; Stopped on request.
  LockedTensors(Device& device, std::span<const TensorEntry* const> tensors, ReadPump& pump,
                const Loading& loading, std::uint64_t all, const MemoryNode& on = {});

  const std::byte* at(std::size_t i) const { return slab_.data() + layout_.slab_at[i]; }
  std::size_t bytes() const { return slab_.size(); }

  /// Predicts bytes(): tensors whose bytes overlap in a file share them. Pure.
  static std::size_t bytes_needed(std::span<const TensorEntry* const> tensors);

 private:
  ReadLayout layout_;
  HostSlab slab_;
  SlabPins pins_;
};

}  // namespace canopy
