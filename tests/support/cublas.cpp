// cuBLAS's part of the stand-in (tests/support/simt): libcublas.so.13 with the functions that Crimp calls. Its sums are
// taken from the last element to the first, so that they have other bits than Crimp's. Reported: a product in other
// than pedantic float32, or without a workspace of the caller's, for which cuBLAS would allocate one.
#include <cuda_runtime.h>

#include <memory>

#include "simt/driver.hpp"

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  int math_mode = 0;
};
constexpr int kInvalidValue = 7, kExecutionFailed = 13;

// Column by column, as BLAS has matrices.
struct Product {
  bool transposed;
  int m, n, k;
  float alpha, beta;
  const float *a, *b;
  float* c;
  std::size_t lda, ldb, ldc;

  void run() const {
    const simt::Reveal reveal;
    for (std::size_t col = 0; col < static_cast<std::size_t>(n); ++col)
      for (std::size_t row = 0; row < static_cast<std::size_t>(m); ++row) {
        float sum = 0;
        for (std::size_t i = static_cast<std::size_t>(k); i-- > 0;)
          sum += (transposed ? a[i + row * lda] : a[row + i * lda]) * b[i + col * ldb];
        float& to = c[row + col * ldc];
        to = alpha * sum + (beta == 0 ? 0 : beta * to);
      }
  }
};

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  if (const int error = simt::enter_call("cublasCreate")) return error;
  *handle = new Handle;
  return 0;
}
int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  *static_cast<Handle*>(handle) = {stream, nullptr, 0, static_cast<Handle*>(handle)->math_mode};
  return simt::enter_call("cublasSetStream");
}
int cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t bytes) {
  if (!simt::in_device_memory(workspace)) return kInvalidValue;
  static_cast<Handle*>(handle)->workspace = workspace;
  static_cast<Handle*>(handle)->workspace_bytes = bytes;
  return simt::enter_call("cublasSetWorkspace");
}
int cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->math_mode = mode;
  return simt::enter_call("cublasSetMathMode");
}
int cublasSgemm_v2(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a, int lda,
                   const float* b, int ldb, const float* beta, float* c, int ldc) {
  if (const int error = simt::enter_call("cublasSgemm")) return error;
  const Handle& h = *static_cast<Handle*>(handle);
  if (h.math_mode != 2) simt::report("cublasSgemm in another mode than CUBLAS_PEDANTIC_MATH");
  if (!h.workspace) simt::report("cublasSgemm without a workspace of the caller's");
  if (m < 0 || n < 0 || k < 0 || op_b != 0 || lda < (op_a ? k : m) || ldb < k || ldc < m) return kInvalidValue;
  auto product =
      std::make_unique<Product>(Product{op_a != 0, m, n, k, *alpha, *beta, a, b, c, static_cast<std::size_t>(lda),
                                        static_cast<std::size_t>(ldb), static_cast<std::size_t>(ldc)});
  const cudaError_t error = cudaLaunchHostFunc(
      h.stream, [](void* p) { std::unique_ptr<Product>(static_cast<Product*>(p))->run(); }, product.get());
  if (error != cudaSuccess) return kExecutionFailed;
  product.release();
  return 0;
}
}
