#pragma once
#include <cuda_runtime.h>

#include <string>

#include "src/base/error.h"

namespace canopy::cuda {

/// Throws Error unless the call succeeded; `what` was being done.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that was reported is not reported again by the next call
  throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status) + " (" +
              cudaGetErrorName(status) + ")");
}

}  // namespace canopy::cuda
