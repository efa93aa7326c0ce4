#pragma once
// A block of threads on the GPU: what kernels/cuda/block.h promises, and how a kernel is launched.
#include "kernels/cuda/block.h"
#include "kernels/cuda/check.h"

namespace canopy::cuda {

class CudaBlock {
 public:
  template <class T>
  class Each {
   public:
    __device__ T& operator[](int) { return value_; }

   private:
    T value_{};
  };

  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  template <class Body>
  __device__ void step(const Body& body) {
    body(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class T>
  __device__ Each<T> each() const {
    return {};
  }
  template <class T>
  __device__ T* shared(int count) {
    extern __shared__ __align__(16) unsigned char memory[];
    used_ = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    auto* const at = reinterpret_cast<T*>(memory + used_);
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    return at;
  }
  template <class T>
  __device__ T sum(Each<T>& x) const {
    return combine(x[0], [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T most(Each<T>& x) const {
    return combine(x[0], [](T a, T b) { return a < b ? b : a; });
  }
  template <int kLanes, class T>
  __device__ void lanes_sum(Each<T>& x) const {
    x[0] = combine_lanes<kLanes>(x[0], [](T a, T b) { return a + b; });
  }
  template <int kLanes, class T>
  __device__ void lanes_most(Each<T>& x) const {
    x[0] = combine_lanes<kLanes>(x[0], [](T a, T b) { return a < b ? b : a; });
  }
  template <class T>
  __device__ T uniform(T value) const {
    __syncthreads();  // all have read before anyone writes again
    return value;
  }
  __device__ std::uint32_t add(std::uint32_t* to, std::uint32_t n) const {
    return atomicAdd(to, n);
  }
  /// Threads of a warp that add to the same sum do it once, all together: most tokens of a row fall
  /// into few bins.
  __device__ void add(SharedSum* to, std::uint64_t n) const {
    constexpr int kLow = 24;  // bits, of which 32 terms fit 32 bits
    const unsigned same =
        __match_any_sync(__activemask(), reinterpret_cast<unsigned long long>(to));
    const unsigned low = __reduce_add_sync(same, static_cast<unsigned>(n) & ((1u << kLow) - 1));
    const unsigned high = __reduce_add_sync(same, static_cast<unsigned>(n >> kLow));
    if (static_cast<int>(threadIdx.x % 32) != __ffs(static_cast<int>(same)) - 1) return;
    const std::uint64_t all = (std::uint64_t{high} << kLow) + low;
    const auto below = static_cast<std::uint32_t>(all);
    const std::uint32_t before = atomicAdd(&to->low, below);
    const std::uint32_t carry = before + below < before ? 1 : 0;
    const std::uint32_t above = static_cast<std::uint32_t>(all >> 32) + carry;
    if (above != 0) atomicAdd(&to->high, above);
  }

 private:
  /// Its order is fixed, so that the same input has the same sum.
  template <int kLanes, class T, class Two>
  static __device__ T combine_lanes(T value, const Two& two) {
    static_assert(kLanes > 0 && 32 % kLanes == 0);
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
      value = two(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
  }
  template <class T, class Two>
  __device__ T combine(T value, const Two& two) const {
    __shared__ T of_warp[32];
    value = combine_lanes<32>(value, two);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    T all = of_warp[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) all = two(all, of_warp[warp]);
    __syncthreads();
    return all;
  }

  std::size_t used_ = 0;
};

template <class Kernel>
__global__ void __launch_bounds__(most_threads<Kernel>()) run(const Kernel kernel) {
  CudaBlock block;
  kernel(block);
}

template <class Kernel>
void launch(cudaStream_t stream, const Kernel& kernel, const Grid& grid) {
  if (grid.blocks == 0) return;
  constexpr std::size_t kWithoutAsking = 48u << 10;  // bytes; more must be asked for
  // ptxas makes one load of 16 bytes out of two of 8, also where the second comes after a branch:
  // that load must not end outside of the block's memory.
  constexpr std::size_t kLargestLoad = 16;
  const std::size_t shared = ceil_div(grid.shared_bytes, kLargestLoad) * kLargestLoad;
  if (shared > kWithoutAsking)
    check(cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)),
          "asking for shared memory");
  run<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), shared, stream>>>(
      kernel);
  check(cudaGetLastError(), "launching a kernel");
}

/// Loads a kernel on the current GPU, which its first launch would do.
template <class Kernel>
void load() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, run<Kernel>), "loading a kernel");
}

}  // namespace canopy::cuda
