#pragma once
#include <cstddef>

#include "kernels/device.h"
#include "src/base/error.h"

namespace canopy {

/// Memory of a device that KV pools share with weights, from both ends. Cell b holds block b of
/// each pool, so that texts, which take low blocks first, leave the end to others.
class KvArena {
 public:
  /// Throws Error if the device is full.
  KvArena(Device& device, int cells, std::size_t cell_bytes)
      : cell_bytes_(cell_bytes), memory_(device.allocate(bytes_needed(cells, cell_bytes))) {}
  /// Predicts what the constructor will hold. Whole slots of weights reach to its end.
  static std::size_t bytes_needed(int cells, std::size_t cell_bytes) {
    constexpr std::size_t kAlignment = 256;
    return (static_cast<std::size_t>(cells) * cell_bytes + kAlignment - 1) / kAlignment *
           kAlignment;
  }

  /// Returns where block 0 of a pool lies, of that many bytes a block; others follow cell by cell.
  std::byte* place(std::size_t block_bytes) {
    require(block_bytes <= cell_bytes_ - placed_, "a KV pool is not in the plan of shared memory");
    std::byte* const at = memory_.data() + placed_;
    placed_ += block_bytes;
    return at;
  }
  std::size_t cell_bytes() const { return cell_bytes_; }
  std::byte* end() const { return memory_.data() + memory_.bytes(); }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  std::size_t cell_bytes_, placed_ = 0;
  Buffer memory_;
};

}  // namespace canopy
