#include "kernels/cuda/cublas.h"

#include <dlfcn.h>

#include <string>

#include "kernels/cuda/check.h"
#include "kernels/library_places.h"

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
  cublasStatus_t (*gemms)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                          const void* alpha, const void* a, cudaDataType, int lda,
                          long long stride_a, const void* b, cudaDataType, int ldb,
                          long long stride_b, const void* beta, void* c, cudaDataType, int ldc,
                          long long stride_c, int count, cublasComputeType_t,
                          cublasGemmAlgo_t) = nullptr;
  decltype(&cublasGetStatusString) describe = nullptr;

  /// The one that all use. It stays for as long as the program runs: it does not survive being
  /// closed and loaded again, as each engine would do.
  static const Library& loaded() {
    static const Library* const one = new Library;
    return *one;
  }

  Library() {
    constexpr int kMajor = CUDART_VERSION / 1000;
    const CudaLibrary library = load_cuda_library("cublas", "cublasLt", kMajor, library_hints());
    if (library.handle == nullptr)
      throw Error(
          "cannot load cuBLAS, which every matrix product on a GPU needs; install CUDA 12 or 13 or "
          "pip's nvidia-cublas, or name its folder in LD_LIBRARY_PATH, or do without the GPU "
          "(--device cpu); tried:" +
          library.tried);
    handle = library.handle;
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(set_workspace, "cublasSetWorkspace_v2");
    find(gemm, "cublasGemmEx");
    find(gemms, "cublasGemmStridedBatchedEx");
    find(describe, "cublasGetStatusString");
  }

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

static cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      throw Error(std::string("cuBLAS: no products of ") + name(dtype));
  }
}

Cublas::Cublas(std::byte* workspace) : workspace_(workspace) {
  const Library& library = Library::loaded();
  library.check(library.create(&handle_), "starting");
}

Cublas::~Cublas() { Library::loaded().destroy(handle_); }

void Cublas::multiply(cudaStream_t stream, const MatrixProduct& p) {
  const Library& library = Library::loaded();
  library.check(library.set_stream(handle_, stream), "choosing a stream");
  // Choosing a stream puts the library's own workspace back.
  library.check(library.set_workspace(handle_, workspace_, kWorkspaceBytes),
                "setting the workspace");
  const cudaDataType_t type = cuda_type(p.dtype);
  const float factor = p.factor, keep = p.accumulate ? 1.0f : 0.0f;
  // Row-major y = x w^T is column-major y^T = w x^T: w [m, k] by rows is [k, m] by columns.
  const auto n = static_cast<int>(p.n), m = static_cast<int>(p.m), k = static_cast<int>(p.k);
  const auto stride = static_cast<int>(p.stride);
  const cublasOperation_t of_w = p.by_columns ? CUBLAS_OP_N : CUBLAS_OP_T;
  const int row_of_w = p.by_columns ? m : k;
  if (p.count == 1)
    return library.check(
        library.gemm(handle_, of_w, CUBLAS_OP_N, m, n, k, &factor, p.w, type, row_of_w, p.x, type,
                     k, &keep, p.y, CUDA_R_32F, stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "a matrix product");
  library.check(
      library.gemms(handle_, of_w, CUBLAS_OP_N, m, n, k, &factor, p.w, type, row_of_w, p.m * p.k,
                    p.x, type, k, p.n * p.k, &keep, p.y, CUDA_R_32F, stride, p.n * p.stride,
                    static_cast<int>(p.count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "matrix products");
}

}  // namespace canopy::cuda
