// Probes of what a GPU and its driver do that no data sheet says and the CUDA backend relies on.
//
//   nvcc -std=c++20 -O2 -arch=native -o gpu_probe bench/gpu_probe.cu -ldl
//   gpu_probe [PROBE ...]      those, or all of them; two minutes
//
// Two files without the rest of the project, so that they can be built and changed where the GPU
// is. Each figure is a line that begins with its probe's word and is flushed at once; a probe that
// fails is a line, and the others run. Rates are of bytes moved, in 1e9 per second.
#include <cublas_v2.h>
#include <dlfcn.h>

#include <utility>

#include "gpu_probe.h"

namespace {

__global__ void add_one(int* at) { ++*at; }
__global__ void copy_words(const uint4* from, uint4* to, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = from[i];
}
// These run nowhere but in their probes, as what a first run loads is what is asked.
__global__ void never_ran(int* at) { *at = 7; }
__global__ void ran_first_on_a_full_card(int* at) { *at = 9; }

void machine() {
  int driver = 0, runtime = 0, device = 0;
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaFree(nullptr));
  CHECK(cudaGetDevice(&device));
  cudaDeviceProp p{};
  CHECK(cudaGetDeviceProperties(&p, device));
  say("machine %s: %d SMs, compute %d.%d, %.0f MiB, L2 %.0f MiB, %d copy engines, driver %d, "
      "runtime %d",
      p.name, p.multiProcessorCount, p.major, p.minor, mib(static_cast<double>(p.totalGlobalMem)),
      mib(p.l2CacheSize), p.asyncEngineCount, driver, runtime);
  say("machine free behind a context: %.0f MiB; pageable access %d, by the host's tables %d",
      mib_free(), p.pageableMemoryAccess, p.pageableMemoryAccessUsesHostPageTables);
}

/// Computes a * b + c where a * b has more bits than a float: written plainly, and as the backend
/// has it (kernels/cuda/block.h, rounded_product).
__global__ void products(float a, float b, float c, float* out) {
  out[0] = a * b + c;
  out[1] = __fmul_rn(a, b) + c;
}

void rounding() {
  const Stream stream;
  const DeviceMemory memory(4096);
  float values[2] = {};
  const float a = 1 + 0x1p-12f;  // a * a = 1 + 2^-11 + 2^-24, whose last bit a float drops
  products<<<1, 1, 0, stream.s>>>(a, a, -(1 + 0x1p-11f), memory.as<float>());
  CHECK(cudaGetLastError());
  stream.wait();
  CHECK(cudaMemcpy(values, memory.p, sizeof values, cudaMemcpyDeviceToHost));
  const auto how = [](float value) {
    return value == 0 ? "the product is rounded" : "product and sum are one operation";
  };
  say("rounding of a * b + c: %s", how(values[0]));
  say("rounding of __fmul_rn(a, b) + c: %s", how(values[1]));
  if (values[1] != 0) throw std::runtime_error("RoPE's products are not rounded");
}

/// Finds which calls of a thread that has chosen no GPU open GPU 0, where another is in use: why
/// each thread of the backend chooses first. In a process of its own, as what is open stays open.
void chosen_gpu() {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  if (gpus < 2) return say("chosen-gpu: there is one GPU, which no thread can mistake");
  int (*state)(int, unsigned*, int*) = nullptr;  // cuDevicePrimaryCtxGetState: it opens nothing
  if (void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
    state = reinterpret_cast<decltype(state)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  if (state == nullptr) throw std::runtime_error("no cuDevicePrimaryCtxGetState in libcuda.so.1");
  const auto is_open = [&](int gpu) {
    unsigned flags = 0;
    int open = 0;
    if (state(gpu, &flags, &open) != 0) throw std::runtime_error("cuDevicePrimaryCtxGetState");
    return open != 0;
  };
  CHECK(cudaSetDevice(1));
  const Stream stream;
  const Event event;
  const DeviceMemory memory(kMiB);
  const PinnedMemory host(kMiB);
  const Pages pages(kMiB, false);
  say("chosen-gpu GPU 1 is in use: GPU 0 is %s", is_open(0) ? "open, too" : "not open");
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"recording an event", [&] { return cudaEventRecord(event.e, stream.s); }},
      {"waiting for an event", [&] { return cudaEventSynchronize(event.e); }},
      {"copying",
       [&] { return cudaMemcpyAsync(memory.p, host.p, kMiB, cudaMemcpyHostToDevice, stream.s); }},
      {"waiting for a stream", [&] { return cudaStreamSynchronize(stream.s); }},
      {"locking memory",
       [&] { return cudaHostRegister(pages.p, pages.bytes, cudaHostRegisterPortable); }},
      {"giving locked memory back", [&] { return cudaHostUnregister(pages.p); }},
      {"making an event", [&] {
         cudaEvent_t made = nullptr;
         const cudaError_t error = cudaEventCreate(&made);
         return made == nullptr ? error : cudaEventDestroy(made);
       }}};
  for (const auto& [what, call] : calls) {
    const bool before = is_open(0);
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      error = call();
      cudaGetLastError();
    }).join();
    say("chosen-gpu %s in a thread that has chosen none: %s; GPU 0 is %s", what,
        cudaGetErrorName(error),
        before       ? "open already"
        : is_open(0) ? "open from now on"
                     : "not open");
  }
}

