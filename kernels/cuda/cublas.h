#pragma once
#include <cublas_v2.h>

#include <cstddef>

#include "kernels/cuda/matrix_product.h"

namespace canopy::cuda {

/// cuBLAS, loaded when the first GPU is used: a program that runs on the CPU neither needs the
/// library nor pays for its half gigabyte of mappings.
class Cublas {
 public:
  /// `workspace` is device memory of kWorkspaceBytes. Throws Error if the library is not found,
  /// with the names that were tried.
  explicit Cublas(std::byte* workspace);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  /// One caller at a time, whose calls follow one another on the device.
  void multiply(cudaStream_t stream, const MatrixProduct& product);

 private:
  struct Library;
  cublasHandle_t handle_ = nullptr;
  std::byte* workspace_;
};

}  // namespace canopy::cuda
