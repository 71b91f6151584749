// The library with everything that needs CUDA, libcrimp_cuda.so: loaded when the application has a CUDA context, never
// before.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "backend/cuda_driver.hpp"
#include "memory/memory_resource.hpp"

struct CUstream_st;

namespace crimp {

class Backend;
class Codec;
class DeviceCodec;
class TensorSteps;

// What the plugin offers. Its one exported function, crimp_cuda_plugin, returns it to a library of the same version.
struct DevicePlugin {
  // Why its kernels, and all else here that works with the CUDA runtime, cannot be used on a device; empty: they can.
  // No context is needed.
  std::string (*why_not)(int device);
  // device_bodies: MPI is CUDA-aware, bodies stay in device memory. Throws Error{device_failed}, Error{out_of_memory}.
  std::unique_ptr<Backend> (*make_backend)(int device, bool device_bodies);
  MemoryResource& (*memory)(int device);
  MemoryResource& (*pinned)();  // read and write are plain copies
  // Waits for what the caller has enqueued (legacy default stream, and blocking streams with it), or for all that runs
  // on the device.
  void (*synchronize)(int device, bool everything);
  // For measurements: a codec's kernels (null: none), steps of whole tensors on a stream, the seconds by the device's
  // clock that what `work` enqueues takes (it is given the same stream every time), and a copy within device memory to
  // be enqueued.
  std::unique_ptr<DeviceCodec> (*make_codec)(const Codec&);
  std::unique_ptr<TensorSteps> (*make_tensor_steps)(int device, CUstream_st*);
  double (*timed)(int device, const std::function<void(CUstream_st*)>& work);
  void (*copy)(void* to, const void* from, std::size_t bytes, CUstream_st*);
};
// null, and *why holds a text, where `build` (build_id()) is not the plugin's: the interface is that of one build.
using DevicePluginEntry = const DevicePlugin* (*)(const char* build, const char** why);

// CRIMP_CUDA_PLUGIN: "auto" (beside this library), "off", or a file. Before the first use.
void set_device_plugin(const std::string& setting);

// Null where no context exists yet, the plugin is off, or it could not be loaded, which is logged once.
const DevicePlugin* device_plugin() noexcept;

// Whether DeviceAccess reaches values in device memory: by the plugin, or, where it should be there and is not, by the
// driver. False where the application has not initialised CUDA, and where the plugin is off.
bool reaches_device_memory() noexcept;

// Where a pointer leads; plain while the application has not initialised CUDA. Under 1 us, and a load and a branch in
// programs without CUDA (but for the 11 ns of cuda_driver()).
PointerAttributes pointer_attributes(const void*) noexcept;

}  // namespace crimp
