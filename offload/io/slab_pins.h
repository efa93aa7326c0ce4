#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "src/base/notes.h"

namespace canopy {

/// Locks pages for copies to the device, a piece at a time: locking takes a second for some
/// gigabytes, in which nothing can be stopped. Where it is refused the pages after it are not
/// locked, copies from them are slower, and Notes says so. Destroy it before the pages. One thread.
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