void malloc_granularity() {
  for (const std::size_t bytes :
       {std::size_t{1}, kMiB + 1, 2 * kMiB, 2 * kMiB + 1, 100 * kMiB + 1}) {
    const std::size_t before = free_bytes();
    const DeviceMemory memory(bytes);
    say("malloc-granularity %zu B: %.2f MiB taken", bytes, taken(before));
  }
}

double copy_rate(const Stream& stream, std::byte* to, const std::byte* from, std::size_t all,
                 std::size_t chunk) {
  const std::size_t chunks = std::max<std::size_t>(1, all / chunk);
  const double seconds = timed(stream, 3, [&] {
    for (std::size_t i = 0; i < chunks; ++i)
      CHECK(cudaMemcpyAsync(to + i * chunk, from + i * chunk, chunk, cudaMemcpyDefault, stream.s));
  });
  return static_cast<double>(chunks * chunk) / seconds / 1e9;
}

void h2d() {
  constexpr std::size_t kAll = kGiB;
  const Stream stream;
  const PinnedMemory host(kAll);
  const DeviceMemory device(kAll);
  for (std::size_t chunk = 64 * kKiB; chunk <= 512 * kMiB; chunk *= 2)
    say("h2d %.4g MiB chunks: %.2f GB/s", mib(static_cast<double>(chunk)),
        copy_rate(stream, device.p, host.p, kAll, chunk));
  say("d2h 64 MiB chunks: %.2f GB/s", copy_rate(stream, host.p, device.p, kAll, 64 * kMiB));
  const double kernel = timed(stream, 3, [&] {
    copy_words<<<512, 512, 0, stream.s>>>(host.as<uint4>(), device.as<uint4>(), kAll / 16);
    CHECK(cudaGetLastError());
  });
  say("h2d a kernel reads mapped memory: %.2f GB/s", kAll / kernel / 1e9);
}

void h2d_offset() {
  constexpr std::size_t kBytes = 256 * kMiB;
  const Stream stream;
  const PinnedMemory host(kBytes + kMiB);
  const DeviceMemory device(kBytes);
  for (const std::size_t offset : {0, 1, 2, 8, 16, 64, 256, 4096})
    say("h2d-offset +%zu: %.2f GB/s", offset,
        copy_rate(stream, device.p, host.p + offset, kBytes, kBytes));
}

