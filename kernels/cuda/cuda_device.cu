// One GPU: its memory, its streams, and Ops by the kernels of this folder and cuBLAS.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/block_ops.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/launch.cuh"

namespace canopy::cuda {

namespace {

/// Makes the calling thread's CUDA calls go to this GPU.
void use(int ordinal) { check(cudaSetDevice(ordinal), "choosing the GPU"); }

/// A Fault that kernels write and the host reads.
class FaultPage {
 public:
  FaultPage() {
    check(cudaHostAlloc(reinterpret_cast<void**>(&fault_), sizeof(Fault), cudaHostAllocMapped),
          "allocating memory that GPU and host share");
    *fault_ = {};
  }
  ~FaultPage() { cudaFreeHost(fault_); }
  FaultPage(const FaultPage&) = delete;
  FaultPage& operator=(const FaultPage&) = delete;

  Fault* on_device() const { return fault_; }  // one address space for both
  void throw_if_any() const {
    if (*const_cast<volatile int*>(&fault_->kind) == Fault::kNone) return;
    throw error_of(std::exchange(*fault_, Fault()));
  }

 private:
  Fault* fault_ = nullptr;
};

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync),
          "making an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool reached() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status, "asking for an event");
    return true;
  }
  void wait() const override { check(cudaEventSynchronize(event_), "waiting for an event"); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t on_gpu(const Event& event) {
  const auto* const ours = dynamic_cast<const CudaEvent*>(&event);
  require(ours != nullptr, "this event belongs to another kind of device");
  return ours->get();
}

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    check(cudaGraphInstantiate(&graph_, graph, 0), "making a CUDA graph");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int ordinal, const FaultPage& fault) : ordinal_(ordinal), fault_(fault) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~CudaStream() override {
    cudaSetDevice(ordinal_);
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void record(Event& event) override {
    use(ordinal_);
    check(cudaEventRecordWithFlags(on_gpu(event), stream_,
                                   capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
          "recording an event");
  }
  void wait(const Event& event) override {
    use(ordinal_);
    check(cudaStreamWaitEvent(stream_, on_gpu(event),
                              capturing_ ? cudaEventWaitExternal : cudaEventWaitDefault),
          "making a stream wait");
  }
  void synchronize() override {
    use(ordinal_);
    check(cudaStreamSynchronize(stream_), "waiting for the GPU");
    fault_.throw_if_any();
  }
  void host_call(void (*call)(void*), void* context) override {
    use(ordinal_);
    check(cudaLaunchHostFunc(stream_, call, context), "queueing a call");
  }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    use(ordinal_);
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "beginning a CUDA graph");
    capturing_ = true;
    cudaGraph_t captured = nullptr;
    const auto end = [&] {
      capturing_ = false;
      return cudaStreamEndCapture(stream_, &captured);
    };
    try {
      work();
    } catch (...) {
      end();
      if (captured != nullptr) cudaGraphDestroy(captured);
      cudaGetLastError();
      throw;
    }
    check(end(), "capturing a CUDA graph");
    const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(captured,
                                                                         &cudaGraphDestroy);
    return std::make_unique<CudaGraph>(captured);
  }
  void launch(const Graph& graph) override {
    use(ordinal_);
    const auto* const ours = dynamic_cast<const CudaGraph*>(&graph);
    require(ours != nullptr, "this graph belongs to another kind of device");
    check(cudaGraphLaunch(ours->get(), stream_), "launching a CUDA graph");
  }
  cudaStream_t get() const { return stream_; }

 private:
  const int ordinal_;
  const FaultPage& fault_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
};

cudaStream_t on_gpu(Stream& stream) {
  auto* const ours = dynamic_cast<CudaStream*>(&stream);
  require(ours != nullptr, "this stream belongs to another kind of device");
  return ours->get();
}

struct CudaLaunch {
  int ordinal;
  template <class Kernel>
  void operator()(Stream& stream, const Kernel& kernel, const Grid& grid) const {
    use(ordinal);
    launch(on_gpu(stream), kernel, grid);
  }
};

class CudaOps final : public BlockOps<CudaLaunch> {
 public:
  CudaOps(Device& device, int ordinal, Fault* fault)
      : BlockOps<CudaLaunch>(device, CudaLaunch{ordinal}, fault),
        workspace_(device.allocate(Cublas::kWorkspaceBytes)),
        cublas_(workspace_.data()) {}

 private:
  void multiply(Stream& stream, const MatrixProduct& product) override {
    cublas_.multiply(on_gpu(stream), product);
  }
  Buffer workspace_;
  Cublas cublas_;
};

