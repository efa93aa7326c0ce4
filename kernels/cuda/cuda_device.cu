// One GPU: its memory, its streams, and Ops by the kernels of this folder and cuBLAS.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/delta/ops.h"
#include "kernels/cuda/find_gpus.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/small_uploads.h"
#include "kernels/pinned_ranges.h"

namespace canopy::cuda {

namespace {

struct CudaLaunch {
  int ordinal;
  template <class Kernel>
  void operator()(Stream& stream, const Kernel& kernel, const Grid& grid) const {
    use(ordinal);
    launch(on_gpu(stream), kernel, grid);
  }
  template <class Kernel>
  void load() const {
    use(ordinal);
    cuda::load<Kernel>();
  }
};

class CudaOps final : public DeltaBlockOps<CudaLaunch> {
 public:
  CudaOps(Device& device, int ordinal, Fault* fault)
      : DeltaBlockOps<CudaLaunch>(device, CudaLaunch{ordinal}, fault),
        ordinal_(ordinal),
        workspace_(device.allocate(Cublas::kWorkspaceBytes)),
        cublas_(workspace_.data()) {}

 private:
  void multiply(Stream& stream, const MatrixProduct& product) override {
    use(ordinal_);
    cublas_.multiply(on_gpu(stream), product);
  }
  const int ordinal_;
  Buffer workspace_;
  Cublas cublas_;
};

/// A lock that copies know of while it holds.
class KnownPin final : public HostPin {
 public:
  KnownPin(int ordinal, std::span<std::byte> pages, PinnedRanges& known)
      : known_(known), begin_(pages.data()), pin_(ordinal, pages) {
    known_.add(pages);
  }
  ~KnownPin() override { known_.remove(begin_); }
  KnownPin(const KnownPin&) = delete;
  KnownPin& operator=(const KnownPin&) = delete;

 private:
  PinnedRanges& known_;
  std::byte* const begin_;
  const CudaPin pin_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceChoice& choice)
      : ordinal_(choice.ordinal),
        fault_(ordinal_),
        shared_(ordinal_, SmallUploads<CudaLaunch>::kBytes) {
    check(cudaGetDeviceProperties(&properties_, ordinal_), "reading the GPU's properties");
    cap_ = properties_.totalGlobalMem;
    stream_.emplace(ordinal_, fault_);
    ops_.emplace(*this, ordinal_, fault_.on_device());
    small_.emplace(*this, CudaLaunch{ordinal_}, shared_.data());
    const auto [free, total] = memory();
    held_ = total - free;  // by other processes, and by the driver and the libraries for this one
    if (choice.gpu_memory != 0) cap_ = std::min(choice.gpu_memory, total);
  }
  ~CudaDevice() override {
    cudaSetDevice(ordinal_);
    small_.reset();
    ops_.reset();
    stream_.reset();
  }

  std::string name() const override { return properties_.name; }
  std::size_t free_bytes() const override {
    const std::size_t held = held_;
    return std::min(memory().first, cap_ - std::min(cap_, held));
  }
  bool shares_host_memory() const override { return false; }
  DriverShare driver_share() const override { return kGpuDriver; }

  Buffer allocate(std::size_t bytes) override {
    use(ordinal_);
    const std::size_t size = taken_by(bytes);
    const auto refuse = [&](const std::string& why) {
      throw DeviceFull("cannot allocate " + std::to_string(size >> 20) +
                       " MiB on the GPU: " + std::to_string(free_bytes() >> 20) + " MiB of its " +
                       std::to_string(cap_ >> 20) + " MiB are free" + why);
    };
    if (held_ + size > cap_) refuse("");
    void* data = nullptr;
    if (const cudaError_t status = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
        status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      refuse(", but not to be had: the driver, or another process, has taken some");
    } else {
      check(status, "allocating GPU memory");
    }
    held_ += size;
    Buffer buffer(*this, static_cast<std::byte*>(data), bytes);
    // Zeros, as fresh host pages are: unwritten cache slots may be multiplied by zero.
    check(cudaMemsetAsync(data, 0, std::max<std::size_t>(bytes, 1), stream_->get()),
          "clearing GPU memory");
    stream_->synchronize();
    return buffer;
  }
  std::unique_ptr<HostPin> pin(std::span<std::byte> pages) override {
    return std::make_unique<KnownPin>(ordinal_, pages, pinned_);
  }
  std::unique_ptr<Stream> make_stream(std::string_view) override {
    return std::make_unique<CudaStream>(ordinal_, fault_);
  }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<CudaEvent>(ordinal_, CudaEvent::Timed::kNo);
  }
  std::unique_ptr<Timer> make_timer() override {
    return std::make_unique<CudaEvent>(ordinal_, CudaEvent::Timed::kYes);
  }
  void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) override {
    if (small_->upload(stream, to, from)) return;
    use(ordinal_);
    pinned_.cut(from, [&](std::span<const std::byte> piece) {
      check(cudaMemcpyAsync(to + (piece.data() - from.data()), piece.data(), piece.size(),
                            cudaMemcpyHostToDevice, on_gpu(stream)),
            "copying to the GPU");
    });
  }
  void download(Stream& stream, std::span<std::byte> to, const std::byte* from) override {
    use(ordinal_);
    pinned_.cut(to, [&](std::span<const std::byte> piece) {
      const std::ptrdiff_t at = piece.data() - to.data();
      check(cudaMemcpyAsync(to.data() + at, from + at, piece.size(), cudaMemcpyDeviceToHost,
                            on_gpu(stream)),
            "copying from the GPU");
    });
  }
  Ops& ops() override { return *ops_; }

 private:
  static std::size_t taken_by(std::size_t bytes) {
    return kGpuDriver.whole_units(std::max<std::size_t>(bytes, 1));
  }
  std::pair<std::size_t, std::size_t> memory() const {  // free, in all
    use(ordinal_);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
    return {free, total};
  }
  void release(std::byte* data, std::size_t bytes) noexcept override {
    cudaSetDevice(ordinal_);
    cudaFree(data);
    held_ -= taken_by(bytes);
  }

  const int ordinal_;
  const FaultPage fault_;
  const SharedMemory shared_;  // of small_
  cudaDeviceProp properties_{};
  std::size_t cap_ = 0;
  std::atomic<std::size_t> held_ = 0;
  PinnedRanges pinned_;
  std::optional<CudaStream> stream_;  // of allocate()
  std::optional<CudaOps> ops_;
  std::optional<SmallUploads<CudaLaunch>> small_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const DeviceChoice& choice) {
  require_gpu(choice.ordinal);
  open_gpu(choice.ordinal);
  return std::make_unique<CudaDevice>(choice);
}

}  // namespace canopy::cuda
