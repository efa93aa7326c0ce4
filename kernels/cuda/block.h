#pragma once
// How the kernels of this folder are written.
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
//   lanes_sum(x)           over the 32 lanes of each warp, left in all of them
//   uniform(value)         reads a shared value between steps, for all threads alike
//   add(to, n)             atomic, integers only: their sum does not depend on the order
// Rules: what stands between steps runs in every thread alike, so it writes nothing and reads
// shared memory through uniform() alone; loops around steps go round equally often in all threads.
#include <math.h>  // sqrtf and its like by the names that nvcc and g++ share

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"
#include "src/base/half.h"

#if defined(__CUDACC__)
#define CANOPY_KERNEL __host__ __device__
#else
#define CANOPY_KERNEL
#endif
#if defined(__CUDA_ARCH__)
#define CANOPY_UNROLL _Pragma("unroll")
#else
#define CANOPY_UNROLL
#endif

namespace canopy::cuda {

/// How many blocks of how many threads, and the bytes of memory that each shares.
struct Grid {
  std::int64_t blocks = 0;
  int threads = 32;
  std::size_t shared_bytes = 0;
};

/// What a kernel found wrong with its data. In memory that the host sees: the next synchronize()
/// throws it. Of several, any.
struct Fault {
  enum Kind : int { kNone, kTokenId, kCacheRow };
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
/// As many threads as a row of `columns` keeps busy.
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

/// A T at an address that is a multiple of its size.
template <class T>
CANOPY_KERNEL T load(const std::byte* from) {
  T value;
  memcpy(&value, __builtin_assume_aligned(from, sizeof(T)), sizeof value);
  return value;
}
template <class T>
CANOPY_KERNEL void store(std::byte* to, T value) {
  memcpy(__builtin_assume_aligned(to, sizeof(T)), &value, sizeof value);
}

/// Value i of 32 four-bit ones: byte i % 16, its low half for i < 16.
CANOPY_KERNEL inline int nibble(const std::byte* block, int i) {
  const int both = static_cast<int>(block[i % 16]);
  return i < 16 ? both & 15 : both >> 4;
}

/// Bytes of a block of 32 columns.
CANOPY_KERNEL inline int block_bytes(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return 34;
    case DType::kQ4_0:
      return 18;
    case DType::kQ4_1:
      return 20;
    case DType::kF32:
      return 128;
    default:  // BF16, F16
      return 64;
  }
}
CANOPY_KERNEL inline std::int64_t bytes_of_row(DType dtype, std::int64_t columns) {
  return columns / 32 * block_bytes(dtype) + columns % 32 * (block_bytes(dtype) / 32);
}

/// Column k of a row of weights: as dequantize_row() has it (src/base/weight_format.h).
CANOPY_KERNEL inline float weight_at(DType dtype, const std::byte* row, std::int64_t k) {
  const std::byte* const block = row + k / 32 * block_bytes(dtype);
  const auto i = static_cast<int>(k % 32);
  switch (dtype) {
    case DType::kF32:
      return load<float>(row + 4 * k);
    case DType::kBF16:
      return f32_from_bf16(load<std::uint16_t>(row + 2 * k));
    case DType::kF16:
      return f32_from_f16(load<std::uint16_t>(row + 2 * k));
    case DType::kQ8_0:
      return f32_from_f16(load<std::uint16_t>(block)) *
             static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
    case DType::kQ4_0:
      return f32_from_f16(load<std::uint16_t>(block)) *
             static_cast<float>(nibble(block + 2, i) - 8);
    case DType::kQ4_1:
      return f32_from_f16(load<std::uint16_t>(block)) * static_cast<float>(nibble(block + 4, i)) +
             f32_from_f16(load<std::uint16_t>(block + 2));
    default:
      return 0.0f;  // ops.cc lets no other dtype pass
  }
}

/// Element i of an array of `dtype`, rounded to nearest even.
CANOPY_KERNEL inline void store_float(DType dtype, std::byte* array, std::int64_t i, float value) {
  switch (dtype) {
    case DType::kBF16:
      return store(array + 2 * i, bf16_from_f32(value));
    case DType::kF16:
      return store(array + 2 * i, f16_from_f32(value));
    default:
      return store(array + 4 * i, value);
  }
}

}  // namespace canopy::cuda
