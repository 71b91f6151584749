// The CUDA driver of this process, found at run time: nothing here needs CUDA to be installed, and nothing makes a
// context.
#pragma once
#include <cstdint>

namespace crimp {

// What libcuda.so.1 exports, as far as Crimp calls it. Handles are opaque; 0 is success.
struct CudaDriver {
  int (*get_count)(int* devices);
  int (*get_current)(void** context);
  int (*push_current)(void* context);
  int (*pop_current)(void** context);
  int (*primary_state)(int device, unsigned* flags, int* active);
  int (*primary_retain)(void** context, int device);
  int (*pointer_attributes)(unsigned count, const int* attributes, void** values, std::uint64_t pointer);
};

// Null until libcuda.so.1 is mapped. A call costs about 11 ns until then, and a load afterwards.
const CudaDriver* cuda_driver() noexcept;
// Whether the application uses CUDA: this thread has a context, or a device's primary one is active.
bool cuda_context_exists(const CudaDriver&) noexcept;

// Where a pointer leads. managed: the host and the device may both touch it.
struct PointerAttributes {
  enum Kind : std::uint8_t { plain, pinned, managed, device } kind = plain;
  int device_index = -1;  // of managed and device memory
  bool on_device() const { return kind == device || kind == managed; }
};
// One call of the driver (no context needed, no error of the runtime left behind).
PointerAttributes pointer_attributes(const CudaDriver&, const void*) noexcept;

}  // namespace crimp
