#include "kernels/cuda/cublas.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "kernels/cuda/check.h"

namespace canopy::cuda {

struct Cublas::Library {
  void* handle = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  // The one of C; the header overloads it for C++.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                         const void* alpha, const void* a, cudaDataType, int lda, const void* b,
                         cudaDataType, int ldb, const void* beta, void* c, cudaDataType, int ldc,
                         cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  decltype(&cublasGetStatusString) describe = nullptr;

  Library() {
    const std::string name = "libcublas.so." + std::to_string(CUDART_VERSION / 1000);
    const std::vector<std::string> places{name, "/usr/local/cuda/lib64/" + name};
    std::string tried;
    for (const std::string& place : places) {
      if ((handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
      tried += "\n  " + std::string(dlerror());
    }
    if (handle == nullptr)
      throw Error("cannot load cuBLAS, which every matrix product on a GPU needs; install CUDA " +
                  std::to_string(CUDART_VERSION / 1000) + " or name its folder in " +
                  "LD_LIBRARY_PATH, or do without the GPU (--device cpu):" + tried);
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(set_workspace, "cublasSetWorkspace_v2");
    find(gemm, "cublasGemmEx");
    find(describe, "cublasGetStatusString");
  }
  ~Library() { dlclose(handle); }

  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) throw Error(std::string("cuBLAS has no ") + name);
  }
  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error(std::string("cuBLAS: ") + what + ": " + describe(status));
  }
};

Cublas::Cublas(std::byte* workspace)
    : library_(std::make_unique<Library>()), workspace_(workspace) {
  library_->check(library_->create(&handle_), "starting");
}

Cublas::~Cublas() { library_->destroy(handle_); }

void Cublas::multiply(cudaStream_t stream, const MatrixProduct& p) {
  const Library& library = *library_;
  library.check(library.set_stream(handle_, stream), "choosing a stream");
  // Choosing a stream puts the library's own workspace back.
  library.check(library.set_workspace(handle_, workspace_, kWorkspaceBytes),
                "setting the workspace");
  const cudaDataType_t type = p.dtype == DType::kF32   ? CUDA_R_32F
                              : p.dtype == DType::kF16 ? CUDA_R_16F
                                                       : CUDA_R_16BF;
  const float one = 1.0f, keep = p.accumulate ? 1.0f : 0.0f;
  // Row-major y = x w^T is column-major y^T = w x^T: w [m, k] by rows is [k, m] by columns.
  library.check(
      library.gemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(p.m), static_cast<int>(p.n),
                   static_cast<int>(p.k), &one, p.w, type, static_cast<int>(p.k), p.x, type,
                   static_cast<int>(p.k), &keep, p.y, CUDA_R_32F, static_cast<int>(p.stride),
                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "a matrix product");
}

}  // namespace canopy::cuda