class Pin final : public HostPin {
 public:
  explicit Pin(std::span<std::byte> pages) : pages_(pages) {
    const cudaError_t status =
        cudaHostRegister(pages.data(), pages.size(), cudaHostRegisterPortable);
    if (status == cudaSuccess) return;
    cudaGetLastError();
    throw Error("cannot lock " + std::to_string(pages.size() >> 20) +
                " MiB of host memory for the GPU: " + cudaGetErrorString(status) +
                "; raise the limit of locked memory (ulimit -l) and of the container's memory");
  }
  ~Pin() override { cudaHostUnregister(pages_.data()); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  std::span<std::byte> pages_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceChoice& choice) : ordinal_(choice.ordinal) {
    use(ordinal_);
    fault_.emplace();
    check(cudaGetDeviceProperties(&properties_, ordinal_), "reading the GPU's properties");
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
    cap_ = choice.gpu_memory == 0 ? total : std::min(choice.gpu_memory, total);
    held_ = total - free;  // by the driver for this process, and by other processes
    stream_.emplace(ordinal_, *fault_);
    ops_.emplace(*this, ordinal_, fault_->on_device());
  }
  ~CudaDevice() override {
    cudaSetDevice(ordinal_);
    ops_.reset();
    stream_.reset();
  }

  std::string name() const override { return properties_.name; }
  std::size_t free_bytes() const override {
    use(ordinal_);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
    const std::size_t held = held_;
    return std::min(free, cap_ - std::min(cap_, held));
  }
  bool shares_host_memory() const override { return false; }

  Buffer allocate(std::size_t bytes) override {
    use(ordinal_);
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    if (held_ + size > cap_)
      throw Error("cannot allocate " + std::to_string(size >> 20) +
                  " MiB on the GPU: " + std::to_string(free_bytes() >> 20) + " MiB of its " +
                  std::to_string(cap_ >> 20) + " MiB are free");
    void* data = nullptr;
    check(cudaMalloc(&data, size), "allocating GPU memory");
    held_ += size;
    Buffer buffer(*this, static_cast<std::byte*>(data), size);
    // Zeros, as fresh host pages are: unwritten cache slots may be multiplied by zero.
    check(cudaMemsetAsync(data, 0, size, stream_->get()), "clearing GPU memory");
    stream_->synchronize();
    return buffer;
  }
  std::unique_ptr<HostPin> pin(std::span<std::byte> pages) override {
    use(ordinal_);
    return std::make_unique<Pin>(pages);
  }
  std::unique_ptr<Stream> make_stream(std::string_view) override {
    use(ordinal_);
    return std::make_unique<CudaStream>(ordinal_, *fault_);
  }
  std::unique_ptr<Event> make_event() override {
    use(ordinal_);
    return std::make_unique<CudaEvent>();
  }
  void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) override {
    use(ordinal_);
    if (from.empty()) return;
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, on_gpu(stream)),
          "copying to the GPU");
  }
  void download(Stream& stream, std::span<std::byte> to, const std::byte* from) override {
    use(ordinal_);
    if (to.empty()) return;
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, on_gpu(stream)),
          "copying from the GPU");
  }
  Ops& ops() override { return *ops_; }

 private:
  void release(std::byte* data, std::size_t bytes) noexcept override {
    cudaSetDevice(ordinal_);
    cudaFree(data);
    held_ -= bytes;
  }

  const int ordinal_;
  cudaDeviceProp properties_{};
  std::size_t cap_ = 0;
  std::atomic<std::size_t> held_ = 0;
  std::optional<FaultPage> fault_;
  std::optional<CudaStream> stream_;  // of allocate()
  std::optional<CudaOps> ops_;
};

}  // namespace

Gpus find_gpus() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return {{}, "no NVIDIA driver is installed"};
  Gpus found;
  try {
    int count = 0;
    const cudaError_t answer = cudaGetDeviceCount(&count);
    if (answer == cudaErrorNoDevice) return {{}, "the NVIDIA driver finds no GPU"};
    check(answer, "no GPU can be used");
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties{};
      check(cudaGetDeviceProperties(&properties, i), "reading a GPU's properties");
      char address[32] = {};
      check(cudaDeviceGetPCIBusId(address, sizeof address, i), "reading a GPU's address");
      std::string lower = address;  // as the kernel spells it
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      found.all.push_back({properties.name, properties.totalGlobalMem, lower});
    }
  } catch (const Error& why) {
    found.why_none = why.what();
  }
  return found;
}

std::unique_ptr<Device> make_cuda_device(const DeviceChoice& choice) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "no GPU can be used");
  if (choice.ordinal < 0 || choice.ordinal >= count)
    throw Error("there is no GPU " + std::to_string(choice.ordinal) + ": this machine has " +
                std::to_string(count));
  return std::make_unique<CudaDevice>(choice);
}

}  // namespace canopy::cuda
