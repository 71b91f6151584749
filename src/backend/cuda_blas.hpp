// PowerSGD's two products by cuBLAS (codec/powersgd/powersgd.hpp), which is found at run time, as the driver is:
// nothing here needs it to be installed.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <string>

#include "codec/powersgd/powersgd.hpp"
#include "memory/memory_resource.hpp"

namespace crimp::cuda {

// What cuBLAS exports, as far as Crimp calls it. Handles are opaque; 0 is success.
struct Cublas {
  int (*create)(void** handle);
  int (*set_stream)(void* handle, cudaStream_t);
  int (*set_workspace)(void* handle, void* workspace, std::size_t bytes);
  int (*set_math_mode)(void* handle, int mode);
  int (*sgemm)(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a, int lda,
               const float* b, int ldb, const float* beta, float* c, int ldc);
};
// Versions that all of these functions are the same in, the newest first.
inline constexpr const char* kCublasFiles[] = {"libcublas.so.13", "libcublas.so.12"};
// What the program has loaded itself, else, where `load` is given, what can be loaded. Throws Error{device_failed} that
// says why there is none.
Cublas find_cublas(std::span<const char* const> files, bool load);

// On a stream of a device. Values and residual are multiplied one after the other and read once each, and no M is
// stored: a rank's own P and Q are summed anyway, so that any order of sums will do. Float32 throughout (no TF32), and
// the same bits in every call. Nothing is allocated once it is made.
class CublasProducts {
 public:
  // The stream is the caller's and outlives it. Throws Error{device_failed}, Error{out_of_memory}.
  CublasProducts(const Cublas&, int device, cudaStream_t);
  ~CublasProducts();
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;

  // Whether its extents are cuBLAS's: it counts in ints.
  static bool takes(const powersgd::Matrix&);
  // Enqueues the product of Step::project (left = M before) or Step::project_back (right = M^T left). 0 or cuBLAS's
  // status; what was to be written is then undefined.
  int enqueue(powersgd::Step, const powersgd::Tensor&) const;

 private:
  Cublas cublas_;
  int device_;
  void* handle_;
  Memory workspace_;
};

}  // namespace crimp::cuda
