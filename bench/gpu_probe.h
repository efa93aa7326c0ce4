#pragma once
// Tools that the probes of gpu_probe.cu are written with: lines, errors, owners of what the runtime
// gives out, times by events.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

void say(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
  std::fflush(stdout);
}

/// Also clears the error, unless it is one that stays: then every later probe says so.
void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error));
}
#define CHECK(call) check(call, #call)

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::size_t free_bytes() {
  std::size_t free = 0, all = 0;
  CHECK(cudaMemGetInfo(&free, &all));
  return free;
}
double mib(double bytes) { return bytes / kMiB; }
/// MiB of the device that are gone since then.
double taken(std::size_t before) {
  return mib(static_cast<double>(before) - static_cast<double>(free_bytes()));
}
double mib_free() { return mib(static_cast<double>(free_bytes())); }

// Owners: a probe that throws leaves nothing to the next.
struct Owner {
  Owner() = default;
  Owner(const Owner&) = delete;
};
struct Stream : Owner {
  cudaStream_t s = nullptr;
  Stream() { CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(s); }
  void wait() const { CHECK(cudaStreamSynchronize(s)); }
};
struct Event : Owner {
  cudaEvent_t e = nullptr;
  explicit Event(unsigned flags = cudaEventDefault) { CHECK(cudaEventCreateWithFlags(&e, flags)); }
  ~Event() { cudaEventDestroy(e); }
};
struct DeviceMemory : Owner {
  std::byte* p = nullptr;
  explicit DeviceMemory(std::size_t bytes) { CHECK(cudaMalloc(&p, bytes)); }
  ~DeviceMemory() { cudaFree(p); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(p);
  }
};
struct PinnedMemory : Owner {
  std::byte* p = nullptr;
  explicit PinnedMemory(std::size_t bytes) {
    CHECK(cudaHostAlloc(&p, bytes, cudaHostAllocMapped));
    std::memset(p, 1, bytes);
  }
  ~PinnedMemory() { cudaFreeHost(p); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(p);
  }
};
/// Anonymous pages, touched.
struct Pages : Owner {
  std::byte* p = nullptr;
  std::size_t bytes;
  Pages(std::size_t n, bool huge) : bytes(n) {
    void* const at = mmap(nullptr, n, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      throw std::runtime_error("mmap of " + std::to_string(n) + " bytes failed");
    madvise(at, n, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    p = static_cast<std::byte*>(at);
    std::vector<std::thread> threads;  // the kernel's zeroing is slow on one
    constexpr std::size_t kThreads = 8;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([=, this] {
        for (std::size_t i = n / kThreads * t; i < n / kThreads * (t + 1); i += 4096)
          p[i] = std::byte{1};
      });
    for (std::thread& thread : threads) thread.join();
  }
  ~Pages() { munmap(p, bytes); }
};
/// Such pages, locked piece by piece, as weights are.
struct LockedPages : Owner {
  Pages pages;
  std::size_t piece, locked = 0;
  LockedPages(std::size_t n, std::size_t by) : pages(n, false), piece(by) {
    for (; locked < n; locked += by)
      if (const cudaError_t error =
              cudaHostRegister(pages.p + locked, by, cudaHostRegisterPortable)) {
        unlock();
        check(error, "cudaHostRegister");
      }
  }
  ~LockedPages() { unlock(); }
  void unlock() {
    for (; locked > 0; locked -= piece) cudaHostUnregister(pages.p + locked - piece);
  }
};
/// Bytes of the host's memory that nothing uses.
std::size_t host_free_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
struct Graph : Owner {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  double captured = 0, instantiated = 0;  // seconds that these took
  /// Captures what work() queues on the stream.
  Graph(const Stream& stream, const std::function<void()>& work) {
    const double begin = now();
    CHECK(cudaStreamBeginCapture(stream.s, cudaStreamCaptureModeThreadLocal));
    work();
    CHECK(cudaStreamEndCapture(stream.s, &graph));
    captured = now() - begin;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream.s));
    stream.wait();
    instantiated = now() - begin - captured;
  }
  ~Graph() {
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
  }
};

/// Seconds of what work() queues, by events; the median of some rounds after a first one.
double timed(const Stream& stream, int rounds, const std::function<void()>& work) {
  Event begin, end;
  std::vector<double> seconds;
  for (int i = 0; i <= rounds; ++i) {
    CHECK(cudaEventRecord(begin.e, stream.s));
    work();
    CHECK(cudaEventRecord(end.e, stream.s));
    CHECK(cudaEventSynchronize(end.e));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin.e, end.e));
    if (i > 0) seconds.push_back(milliseconds * 1e-3);
  }
  return median(seconds);
}

}  // namespace
