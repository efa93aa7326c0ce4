#pragma once
// Form of the kernels of this folder.
//
// A kernel is a small struct of arguments. Its call operator says what one block of threads does,
// as a row of steps; between two steps all threads meet:
//
// clang-format off
//   struct Normalize {
//     float* row; int columns;
//     template <class Block> CANOPY_KERNEL void operator()(Block& block) const {
//       auto mine = block.template each<float>();           // one per thread, kept between steps
//       block.step([&](int t) {
//         for (int k = t; k < columns; k += block.threads()) mine[t] += row[k];
//       });
//       const float sum = block.sum(mine);                   // the same in every thread
//       block.step([&](int t) {
//         for (int k = t; k < columns; k += block.threads()) row[k] /= sum;
//       });
//     }
//   };
// clang-format on
//
// On a GPU the block is CudaBlock (launch.cuh): a step is the body and a barrier. Everywhere else
// it is a block whose threads take turns (tests/kernels/emulated_cuda.h), so that every kernel is
// held against plain loops on machines without a GPU, index by index.
//
// What a Block has:
//   index()                which block of the grid this is
//   threads()              threads of a block: a multiple of 32
//   step(body)             body(t) for each thread t, then a barrier
//   each<T>()              a T per thread, first T{}; x[t] inside a step
//   shared<T>(n)           n values of memory that the block shares, as first found: not zeroed
//   sum(x), most(x)        over all threads of an each<T>, the same in every thread
//   lanes_sum<n>(x)        over each n threads that follow one another (n divides 32), left in all
//   lanes_most<n>(x)       of them; sums add what is n / 2 threads apart first, then n / 4, ...
//   uniform(value)         reads a shared value between steps, for all threads alike
//   add(to, n)             atomic, integers only: their sum does not depend on the order. Of a
//                          SharedSum n is below 2^51; of a count it returns what was there
// Rules: what stands between steps runs in every thread alike, so it writes nothing and reads
// shared memory through uniform() alone; loops around steps go round equally often in all threads.
#include <math.h>  // sqrtf and its like by the names that nvcc and g++ share

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"
#include "src/base/formats/weight_format.h"

#define CANOPY_KERNEL CANOPY_HOST_DEVICE
#if defined(__CUDA_ARCH__)
#define CANOPY_UNROLL _Pragma("unroll")
#define CANOPY_UNROLL_BY_4 _Pragma("unroll 4")
#else
#define CANOPY_UNROLL
#define CANOPY_UNROLL_BY_4
#endif

namespace canopy::cuda {

/// Number of blocks, of threads in each, and the bytes of memory that each shares.
struct Grid {
  std::int64_t blocks = 0;
  int threads = 32;
  std::size_t shared_bytes = 0;
};

/// Threads that a block of a kernel may have: the launch of more is refused. Registers are given
/// out for as many.
template <class Kernel>
constexpr int most_threads() {
  if constexpr (requires { Kernel::kThreads; })
    return Kernel::kThreads;
  else
    return 256;
}

/// A sum of 64 bits in shared memory, in two halves: a GPU adds 32 bits there at once, and 64 in a
/// loop of attempts.
struct SharedSum {
  std::uint32_t low, high;
  CANOPY_KERNEL std::uint64_t value() const { return std::uint64_t{high} << 32 | low; }
};

/// Error that a kernel found in its data. In memory that the host sees: the next synchronize()
/// throws it. Of several, any.
struct Fault {
  enum Kind : int { kNone, kTokenId, kCacheRow, kDeltaState };
  std::int64_t value = 0, limit = 0;
  int kind = kNone;
};

CANOPY_KERNEL inline void report(volatile Fault* fault, Fault::Kind kind, std::int64_t value,
                                 std::int64_t limit) {
  fault->value = value;
  fault->limit = limit;
  fault->kind = kind;
}

template <class T>
CANOPY_KERNEL T ceil_div(T value, T by) {
  return (value + by - 1) / by;
}
/// Threads that a row of `columns` keeps busy, in whole warps.
inline int threads_for(std::int64_t columns, int most) {
  const auto wanted = static_cast<int>(columns < most ? columns : most);
  return ceil_div(wanted > 0 ? wanted : 1, 32) * 32;
}

/// a * b, rounded: nvcc would merge a plain product with the sum that it is a term of.
CANOPY_KERNEL inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// cap tanh(v / cap). NaN stays NaN.
CANOPY_KERNEL inline float capped(float v, float cap) { return cap * tanhf(v / cap); }

/// A T at an address that is a multiple of its size. Sixteen bytes are moved as one vector: nvcc
/// forgets a declared alignment where the value is copied once more.
template <class T>
CANOPY_KERNEL T load(const std::byte* from) {
  T value;
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == sizeof(uint4)) {
    const uint4 vector = *reinterpret_cast<const uint4*>(from);
    memcpy(&value, &vector, sizeof value);
    return value;
  }
#endif
  memcpy(&value, __builtin_assume_aligned(from, sizeof(T)), sizeof value);
  return value;
}
template <class T>
CANOPY_KERNEL void store(std::byte* to, T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == sizeof(uint4)) {
    uint4 vector;
    memcpy(&vector, &value, sizeof vector);
    *reinterpret_cast<uint4*>(to) = vector;
    return;
  }
#endif
  memcpy(__builtin_assume_aligned(to, sizeof(T)), &value, sizeof value);
}

/// Four words of global memory, at a multiple of 16 bytes, as one vector. The code says so to the
/// compiler: it makes four stores of what was computed in four registers.
CANOPY_KERNEL inline void store_words(std::byte* to, std::uint32_t a, std::uint32_t b,
                                      std::uint32_t c, std::uint32_t d) {
#if defined(__CUDA_ARCH__)
  __stwb(reinterpret_cast<uint4*>(to), make_uint4(a, b, c, d));
#else
  const std::uint32_t words[] = {a, b, c, d};
  memcpy(to, words, sizeof words);
#endif
}

/// Element i of an array of a plain format, rounded to nearest even.
template <class Format>
CANOPY_KERNEL void store_float(std::byte* array, std::int64_t i, float value) {
  store(array + Format::kBlockBytes * i, Format::encode(value));
}
/// The same of an activation. F16 saturates instead of overflowing: a single large one must not
/// turn a row into NaN.
template <class Format>
CANOPY_KERNEL void store_within(std::byte* array, std::int64_t i, float value) {
  if constexpr (Format::kDType == DType::kF16) value = within_f16(value);
  store_float<Format>(array, i, value);
}

}  // namespace canopy::cuda