/// Small copies on a stream of their own while another's copies fill the same direction.
void latency() {
  constexpr std::size_t kBig = 512 * kMiB, kMost = 2 * kMiB;
  const Stream small, link;
  const PinnedMemory source(kBig), pinned(kMost);
  std::vector<std::byte> pageable(kMost, std::byte{1});
  const DeviceMemory to(kBig), at(kMost);
  for (const std::size_t behind : {std::size_t{0}, 16 * kMiB, kBig})
    for (const std::size_t bytes : {4 * kKiB, 64 * kKiB, kMost})
      for (const char* kind : {"pageable", "pinned", "mapped", "download"}) {
        std::vector<double> seconds;
        for (int i = 0; i < 12; ++i) {
          if (behind > 0)  // 20 ms and more, which what is timed may cut in
            for (std::size_t queued = 0; queued < 2 * kBig; queued += behind)
              CHECK(cudaMemcpyAsync(to.p + queued % kBig, source.p + queued % kBig, behind,
                                    cudaMemcpyDefault, link.s));
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          const double begin = now();
          if (*kind == 'm')
            copy_words<<<8, 256, 0, small.s>>>(pinned.as<uint4>(), at.as<uint4>(), bytes / 16);
          else if (*kind == 'd')
            CHECK(cudaMemcpyAsync(pinned.p, at.p, bytes, cudaMemcpyDefault, small.s));
          else
            CHECK(cudaMemcpyAsync(at.p, kind[1] == 'a' ? pageable.data() : pinned.p, bytes,
                                  cudaMemcpyDefault, small.s));
          CHECK(cudaGetLastError());
          small.wait();
          if (i > 1) seconds.push_back(now() - begin);
          link.wait();
        }
        const std::string what = behind == 0 ? "nothing" : std::to_string(behind / kMiB) + "MiB";
        say("latency %zu %s behind %s: %.1f us, max %.1f us", bytes, kind, what.c_str(),
            1e6 * median(seconds), 1e6 * *std::max_element(seconds.begin(), seconds.end()));
      }
}

void pin_in(bool huge, std::size_t all, std::size_t piece) {
  const Pages pages(all, huge);
  const std::size_t before = free_bytes();
  const double begin = now();
  std::size_t done = 0;
  cudaError_t error = cudaSuccess;
  for (; done < all && error == cudaSuccess; done += error == cudaSuccess ? piece : 0)
    error = cudaHostRegister(pages.p + done, piece, cudaHostRegisterPortable);
  const double pinned = now() - begin, gone = taken(before), again = now();
  for (std::size_t at = 0; at < done; at += piece) cudaHostUnregister(pages.p + at);
  const double unpinned = now() - again;
  check(error, "cudaHostRegister");
  const double calls = static_cast<double>(all / piece);
  say("pin %s pages, %zu MiB a call: %.2f GB/s, %.0f us per call; unpin %.2f GB/s",
      huge ? "2M" : "4K", piece / kMiB, static_cast<double>(all) / pinned / 1e9,
      1e6 * pinned / calls, static_cast<double>(all) / unpinned / 1e9);
  say("pin-device-bytes %.1f GiB pinned: %.1f MiB of the device, %.3f %%",
      static_cast<double>(all) / kGiB, gone, 100 * gone * kMiB / static_cast<double>(all));
}

void pin() {
  constexpr std::size_t kAll = 8 * kGiB;
  for (const std::size_t piece : {64 * kMiB, 256 * kMiB, kGiB, kAll})
    for (const bool huge : {false, true}) pin_in(huge, kAll, piece);
  constexpr std::size_t kHalf = 256 * kMiB;
  const Stream stream;
  const LockedPages halves(2 * kHalf, kHalf);
  const std::byte* const middle = halves.pages.p + kHalf / 2;
  const DeviceMemory device(kHalf);
  const cudaError_t spanning =
      cudaMemcpyAsync(device.p, middle, kHalf, cudaMemcpyHostToDevice, stream.s);
  cudaGetLastError();
  if (spanning == cudaSuccess)
    say("pin-spanning-copy works: %.2f GB/s", copy_rate(stream, device.p, middle, kHalf, kHalf));
  else
    say("pin-spanning-copy %s", cudaGetErrorName(spanning));
  stream.wait();
}

/// Copies out of as much locked memory as the weights of a large model take, all over it.
void wide() {
  constexpr std::size_t kLock = 256 * kMiB, kPiece = 16 * kMiB;
  const std::size_t all = std::clamp(host_free_bytes() / 4 * 3, kLock, 64 * kGiB) / kLock * kLock;
  const Stream stream;
  const LockedPages host(all, kLock);
  const DeviceMemory device(kPiece);
  std::uint64_t turn = 0;  // an odd stride visits all pieces of a power of two, in no order
  const double seconds = timed(stream, 3, [&] {
    for (std::size_t i = 0; i < 256; ++i, turn += 2654435761u)
      CHECK(cudaMemcpyAsync(device.p, host.pages.p + turn % (all / kPiece) * kPiece, kPiece,
                            cudaMemcpyDefault, stream.s));
  });
  say("h2d-wide out of %.1f GiB: %.2f GB/s", static_cast<double>(all) / kGiB,
      256 * kPiece / seconds / 1e9);
}

