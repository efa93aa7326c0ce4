#pragma once
#include <mutex>
#include <string>

#include "tests/kernels/kernel_runner.h"
#include "tests/ptx/machine.h"
#include "tests/ptx/program.h"

namespace canopy::ptx {

/// The text of a file. Throws Error.
std::string read_text(const std::string& path);

/// Runs the kernels of emulated cards as a file of PTX has them. One runs at a time.
class PtxRunner final : public KernelRunner {
 public:
  /// Each launch has an order of its own that follows from `order`. Throws Error where the text has
  /// no kernels.
  PtxRunner(std::string text, Order order, Faults& faults);
  ~PtxRunner() override;
  PtxRunner(const PtxRunner&) = delete;
  PtxRunner& operator=(const PtxRunner&) = delete;

  void run(const std::type_info& kernel, std::span<const std::byte> arguments,
           const cuda::Grid& grid) override;
  void allocated(const void* at, std::size_t bytes) override { memory_.allocated(at, bytes); }
  void released(const void* at) override { memory_.released(at); }
  const Module& module() const { return module_; }

 private:
  Module module_;
  const Order order_;
  Faults& faults_;
  GlobalMemory memory_;
  std::mutex running_;
  std::uint64_t launches_ = 0;
};

}  // namespace canopy::ptx
