#pragma once
// Parts that the op tests share: a device by kind, host arrays sent to it and brought back with
// guard bytes around them, and the instruction sets to try on the CPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hwy/targets.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/base/formats/block_scales.h"
#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {

inline constexpr double kEps = 0x1p-24;  // half a unit in the last place of 1.0f
/// A size as dimensions of tensors have it.
inline std::int64_t dim(std::size_t value) { return static_cast<std::int64_t>(value); }

/// An array on the device. Guard bytes on both sides must survive; `shift` moves the start to an
/// odd address, as tensors of a checkpoint may have.
class OnDevice {
 public:
  OnDevice(Device& device, Stream& stream, std::vector<std::byte> host, std::size_t shift = 0)
      : device_(device), stream_(stream), host_(std::move(host)), shift_(shift) {
    whole_.assign(host_.size() + 2 * kGuard + shift_, kGuardByte);
    std::copy(host_.begin(), host_.end(), whole_.begin() + offset());
    buffer_ = device_.allocate(whole_.size());
    device_.upload(stream_, buffer_.data(), whole_);
    stream_.synchronize();
  }
  std::byte* data() { return buffer_.data() + kGuard + shift_; }
  TensorView view(DType dtype, std::initializer_list<std::int64_t> shape) {
    return {data(), dtype, shape};
  }
  WeightView weights(DType format, std::size_t rows, std::size_t columns) {
    return {data(), format, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
  }
  /// Waits for the stream; expects untouched guards.
  template <class T>
  std::vector<T> read() {
    device_.download(stream_, whole_, buffer_.data());
    stream_.synchronize();
    for (std::size_t i = 0; i < whole_.size(); ++i)
      if (i < kGuard + shift_ || i >= kGuard + shift_ + host_.size()) {
        EXPECT_EQ(whole_[i], kGuardByte) << "guard byte " << i << " was overwritten";
      }
    std::vector<T> values(host_.size() / sizeof(T));
    std::memcpy(values.data(), whole_.data() + offset(), values.size() * sizeof(T));
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 256;  // keeps the alignment of the buffer
  static constexpr std::byte kGuardByte{0xa5};
  std::ptrdiff_t offset() const { return static_cast<std::ptrdiff_t>(kGuard + shift_); }
  Device& device_;
  Stream& stream_;
  std::vector<std::byte> host_, whole_;
  std::size_t shift_;
  Buffer buffer_;
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Runs every test on "cpu", on "emulated", which has the kernels of "cuda", and on "cuda" itself;
/// without a GPU, that third skips and says why.
class OnEachDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda") {
      if (const Gpus gpus = find_gpus(); gpus.all.empty()) GTEST_SKIP() << gpus.why_none;
      device_ = make_device({.kind = "cuda"});
    } else if (GetParam() == "emulated") {
      device_ = std::make_unique<EmulatedCuda>();
    } else {
      device_ = make_device({.kind = GetParam(), .threads = 3});
    }
    stream_ = device_->make_stream("test");
  }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Ops& ops() { return device_->ops(); }

  /// A GPU's weights are laid out at whole elements when they are sent there: no shift.
  template <class T>
  OnDevice send(const std::vector<T>& values, std::size_t shift = 0) {
    return {*device_, *stream_, bytes_of(values), device_->shares_host_memory() ? shift : 0};
  }

  /// Calls body once per instruction set this machine has; once on a GPU.
  void on_each_instruction_set(const std::function<void()>& body) {
    if (GetParam() != "cpu") return body();
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      hwy::SetSupportedTargetsForTest(target);
      body();
      stream_->synchronize();
    }
    hwy::SetSupportedTargetsForTest(0);
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

#define CANOPY_ON_EACH_DEVICE(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, testing::Values("cpu", "emulated", "cuda"), \
                           [](const auto& info) { return info.param; })

inline std::vector<float> random_floats(std::size_t n, std::mt19937& random, float spread = 1.0f) {
  std::uniform_real_distribution<float> uniform(-spread, spread);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

/// Returns a scale that the format multiplies by: F4_256 divides by a negative one.
template <class Format>
float scale_of_block(float value) {
  return std::is_same_v<Format, format::F4_256> ? std::abs(value) : value;
}

/// n rows of k finite weights, with every bit of a block in play.
inline std::vector<std::byte> random_weights(DType dtype, std::size_t n, std::size_t k,
                                             std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const std::size_t row = row_bytes(dtype, static_cast<std::int64_t>(k));
  std::vector<std::byte> bytes(n * row);
  const auto put16 = [&](std::size_t at, std::uint16_t bits) { std::memcpy(&bytes[at], &bits, 2); };
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) {
    for (std::size_t i = 0; i < n * k; ++i) {
      const float value = uniform(random);
      if (dtype == DType::kF32) std::memcpy(&bytes[i * 4], &value, 4);
      if (dtype == DType::kBF16) put16(i * 2, bf16_from_f32(value));
      if (dtype == DType::kF16) put16(i * 2, f16_from_f32(value));
    }
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  visit_format(BlockFormats(), dtype, [&]<class Format>(Format) {
    for (std::size_t at = 0; at < bytes.size(); at += Format::kBlockBytes)
      put_scales<Format>({scale_of_block<Format>(uniform(random) / 16), uniform(random)},
                         &bytes[at]);
  });
  return bytes;
}

}  // namespace canopy