void hostfunc() {
  constexpr std::size_t kPiece = 8 * kMiB;
  constexpr int kPieces = 100;
  const Stream stream;
  const PinnedMemory host(kPiece);
  const DeviceMemory device(kPiece);
  Event timing, plain(cudaEventDisableTiming);
  const auto run = [&](const std::function<void()>& between) {
    return timed(stream, 5, [&] {
      for (int i = 0; i < kPieces; ++i) {
        CHECK(cudaMemcpyAsync(device.p, host.p, kPiece, cudaMemcpyDefault, stream.s));
        between();
      }
    });
  };
  const double bare = run([] {});
  const auto tell = [&](const char* what, const std::function<void()>& between) {
    say("%s: %.2f us of idle stream each", what, 1e6 * (run(between) - bare) / kPieces);
  };
  const cudaHostFn_t nothing = [](void*) {};
  tell("hostfunc", [&] { CHECK(cudaLaunchHostFunc(stream.s, nothing, nullptr)); });
  tell("timing-event", [&] { CHECK(cudaEventRecord(timing.e, stream.s)); });
  tell("event", [&] { CHECK(cudaEventRecord(plain.e, stream.s)); });
  int* const counter = device.as<int>();
  constexpr int kLaunches = 1000;
  const double begin = now();
  for (int i = 0; i < kLaunches; ++i) add_one<<<1, 1, 0, stream.s>>>(counter);
  const double queued = now() - begin;
  stream.wait();
  say("launch: %.2f us to queue a kernel, %.2f us until it ends, in a row of %d",
      1e6 * queued / kLaunches, 1e6 * (now() - begin) / kLaunches, kLaunches);
}

void graphs() {
  const Stream stream, other;
  const DeviceMemory memory(kMiB);
  const PinnedMemory seen(4096);
  int* const counter = memory.as<int>();
  add_one<<<1, 1, 0, stream.s>>>(counter);
  stream.wait();
  const auto cost = [&](const char* what, int nodes, const std::function<void()>& work) {
    const std::size_t before = free_bytes();
    const Graph graph(stream, work);
    const double gone = taken(before);
    const double launch = timed(stream, 5, [&] { CHECK(cudaGraphLaunch(graph.exec, stream.s)); });
    say("%s %d nodes: captured in %.2f ms, instantiated in %.2f, a launch %.1f us, %.2f MiB of the "
        "device",
        what, nodes, 1e3 * graph.captured, 1e3 * graph.instantiated, 1e6 * launch, gone);
  };
  const auto kernels = [&](int count) {
    for (int i = 0; i < count; ++i) add_one<<<1, 1, 0, stream.s>>>(counter);
  };
  // The last has as many as the levels of a draft.
  for (const int nodes : {10, 100, 300, 1000, 12000})
    cost("graph-bytes", nodes, [&] { kernels(nodes); });
  Event mark(cudaEventDisableTiming);
  constexpr int kMarks = 129;
  const auto with_events = [&] {
    for (int i = 0; i < kMarks; ++i) {
      kernels(1);
      CHECK(cudaEventRecordWithFlags(mark.e, stream.s, cudaEventRecordExternal));
      CHECK(cudaStreamWaitEvent(stream.s, mark.e, cudaEventWaitExternal));
    }
  };
  cost("graph-events (none)", kMarks, [&] { kernels(kMarks); });
  cost("graph-events (records and waits)", 3 * kMarks, with_events);
  // Finds which of a graph's records a wait from outside binds to.
  const Graph graph(stream, with_events);
  CHECK(cudaMemsetAsync(counter, 0, sizeof(int), stream.s));
  CHECK(cudaGraphLaunch(graph.exec, stream.s));
  CHECK(cudaStreamWaitEvent(other.s, mark.e, 0));
  CHECK(cudaMemcpyAsync(seen.p, counter, sizeof(int), cudaMemcpyDefault, other.s));
  other.wait();
  int value = 0;
  std::memcpy(&value, seen.p, sizeof value);
  stream.wait();
  say("graph-order a wait behind the launch saw %d of %d records", value, kMarks);
}

