#include "backend/cuda_blas.hpp"

#include <dlfcn.h>

#include <climits>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda_memory.hpp"
#include "core/error.hpp"

namespace crimp::cuda {
namespace {

constexpr int kPlain = 0, kTransposed = 1, kPedantic = 2;  // CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_PEDANTIC_MATH
constexpr std::size_t kWorkspace = 4 << 20;                // for sums that are cut along their length

void require(int status, const char* call) {
  if (status != 0)
    throw Error(ErrorCode::device_failed, std::string(call) + " failed with status " + std::to_string(status));
}

// To destroy a handle is to wait for the device, which would spoil another thread's capture: they are kept.
class Handles {
 public:
  void* take(const Cublas& cublas, int device) {
    {
      const std::lock_guard lock(mutex_);
      if (auto& kept = kept_[device]; !kept.empty()) {
        void* const handle = kept.back();
        kept.pop_back();
        return handle;
      }
    }
    void* handle = nullptr;
    require(cublas.create(&handle), "cublasCreate");
    return handle;
  }
  void give_back(int device, void* handle) noexcept try {
    const std::lock_guard lock(mutex_);
    kept_[device].push_back(handle);
  } catch (const std::bad_alloc&) {
  }
  static Handles& get() {
    static auto& all = *new Handles;
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<void*>> kept_;
};

}  // namespace

Cublas find_cublas(std::span<const char* const> files, bool load) {
  std::string why = "the program has not loaded cuBLAS";
  for (const int how : {RTLD_NOLOAD, 0})
    for (const char* file : files) {
      if (how == 0 && !load) continue;
      void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | how);
      if (!library) {
        if (const char* said = ::dlerror(); said && how == 0) why = said;
        continue;
      }
      Cublas found{};
      const auto get = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
        return function != nullptr;
      };
      if (get(found.create, "cublasCreate_v2") && get(found.set_stream, "cublasSetStream_v2") &&
          get(found.set_workspace, "cublasSetWorkspace_v2") && get(found.set_math_mode, "cublasSetMathMode") &&
          get(found.sgemm, "cublasSgemm_v2"))
        return found;
      why = std::string(file) + " lacks functions that Crimp calls";
    }
  throw Error(ErrorCode::device_failed, why);
}

CublasProducts::CublasProducts(const Cublas& cublas, int device, cudaStream_t stream)
    : cublas_(cublas), device_(device), workspace_(kWorkspace, device_memory(device)) {
  const ContextGuard here(device_);
  handle_ = Handles::get().take(cublas_, device_);
  try {
    require(cublas_.set_stream(handle_, stream), "cublasSetStream");  // forgets the workspace
    require(cublas_.set_workspace(handle_, workspace_.data(), workspace_.bytes()), "cublasSetWorkspace");
    require(cublas_.set_math_mode(handle_, kPedantic), "cublasSetMathMode");
  } catch (...) {
    Handles::get().give_back(device_, handle_);
    throw;
  }
}

CublasProducts::~CublasProducts() { Handles::get().give_back(device_, handle_); }

bool CublasProducts::takes(const powersgd::Matrix& m) { return m.rank && m.rows <= INT_MAX && m.cols <= INT_MAX; }

// To cuBLAS, which has columns where Crimp has rows, M is M^T.
int CublasProducts::enqueue(powersgd::Step step, const powersgd::Tensor& t) const {
  const powersgd::Matrix& m = t.matrix;
  const std::uint64_t whole = m.count / m.cols;
  const int rows = static_cast<int>(m.rows), cols = static_cast<int>(m.cols), rank = static_cast<int>(m.rank),
            rows_whole = static_cast<int>(whole), rest = static_cast<int>(m.count - whole * m.cols);
  const float zero = 0.0f, one = 1.0f;
  for (const float* x : {t.values, static_cast<const float*>(t.memory)}) {
    if (!x) continue;
    const float* const row = x + whole * m.cols;  // the last one, where it is short
    const float* const to = x == t.values ? &zero : &one;
    const auto multiply = [&](int op, int out, int inner, const float* a, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
      return cublas_.sgemm(handle_, op, kPlain, out, rank, inner, &one, a, cols, b, ldb, beta, c, ldc);
    };
    int status = 0;
    if (step == powersgd::Step::project) {
      status = multiply(kTransposed, rows_whole, cols, x, t.before, cols, to, t.left, rows);
      if (!status && rest) status = multiply(kTransposed, 1, rest, row, t.before, cols, to, t.left + whole, rows);
    } else {
      status = multiply(kPlain, cols, rows_whole, x, t.left, rows, to, t.right, cols);
      if (!status && rest) status = multiply(kPlain, rest, 1, row, t.left + whole, rows, &one, t.right, cols);
    }
    if (status) return status;
  }
  return 0;
}

}  // namespace crimp::cuda
