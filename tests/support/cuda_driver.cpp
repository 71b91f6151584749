// The driver's part of the stand-in (tests/support/simt): what Crimp looks for in libcuda.so.1. A primary context
// exists when the program has asked the runtime for something that needs one, or retained it, as with the real one; a
// thread has a current context when it has done so itself.
#include <cuda_runtime.h>

#include <cstdint>

#include "simt/driver.hpp"

namespace {

bool initialised = false;

bool running() {
  for (int device = 0; !initialised && device < simt::devices(); ++device) initialised = simt::context_active(device);
  return initialised;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  initialised = true;
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = simt::driver_version_now();
  return 0;
}
int cuDeviceGetCount(int* count) {
  simt::count_call("cuDeviceGetCount");
  *count = simt::devices();
  return running() ? 0 : 3;  // not initialized
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != 75 && attribute != 76) return 1;
  *value = attribute == 75 ? simt::compute_capability() / 10 : simt::compute_capability() % 10;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  simt::count_call("cuCtxGetCurrent");
  *context = simt::current_context();
  return running() ? 0 : 3;
}
int cuCtxPushCurrent_v2(void* context) { return simt::push_context(context), 0; }
int cuCtxPopCurrent_v2(void** context) { return (*context = simt::pop_context()) ? 0 : 201; }
int cuCtxSynchronize() { return simt::wait_for_context_by_driver(); }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active) {
  simt::count_call("cuDevicePrimaryCtxGetState");
  *flags = 0;
  *is_active = simt::context_active(device);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = simt::primary_context(device);
  return 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  *stream = simt::stream_by_driver(flags);
  return 0;
}
int cuStreamDestroy_v2(void* stream) { return simt::destroy_by_driver(stream), 0; }
int cuStreamSynchronize(void* stream) { return simt::wait_by_driver(stream); }
int cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return simt::capture_of_legacy();
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return simt::exchange_capture_mode(mode); }
int cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  simt::count_call("cuMemcpyAsync");
  return simt::copy_by_driver(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, stream);
}
int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, std::uint64_t pointer) {
  simt::count_call("cuPointerGetAttributes");
  using simt::Address;
  const Address found = simt::address_of(reinterpret_cast<const void*>(pointer));
  const bool on_device = found.kind == Address::device || found.kind == Address::managed;
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case 1: *static_cast<void**>(values[i]) = found.context; break;
      case 2: *static_cast<unsigned*>(values[i]) = on_device ? 2 : found.kind == Address::pinned; break;
      case 8: *static_cast<unsigned*>(values[i]) = found.kind == Address::managed; break;
      case 9: *static_cast<int*>(values[i]) = found.kind == Address::plain ? -2 : found.index; break;
    }
  return 0;
}
}
