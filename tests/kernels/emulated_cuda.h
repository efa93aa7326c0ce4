#pragma once
// A GPU played by the CPU: memory of its own, streams that keep CUDA's rules, and the kernels of
// kernels/cuda with the threads of a block taking turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cuda/block_ops.h"

namespace canopy {

/// One block, see kernels/cuda/block.h. Threads run one after another within a step.
class SerialBlock {
 public:
  SerialBlock(std::int64_t index, const cuda::Grid& grid)
      : index_(index), threads_(grid.threads), shared_(grid.shared_bytes / sizeof(double) + 1) {}

  template <class T>
  class Each {
   public:
    explicit Each(int threads) : values_(static_cast<std::size_t>(threads)) {}
    T& operator[](int t) { return values_.at(static_cast<std::size_t>(t)); }
    auto begin() { return values_.begin(); }
    auto end() { return values_.end(); }

   private:
    std::vector<T> values_;
  };

  std::int64_t index() const { return index_; }
  int threads() const { return threads_; }
  template <class Body>
  void step(const Body& body) {
    for (int t = 0; t < threads_; ++t) body(t);
  }
  template <class T>
  Each<T> each() const {
    return Each<T>(threads_);
  }
  template <class T>
  T* shared(int count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    used_ = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    auto* const at = reinterpret_cast<std::byte*>(shared_.data()) + used_;
    used_ += bytes;
    EXPECT_LE(used_, shared_.size() * sizeof(double)) << "more shared memory than the grid has";
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  T sum(Each<T>& x) const {
    return std::accumulate(x.begin(), x.end(), T{});
  }
  template <class T>
  T most(Each<T>& x) const {
    return *std::max_element(x.begin(), x.end());
  }
  template <class T>
  void lanes_sum(Each<T>& x) const {
    for (auto lane = x.begin(); lane != x.end(); lane += 32)
      std::fill_n(lane, 32, std::accumulate(lane, lane + 32, T{}));
  }
  template <class T>
  T uniform(T value) const {
    return value;
  }
  template <class T>
  T add(T* to, T n) const {
    return std::exchange(*to, *to + n);
  }

 private:
  std::int64_t index_;
  int threads_;
  std::vector<double> shared_;  // as it comes, but never a NaN by chance
  std::size_t used_ = 0;
};

/// Queues a kernel as one piece of a CPU stream's work, which fails if the kernel found a fault.
struct SerialLaunch {
  cuda::Fault* fault;

  template <class Kernel>
  void operator()(Stream& stream, const Kernel& kernel, const cuda::Grid& grid) const {
    cpu::on_cpu(stream).enqueue([=, fault = fault] {
      for (std::int64_t index = 0; index < grid.blocks; ++index) {
        SerialBlock block(index, grid);
        kernel(block);
      }
      if (fault->kind != cuda::Fault::kNone)
        throw cuda::error_of(std::exchange(*fault, cuda::Fault()));
    });
  }
};

class EmulatedOps final : public cuda::BlockOps<SerialLaunch> {
 public:
  EmulatedOps(Device& device, cuda::Fault* fault)
      : BlockOps<SerialLaunch>(device, SerialLaunch{fault}, fault) {}

 private:
  void multiply(Stream& stream, const cuda::MatrixProduct& p) override {
    cpu::on_cpu(stream).enqueue([=] {
      const std::int64_t row = cuda::bytes_of_row(p.dtype, p.k);
      for (std::int64_t i = 0; i < p.n; ++i)
        for (std::int64_t j = 0; j < p.m; ++j) {
          float sum = 0;
          for (std::int64_t c = 0; c < p.k; ++c)
            sum += cuda::weight_at(p.dtype, p.x + i * row, c) *
                   cuda::weight_at(p.dtype, p.w + j * row, c);
          float& y = p.y[i * p.stride + j];
          y = p.accumulate ? y + sum : sum;
        }
    });
  }
};

class EmulatedCuda final : public Device {
 public:
  /// With so many bytes of memory.
  explicit EmulatedCuda(std::size_t memory = std::size_t{4} << 30)
      : host_({.threads = 1}), memory_(memory), ops_(*this, &fault_) {}

  std::string name() const override { return "an emulated GPU"; }
  std::size_t free_bytes() const override { return memory_ - held_; }
  std::size_t most_held() const { return most_held_; }  // since it was made
  bool shares_host_memory() const override { return false; }
  Buffer allocate(std::size_t bytes) override {
    if (bytes > free_bytes()) throw Error("the emulated GPU is full");
    held_ += bytes;
    most_held_ = std::max<std::size_t>(most_held_, held_);
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
    std::fill_n(data, bytes, std::byte{0});
    return Buffer(*this, data, bytes);
  }
  std::unique_ptr<HostPin> pin(std::span<std::byte> pages) override { return host_.pin(pages); }
  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return host_.make_stream(name);
  }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }
  void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) override {
    host_.upload(stream, to, from);
  }
  void download(Stream& stream, std::span<std::byte> to, const std::byte* from) override {
    host_.download(stream, to, from);
  }
  Ops& ops() override { return ops_; }

 private:
  void release(std::byte* data, std::size_t bytes) noexcept override {
    std::free(data);
    held_ -= bytes;
  }

  cpu::CpuDevice host_;
  const std::size_t memory_;
  std::atomic<std::size_t> held_ = 0;
  std::size_t most_held_ = 0;
  cuda::Fault fault_;
  EmulatedOps ops_;
};

}  // namespace canopy
