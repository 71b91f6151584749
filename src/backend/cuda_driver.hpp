// The CUDA driver of this process, found at run time: nothing here needs CUDA to be installed, and nothing makes a
// context.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp {

// What libcuda.so.1 exports, as far as Crimp calls it. Handles are opaque; 0 is success.
struct CudaDriver {
  int (*version)(int* version);
  int (*get_count)(int* devices);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*get_current)(void** context);
  int (*push_current)(void* context);
  int (*pop_current)(void** context);
  int (*synchronize)();
  int (*primary_state)(int device, unsigned* flags, int* active);
  int (*primary_retain)(void** context, int device);
  int (*pointer_attributes)(unsigned count, const int* attributes, void** values, std::uint64_t pointer);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*stream_synchronize)(void* stream);
  int (*copy)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);
  // Null in drivers that cannot capture graphs.
  int (*stream_is_capturing)(void* stream, int* status);
  int (*exchange_capture_mode)(int* mode);
};

// Null until libcuda.so.1 is mapped, and in the child of a process that had initialised it: there the driver is of no
// use. A call costs about 11 ns until then, and a load afterwards.
const CudaDriver* cuda_driver() noexcept;
// Whether the application has initialised it, which stays so. One call of the driver.
bool cuda_initialised(const CudaDriver&) noexcept;
// Whether a context is known: this thread has one, or a device's primary one is active. Others cannot be asked for but
// by pointers to what is in them. A call of the driver where the thread has one, else two and one for each device.
bool cuda_context_exists(const CudaDriver&) noexcept;
// From now on cuda_driver() is null in children. What says that CUDA is initialised does it as well, but a plugin has a
// driver of its own.
void leave_cuda_to_parent() noexcept;
// Of an active one, retained once and kept; null where it cannot be had.
void* primary_context(const CudaDriver&, int device) noexcept;

// Makes a context this thread's for as long as the object lives, and lets this thread call the driver while another one
// captures a graph. While it captures one itself, unless in relaxed mode, the driver refuses what waits, and the
// capture is void: a sum would be of values that were never computed, and no part of the graph.
class CudaContext {
 public:
  CudaContext(const CudaDriver&, void* context) noexcept;  // null: what the thread has stays
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  bool current() const { return current_; }  // else it could not be made so

 private:
  const CudaDriver& driver_;
  bool current_ = true, pushed_ = false;
  int capture_mode_;
};

// Where a pointer leads. managed: the host and the device may both touch it.
struct PointerAttributes {
  enum Kind : std::uint8_t { plain, pinned, managed, device } kind = plain;
  int device_index = -1;    // of managed and device memory
  void* foreign = nullptr;  // the context that the memory belongs to, where that is not the device's primary one
  bool on_device() const { return kind == device || kind == managed; }
};
// One call of the driver (no context needed, no error of the runtime left behind).
PointerAttributes pointer_attributes(const CudaDriver&, const void*) noexcept;

}  // namespace crimp
