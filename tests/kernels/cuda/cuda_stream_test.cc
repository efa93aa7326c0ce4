// Streams, events, graphs and locks against a CUDA runtime that is played: it knows two GPUs, which
// of them each thread has chosen, and fails on request. Nothing of it needs a GPU.
#include "kernels/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "tests/error_of.h"

namespace {

/// The state of the runtime, by the calls made to it.
struct Runtime {
  std::set<std::string> on_gpu_0;  // calls that a thread made which had not chosen GPU 1
  std::string fails;               // this call does
  cudaError_t sticky = cudaSuccess;
  int alive = 0;       // events, streams, graphs, locks
  unsigned flags = 0;  // that GPU 1 was opened with

  void begin() { *this = {}; }
};
Runtime runtime;
thread_local int current = 0;

cudaError_t call(const char* name, int alive = 0) {
  if (current != 1) runtime.on_gpu_0.insert(name);
  runtime.alive += alive;
  if (runtime.sticky != cudaSuccess) return runtime.sticky;
  return runtime.fails == name ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

template <class Handle>
cudaError_t make(const char* name, Handle* handle) {
  const cudaError_t status = call(name);
  if (status != cudaSuccess) return status;
  *handle = reinterpret_cast<Handle>(&runtime);
  ++runtime.alive;
  return cudaSuccess;
}

}  // namespace

extern "C" {
cudaError_t cudaSetDevice(int device) {
  current = device;
  return runtime.sticky;
}
cudaError_t cudaInitDevice(int device, unsigned flags, unsigned which) {
  if (device == 1 && which == cudaInitDeviceFlagsAreValid) runtime.flags = flags;
  return runtime.sticky;
}
cudaError_t cudaGetLastError() { return runtime.sticky; }
const char* cudaGetErrorString(cudaError_t) { return "it was made to fail"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfATest"; }
cudaError_t cudaHostAlloc(void** at, std::size_t, unsigned) {
  static canopy::cuda::Fault fault;
  *at = &fault;
  return call("HostAlloc", 1);
}
cudaError_t cudaFreeHost(void*) { return call("FreeHost", -1); }
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return call("HostRegister", 1); }
cudaError_t cudaHostUnregister(void*) { return call("HostUnregister", -1); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return make("EventCreate", e); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return call("EventDestroy", -1); }
cudaError_t cudaEventQuery(cudaEvent_t) { return call("EventQuery"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return call("EventSynchronize"); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 250;
  return call("EventElapsedTime");
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) {
  return call("EventRecord");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return make("StreamCreate", s); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return call("StreamDestroy", -1); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return call("StreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return call("StreamWait"); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return call("BeginCapture");
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return make("EndCapture", graph);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) {
  return make("GraphInstantiate", graph);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return call("GraphDestroy", -1); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return call("GraphExecDestroy", -1); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return call("GraphLaunch"); }
}

namespace canopy::cuda {
namespace {

constexpr int kSecond = 1;

/// Runs body in a thread that has chosen no GPU yet.
template <class Body>
void in_another_thread(const Body& body) {
  std::thread([&] { body(); }).join();
}

class CudaStreams : public testing::Test {
 protected:
  void SetUp() override { runtime.begin(); }
  void TearDown() override {
    EXPECT_EQ(runtime.on_gpu_0, std::set<std::string>());
    EXPECT_EQ(runtime.alive, 0);
  }
};

TEST_F(CudaStreams, NoThreadEverTouchesAnotherGpuThanTheChosenOne) {
  std::unique_ptr<FaultPage> fault;
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<CudaEvent> event, timer, later;
  std::unique_ptr<CudaPin> pin;
  std::unique_ptr<Graph> graph;
  std::vector<std::byte> pages(4096);
  const auto each = [&](const std::vector<std::function<void()>>& calls) {
    for (const auto& one : calls) in_another_thread(one);
  };
  each({[&] { fault = std::make_unique<FaultPage>(kSecond); },
        [&] { stream = std::make_unique<CudaStream>(kSecond, *fault); },
        [&] { event = std::make_unique<CudaEvent>(kSecond, CudaEvent::Timed::kNo); },
        [&] { timer = std::make_unique<CudaEvent>(kSecond, CudaEvent::Timed::kYes); },
        [&] { later = std::make_unique<CudaEvent>(kSecond, CudaEvent::Timed::kYes); },
        [&] { pin = std::make_unique<CudaPin>(kSecond, pages); }, [&] { stream->record(*event); },
        [&] { stream->wait(*event); }, [&] { event->wait(); },
        [&] { EXPECT_TRUE(event->reached()); },
        [&] { EXPECT_EQ(later->since(*timer), Seconds(0.25)); },
        [&] { graph = stream->capture([] {}); }, [&] { stream->launch(*graph); },
        [&] { stream->synchronize(); }, [&] { graph.reset(); }, [&] { pin.reset(); },
        [&] { event.reset(), timer.reset(), later.reset(); }, [&] { stream.reset(); },
        [&] { fault.reset(); }});
}

TEST_F(CudaStreams, ThreadsThatWaitForAGpuSleepAndLeaveTheirCoreToOthers) {
  open_gpu(kSecond);
  EXPECT_EQ(runtime.flags, static_cast<unsigned>(cudaDeviceScheduleBlockingSync));
  EXPECT_EQ(current, 0);  // nothing was opened for the thread
  runtime.sticky = cudaErrorIllegalAddress;
  EXPECT_NE(error_of([&] { open_gpu(kSecond); }).find("opening the GPU"), std::string::npos);
}

TEST_F(CudaStreams, ACaptureThatFailsAnywhereLeavesNothingBehind) {
  const FaultPage fault(kSecond);
  CudaStream stream(kSecond, fault);
  for (const char* call : {"BeginCapture", "EndCapture", "GraphInstantiate"}) {
    runtime.fails = call;
    EXPECT_NE(error_of([&] { stream.capture([] {}); }).find("it was made to fail"),
              std::string::npos)
        << call;
    EXPECT_FALSE(stream.capturing());
    runtime.fails = "";
    EXPECT_NE(stream.capture([&] { EXPECT_TRUE(stream.capturing()); }), nullptr);
  }
  EXPECT_NE(error_of([&] { stream.capture([] { throw Error("no such work"); }); }).find("no such"),
            std::string::npos);
  EXPECT_FALSE(stream.capturing());
}

TEST_F(CudaStreams, AGpuThatHasFailedSaysSoInEachCallAndInNoDestructor) {
  const FaultPage fault(kSecond);
  CudaStream stream(kSecond, fault);
  CudaEvent event(kSecond, CudaEvent::Timed::kYes);
  std::vector<std::byte> pages(4096);
  const CudaPin pin(kSecond, pages);
  const std::unique_ptr<Graph> graph = stream.capture([] {});
  runtime.sticky = cudaErrorIllegalAddress;
  EXPECT_THROW(stream.record(event), Error);
  EXPECT_THROW(stream.wait(event), Error);
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_THROW(stream.capture([] {}), Error);
  EXPECT_THROW(stream.launch(*graph), Error);
  EXPECT_THROW(event.reached(), Error);
  EXPECT_THROW(event.wait(), Error);
  EXPECT_THROW(event.since(event), Error);
  wait_quietly(event);
  finish_quietly(stream);
}

}  // namespace
}  // namespace canopy::cuda
