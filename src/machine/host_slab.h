#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include "src/machine/topology.h"

namespace canopy {

std::size_t page_bytes();  // of this machine's memory

/// When a slab takes its pages from the system: when it is made, so that a budget is met then and
/// not in the middle of a run; or as it is filled, for a long load that can be watched and stopped.
enum class Touch { kNow, kAsFilled };

/// Anonymous, page-aligned, zeroed memory that direct reads can land in and io_uring can register.
/// Move-only; may be used from any thread.
class HostSlab {
 public:
  HostSlab() = default;
  /// Lies on that NUMA node while it has room. Throws Error with the size when the system refuses
  /// it.
  explicit HostSlab(std::size_t bytes, const MemoryNode& on = {}, Touch touch = Touch::kNow);
  HostSlab(HostSlab&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostSlab& operator=(HostSlab&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostSlab();

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace canopy
