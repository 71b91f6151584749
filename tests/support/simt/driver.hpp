// What the stand-in's libcuda.so.1 (tests/support/cuda_driver.cpp) and libcublas.so.13 (tests/support/cublas.cpp) ask
// its runtime for, and the shadow.
#pragma once
#include <cstddef>

namespace simt {

bool in_device_memory(const void*);
void count_call(const char* name);  // for calls()
int enter_call(const char* name);   // likewise; what fail() has planned for it, else 0
int devices();
int driver_version_now();
int compute_capability();           // 90
void* primary_context(int device);  // makes it
bool context_active(int device);    // of the primary one
void* make_context(int device);     // another one, current in this thread from now on
void push_context(void*);
void* pop_context();
void* current_context();  // of this thread; null: none
struct Address {
  enum Kind { plain, pinned, managed, device } kind = plain;
  int index = -1;
  void* context = nullptr;
};
Address address_of(const void*);
// In the current context; errors are the runtime's, which has the driver's numbers.
int copy_by_driver(void* to, const void* from, std::size_t, void* stream);
void* stream_by_driver(unsigned flags);
void destroy_by_driver(void* stream);
int wait_by_driver(void* stream);
int wait_for_context_by_driver();
int capture_of_legacy();
int exchange_capture_mode(int* mode);

}  // namespace simt
