#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/device.h"
#include "src/base/error.h"

namespace canopy::cuda {

/// Scratch of kernels: one buffer for all streams. Each call that uses it waits for the one before,
/// by an event where that was another stream's. A graph has no such events, which it would record
/// and wait for hundreds of times: once calls were captured, no other stream may use the scratch.
/// Any thread.
class SharedScratch {
 public:
  explicit SharedScratch(Device& device) : device_(device), free_(device.make_event()) {}

  /// Makes room for calls of `bytes` bytes. Graphs have the scratch's address in them: throws Error
  /// if it would have to grow once calls were captured.
  void reserve(std::size_t bytes) {
    const std::lock_guard lock(turn_);
    grow(bytes, false);
  }
  /// Lends the scratch to body(scratch), in the order of the calls.
  template <class Body>
  void lend(Stream& stream, std::size_t bytes, const Body& body) {
    const std::lock_guard lock(turn_);
    grow(bytes, stream.capturing());
    const bool another = last_user_ != nullptr && last_user_ != &stream;
    if (stream.capturing()) captured_on_ = &stream;
    if (another && captured_on_ != nullptr)
      throw Error("kernels that were captured as a graph share their scratch with no other stream");
    if (another) stream.wait(*free_);
    last_user_ = &stream;
    body(buffer_.data());
    if (!stream.capturing()) stream.record(*free_);
  }

 private:
  void grow(std::size_t bytes, bool capturing) {
    if (bytes <= buffer_.bytes()) return;
    if (capturing || captured_on_ != nullptr)
      throw Error("scratch of " + std::to_string(buffer_.bytes()) +
                  " bytes is part of a graph and cannot grow to " + std::to_string(bytes) +
                  ": reserve() must come before, with the largest call");
    free_->wait();
    buffer_ = Buffer();  // first, so that both never exist at once
    buffer_ = device_.allocate(bytes);
  }

  Device& device_;
  std::mutex turn_;  // guards what follows
  Buffer buffer_;
  std::unique_ptr<Event> free_;
  const Stream* last_user_ = nullptr;    // by address: a stream that is gone has finished its work
  const Stream* captured_on_ = nullptr;  // by address, too: its graphs may run at any time
};

}  // namespace canopy::cuda
