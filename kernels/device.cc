#include "kernels/device.h"

#include <exception>
#include <utility>

namespace canopy {

void wait_quietly(const Event& event) noexcept {
  try {
    event.wait();
  } catch (const std::exception&) {
  }
}

void finish_quietly(Stream& stream) noexcept {
  try {
    stream.synchronize();
  } catch (const std::exception&) {
  }
}

const Gpu* Gpus::find(int ordinal) const {
  for (const Gpu& gpu : all)
    if (gpu.ordinal == ordinal) return &gpu;
  return nullptr;
}

Buffer::Buffer(Device& device, std::byte* data, std::size_t bytes)
    : device_(&device), data_(data), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);  // ours goes when other does
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (device_ != nullptr) device_->release(data_, bytes_);
}

}  // namespace canopy