void lazy_capture() {
  const Stream stream;
  const DeviceMemory memory(4096);
  int* const at = memory.as<int>();
  const std::size_t before = free_bytes();
  try {
    const Graph graph(stream, [&] { never_ran<<<1, 1, 0, stream.s>>>(at); });
    CHECK(cudaGraphLaunch(graph.exec, stream.s));
    stream.wait();
    say("lazy-capture of a kernel that never ran: works");
  } catch (const std::exception& e) {
    cudaGraph_t left = nullptr;
    cudaStreamEndCapture(stream.s, &left);
    cudaGetLastError();
    say("lazy-capture of a kernel that never ran: %s", e.what());
  }
  never_ran<<<1, 1, 0, stream.s>>>(at);
  stream.wait();
  say("lazy-capture its first run took %.2f MiB of the device", taken(before));
}

struct Blas : Owner {
  void* library = nullptr;
  cublasHandle_t handle = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                         const void*, const void*, cudaDataType, int, const void*, cudaDataType,
                         int, const void*, void*, cudaDataType, int, cublasComputeType_t,
                         cublasGemmAlgo_t) = nullptr;

  Blas() {
    const std::string name = "libcublas.so." + std::to_string(CUDART_VERSION / 1000);
    for (const std::string& place : {name, "/usr/local/cuda/lib64/" + name})
      if (library == nullptr) library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw std::runtime_error("no " + name + ": name its folder in LD_LIBRARY_PATH");
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr) throw std::runtime_error(std::string("cuBLAS has no ") + symbol);
    };
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(gemm, "cublasGemmEx");
    if (const cublasStatus_t status = create(&handle); status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("cublasCreate: status " + std::to_string(status));
  }
  ~Blas() {
    if (handle) destroy(handle);
  }

  /// y [n, m] f32 = x [n, k] w [m, k]^T, bf16, as the backend asks for it.
  void multiply(const Stream& stream, int m, int n, int k, const std::byte* w, const std::byte* x,
                float* y, int stride) {
    const float one = 1, none = 0;
    set_stream(handle, stream.s);
    const cublasStatus_t status =
        gemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, w, CUDA_R_16BF, k, x, CUDA_R_16BF, k,
             &none, y, CUDA_R_32F, stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("cublasGemmEx: status " + std::to_string(status));
  }
};

/// Normal numbers near 1: a product of zeros runs faster than one of weights.
__global__ void fill(std::uint16_t* out, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const std::uint32_t hash = static_cast<std::uint32_t>(i) * 2654435761u;
    out[i] = static_cast<std::uint16_t>(0x3c00u | (hash >> 16 & 0x837fu));
  }
}

void gemm() {
  struct Shape {
    const char* of;
    int m, k;
  };
  constexpr Shape kShapes[] = {
      {"70B q or o", 8192, 8192},     {"70B k or v", 1024, 8192}, {"70B gate or up", 28672, 8192},
      {"70B down", 8192, 28672},      {"70B head", 32000, 8192},  {"7B q, k, v or o", 4096, 4096},
      {"7B gate or up", 11008, 4096}, {"7B down", 4096, 11008},   {"7B head", 32000, 4096}};
  constexpr std::size_t kWeights = 2 * kGiB;  // taken in turns, as the L2 would hold a small matrix
  constexpr int kMostRows = 1024, kMost = 32000;
  Blas blas;
  const Stream stream;
  const DeviceMemory weights(kWeights), x(std::size_t{kMostRows} * 28672 * 2),
      y(std::size_t{kMostRows} * kMost * 4);
  for (const DeviceMemory* memory : {&weights, &x})
    fill<<<1024, 256, 0, stream.s>>>(
        memory->as<std::uint16_t>(),
        (memory == &weights ? kWeights : std::size_t{kMostRows} * 28672 * 2) / 2);
  CHECK(cudaGetLastError());
  for (const Shape& shape : kShapes)
    for (const int rows : {1, 2, 8, 16, 32, 64, 128, 256, 512, 768, 1024}) {
      const std::size_t bytes =
          std::size_t{2} * static_cast<std::size_t>(shape.m) * static_cast<std::size_t>(shape.k);
      const std::size_t copies = std::min<std::size_t>(kWeights / bytes, 8);
      std::size_t turn = 0;
      const auto product = [&] {
        blas.multiply(stream, shape.m, rows, shape.k, weights.p + turn++ % copies * bytes, x.p,
                      y.as<float>(), shape.m);
      };
      const double seconds = timed(stream, 15, product);
      const double flop = 2.0 * shape.m * shape.k * rows;
      say("gemm %s [%d x %d], %d rows: %.1f us, %.1f TFLOP/s, weights at %.0f GB/s", shape.of,
          shape.m, shape.k, rows, 1e6 * seconds, flop / seconds / 1e12,
          static_cast<double>(bytes) / seconds / 1e9);
    }
  for (const int column : {0, 1, 4, 128}) {
    const auto product = [&] {
      blas.multiply(stream, 16000, 768, 8192, weights.p, x.p, y.as<float>() + column, kMost);
    };
    say("gemm-c-offset +%d: %.3f ms", column, 1e3 * timed(stream, 9, product));
  }
}

