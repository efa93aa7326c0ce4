#pragma once
// Streams, events and graphs of one GPU. CUDA has a current GPU for each thread, 0 until a thread
// chooses another; whatever is called for one GPU chooses it first, or a thread that a user never
// sees would open, and take memory of, GPU 0.
#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <span>

#include "kernels/cuda/block.h"
#include "kernels/device.h"

namespace canopy::cuda {

/// Opens the GPU, before any other call for it: so that threads which wait for it sleep, and leave
/// their core to those that read weights. Throws Error.
void open_gpu(int ordinal);

/// Makes the calling thread's CUDA calls go to this GPU. Throws Error.
void use(int ordinal);

/// Locked host memory that GPU and host see at the same address. Any thread.
class SharedMemory {
 public:
  SharedMemory(int ordinal, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  const int ordinal_;
  std::byte* data_ = nullptr;
};

/// A Fault that kernels write and the host reads. Any thread.
class FaultPage {
 public:
  explicit FaultPage(int ordinal);
  Fault* on_device() const { return fault_; }
  void throw_if_any() const;

 private:
  const SharedMemory page_;
  Fault* const fault_;
};

/// Any thread.
class CudaEvent final : public Timer {
 public:
  enum class Timed : bool { kNo, kYes };
  CudaEvent(int ordinal, Timed timed);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool reached() const override;
  void wait() const override;
  Seconds since(const Timer& earlier) const override;
  cudaEvent_t get() const { return event_; }

 private:
  const int ordinal_;
  cudaEvent_t event_ = nullptr;
};

/// One calling thread at a time.
class CudaStream final : public Stream {
 public:
  CudaStream(int ordinal, const FaultPage& fault);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;
  bool capturing() const override { return capturing_; }
  void launch(const Graph& graph) override;
  cudaStream_t get() const { return stream_; }

 private:
  const int ordinal_;
  const FaultPage& fault_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
};

/// The stream as this backend's own; throws Error if it belongs to another.
cudaStream_t on_gpu(Stream& stream);

/// Locks host pages for the GPU. Throws Error with what to do if the system refuses.
class CudaPin final : public HostPin {
 public:
  CudaPin(int ordinal, std::span<std::byte> pages);
  ~CudaPin() override;
  CudaPin(const CudaPin&) = delete;
  CudaPin& operator=(const CudaPin&) = delete;

 private:
  const int ordinal_;
  std::byte* const pages_;
};

}  // namespace canopy::cuda
