#pragma once
// Ops of an emulated card whose kernels are those that nvcc wrote down.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/on_device.h"
#include "tests/ptx/ptx_runner.h"
#include "tests/ptx/tiny_kernels.h"

namespace canopy::ptx {

/// Skips where there was no CUDA compiler to write them.
class NvccKernels : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = CANOPY_PTX_FOLDER "/kernels.ptx";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "there is no CUDA compiler: no " << file;
    text_ = read_text(file);
  }
  void TearDown() override {
    arrays_.clear();
    stream_.reset();
    device_.reset();  // before the runner, which it says goodbye to
  }
  const std::string& text() const { return text_; }
  void start(std::string text, Order order = {}) {
    TearDown();
    runner_.reset();
    found_.all.clear();
    runner_ = std::make_unique<PtxRunner>(std::move(text), order, found_);
    device_ = std::make_unique<EmulatedCuda>();
    stream_ = device_->make_stream("test");
  }
  const PtxRunner& runner() const { return *runner_; }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Ops& ops() { return device_->ops(); }
  /// Returns the faults in all that has been queued.
  std::string found() {
    stream_->synchronize();
    return found_.text();
  }

  /// An array of the device, exactly as large as it must be.
  template <class T>
  std::byte* send(const std::vector<T>& values) {
    arrays_.push_back(device_->allocate(values.size() * sizeof(T)));
    device_->upload(*stream_, arrays_.back().data(), std::as_bytes(std::span(values)));
    stream_->synchronize();
    return arrays_.back().data();
  }
  TensorView floats(std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return {send(random_floats(static_cast<std::size_t>(count), random_)), DType::kF32, shape};
  }
  std::mt19937& random() { return random_; }

 private:
  std::string text_;
  FoundFaults found_;
  std::unique_ptr<PtxRunner> runner_;
  std::unique_ptr<EmulatedCuda> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> arrays_;
  std::mt19937 random_{1};
};

}  // namespace canopy::ptx