/// Each in a process of its own (by its name), as what has been loaded stays.
template <int kMebibytes>
void filled_card() {
  constexpr std::size_t kLeft = kMebibytes * kMiB;
  const Stream stream;
  const std::size_t free = free_bytes();
  if (free < kLeft + kGiB) throw std::runtime_error("too little is free");
  const DeviceMemory filling((free - kLeft) / (2 * kMiB) * (2 * kMiB));
  int* const at = filling.as<int>();
  const auto attempt = [&](const char* what, const std::function<void()>& work) {
    const std::size_t before = free_bytes();
    std::string how = "works";
    try {
      work();
    } catch (const std::exception& e) {
      how = e.what();
    }
    say("filled-card %zu MiB left, %s: %s; free %.0f MiB, then %.0f", kLeft / kMiB, what,
        how.c_str(), mib(static_cast<double>(before)), mib_free());
  };
  attempt("a kernel", [&] {
    ran_first_on_a_full_card<<<1, 1, 0, stream.s>>>(at);
    CHECK(cudaGetLastError());
    stream.wait();
  });
  attempt("a graph of 300 kernels", [&] {
    const Graph graph(stream, [&] {
      for (int i = 0; i < 300; ++i) add_one<<<1, 1, 0, stream.s>>>(at);
    });
    CHECK(cudaGraphLaunch(graph.exec, stream.s));
    stream.wait();
  });
  attempt("cuBLAS and a product", [&] {
    Blas blas;
    blas.multiply(stream, 4096, 64, 4096, filling.p, filling.p + 64 * kMiB,
                  reinterpret_cast<float*>(filling.p + 128 * kMiB), 4096);
    stream.wait();
  });
  attempt("8 GiB of the host pinned", [&] {
    const Pages pages(8 * kGiB, false);
    const cudaError_t error = cudaHostRegister(pages.p, pages.bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) cudaHostUnregister(pages.p);
    check(error, "cudaHostRegister");
  });
}

struct Probe {
  const char* name;
  void (*run)();
};
// Costs of a first use come before others have used it; the slow ones come last.
constexpr Probe kProbes[] = {{"machine", machine},
                             {"lazy-capture", lazy_capture},
                             {"malloc", malloc_granularity},
                             {"rounding", rounding},
                             {"h2d", h2d},
                             {"offset", h2d_offset},
                             {"hostfunc", hostfunc},
                             {"graphs", graphs},
                             {"latency", latency},
                             {"gemm", gemm},
                             {"pin", pin},
                             {"wide", wide},
                             {"chosen-gpu", chosen_gpu},
                             {"filled-card-64", filled_card<64>},
                             {"filled-card-256", filled_card<256>},
                             {"filled-card-512", filled_card<512>},
                             {"filled-card-1024", filled_card<1024>}};

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> asked(words + 1, words + count);
  std::string all;
  for (const Probe& probe : kProbes) all.append(" ").append(probe.name);
  for (const std::string& name : asked)
    if ((all + " ").find(" " + name + " ") == std::string::npos) {
      std::fprintf(stderr, "gpu_probe: no probe '%s'; there are:%s\n", name.c_str(), all.c_str());
      return 2;
    }
  int failed = 0;
  for (const Probe& probe : kProbes) {
    if (!asked.empty() && std::find(asked.begin(), asked.end(), probe.name) == asked.end())
      continue;
    const double begin = now();
    try {
      probe.run();
      say("%s: done in %.1f s", probe.name, now() - begin);
    } catch (const std::exception& e) {
      ++failed;
      say("%s: FAILED: %s", probe.name, e.what());
    }
  }
  return failed > 0 ? 1 : 0;
}
