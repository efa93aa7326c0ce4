#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "offload/read_engine.h"
#include "offload/topology.h"

namespace canopy {

/// When a slab takes its pages from the system: when it is made, so that a budget is met then and
/// not in the middle of a run; or as it is filled, for a long load that can be watched and stopped.
enum class Touch { kNow, kAsFilled };

/// Anonymous, page-aligned, zeroed memory that direct reads can land in and io_uring can register.
/// Move-only; may be used from any thread.
class HostSlab {
 public:
  HostSlab() = default;
  /// On that NUMA node while it has room. Throws Error with the size when the system refuses it.
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

/// Locks pages for copies to the device, a piece at a time: locking takes a second for some
/// gigabytes, in which nothing can be stopped. Where it is refused the pages behind are not locked,
/// copies from them are slower, and Notes says so. Destroy it before the pages. One thread.
class SlabPins {
 public:
  SlabPins() = default;
  static constexpr std::size_t kPiece = std::size_t{256} << 20;  // bytes, whole pages of any size
  SlabPins(Device& device, std::span<std::byte> pages, std::size_t piece = kPiece)
      : device_(&device), pages_(pages), piece_(piece) {}

  /// Locks the next piece, if one begins before byte `end` of the pages. False: there was none.
  bool lock_next(std::size_t end, Notes& notes);
  void lock_all(Notes& notes) {
    while (lock_next(pages_.size(), notes)) {
    }
  }

 private:
  Device* device_ = nullptr;
  std::span<std::byte> pages_;
  std::size_t piece_ = kPiece;
  std::size_t locked_ = 0;  // bytes from the start, or that will not be
  std::vector<std::unique_ptr<HostPin>> pins_;
};

}  // namespace canopy
