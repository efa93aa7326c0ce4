#include "kernels/cuda/cuda_stream.h"

#include <new>
#include <string>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/fault.h"

namespace canopy::cuda {

namespace {

template <class Ours, class Theirs>
Ours& ours(Theirs& given, const char* what) {
  auto* const found = dynamic_cast<Ours*>(&given);
  if (found == nullptr)
    throw Error(std::string("this ") + what + " belongs to another kind of device");
  return *found;
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(int ordinal, cudaGraph_t graph) : ordinal_(ordinal) {
    check(cudaGraphInstantiate(&graph_, graph, 0), "making a CUDA graph");
  }
  ~CudaGraph() override {
    cudaSetDevice(ordinal_);
    cudaGraphExecDestroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t get() const { return graph_; }

 private:
  const int ordinal_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

void open_gpu(int ordinal) {
  check(cudaInitDevice(ordinal, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
        "opening the GPU");
}

void use(int ordinal) { check(cudaSetDevice(ordinal), "choosing the GPU"); }

SharedMemory::SharedMemory(int ordinal, std::size_t bytes) : ordinal_(ordinal) {
  use(ordinal_);
  check(cudaHostAlloc(reinterpret_cast<void**>(&data_), bytes,
                      cudaHostAllocMapped | cudaHostAllocPortable),
        "allocating memory that GPU and host share");
}

SharedMemory::~SharedMemory() {
  cudaSetDevice(ordinal_);
  cudaFreeHost(data_);
}

FaultPage::FaultPage(int ordinal)
    : page_(ordinal, sizeof(Fault)), fault_(new (page_.data()) Fault) {}

void FaultPage::throw_if_any() const {
  if (*const_cast<volatile int*>(&fault_->kind) == Fault::kNone) return;
  throw error_of(std::exchange(*fault_, Fault()));
}

CudaEvent::CudaEvent(int ordinal, Timed timed) : ordinal_(ordinal) {
  use(ordinal_);
  check(cudaEventCreateWithFlags(
            &event_, cudaEventBlockingSync |
                         (timed == Timed::kYes ? cudaEventDefault : cudaEventDisableTiming)),
        "making an event");
}

CudaEvent::~CudaEvent() {
  cudaSetDevice(ordinal_);
  cudaEventDestroy(event_);
}

bool CudaEvent::reached() const {
  use(ordinal_);
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "asking for an event");
  return true;
}

void CudaEvent::wait() const {
  use(ordinal_);
  check(cudaEventSynchronize(event_), "waiting for an event");
}

Seconds CudaEvent::since(const Timer& earlier) const {
  use(ordinal_);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, ours<const CudaEvent>(earlier, "timer").event_, event_),
        "reading the time between two events");
  return std::chrono::duration<double, std::milli>(milliseconds);
}

CudaStream::CudaStream(int ordinal, const FaultPage& fault) : ordinal_(ordinal), fault_(fault) {
  use(ordinal_);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

CudaStream::~CudaStream() {
  cudaSetDevice(ordinal_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void CudaStream::record(Event& event) {
  use(ordinal_);
  check(cudaEventRecordWithFlags(ours<CudaEvent>(event, "event").get(), stream_,
                                 capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        "recording an event");
}

void CudaStream::wait(const Event& event) {
  use(ordinal_);
  check(cudaStreamWaitEvent(stream_, ours<const CudaEvent>(event, "event").get(),
                            capturing_ ? cudaEventWaitExternal : cudaEventWaitDefault),
        "making a stream wait");
}

void CudaStream::synchronize() {
  use(ordinal_);
  check(cudaStreamSynchronize(stream_), "waiting for the GPU");
  fault_.throw_if_any();
}

std::unique_ptr<Graph> CudaStream::capture(const std::function<void()>& work) {
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
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(captured, &cudaGraphDestroy);
  return std::make_unique<CudaGraph>(ordinal_, captured);
}

void CudaStream::launch(const Graph& graph) {
  use(ordinal_);
  check(cudaGraphLaunch(ours<const CudaGraph>(graph, "graph").get(), stream_),
        "launching a CUDA graph");
}

cudaStream_t on_gpu(Stream& stream) { return ours<CudaStream>(stream, "stream").get(); }

CudaPin::CudaPin(int ordinal, std::span<std::byte> pages)
    : ordinal_(ordinal), pages_(pages.data()) {
  use(ordinal_);
  const cudaError_t status = cudaHostRegister(pages_, pages.size(), cudaHostRegisterPortable);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error("cannot lock " + std::to_string(pages.size() >> 20) +
              " MiB of host memory for the GPU: " + cudaGetErrorString(status) +
              "; raise the limit of locked memory (ulimit -l) and of the container's memory");
}

CudaPin::~CudaPin() {
  cudaSetDevice(ordinal_);
  cudaHostUnregister(pages_);
}

}  // namespace canopy::cuda
