// Runs CUDA kernels on the host, a fiber per lane, and looks for what a GPU would not tell.
//
// Blocks run one after another; in programs with a shadow (shadow.hpp) what two of them touch is compared. A lane runs
// until it synchronises; which lane runs next is drawn from a seed, so that a missing barrier shows as a result that
// depends on the seed. Reported, with the kernel's name, block, lane and line, and ending the launch with an error as
// on a GPU: barriers that not all lanes of a block reach (or at different lines), warp operations that lanes of their
// mask miss, that read a lane outside it or that are called by one outside it, faulting addresses (every allocation
// ends at a page that cannot be touched), writes behind an allocation, launches with pointers to plain host memory or
// with more shared memory than was asked for. Shared and new device memory hold a pattern drawn from the seed. Device
// memory can only be touched while a kernel or a copy runs: host code that does it gets a message and SIGSEGV.
//
// Streams, events and memory belong to a context, a thread has none before it makes or uses one, and while a stream is
// captured into a graph whatever the documentation forbids spoils the capture. Copies from pageable memory are under
// way when they return. Whatever is done in a context's legacy stream, waits and questions included, waits for what is
// in its blocking streams, each thread's own one among them, and they wait for it ("Stream synchronization behavior" in
// the documentation of the runtime); streams that do not block are apart. A destroyed stream goes on with what it has.
//
// What it cannot see: floating-point operations are the host's, so that a NaN keeps its payload where PTX gives
// 0x7fffffff; and times. Of order, programs may rely here on some things that CUDA does not promise: a kernel or a copy
// is not interrupted by another one; every cudaFree waits for its device (the documentation: it may), cudaFreeHost and
// cudaIpcCloseMemHandle for all devices; cudaMemcpyAsync from pageable memory has taken its bytes when it returns; the
// host may touch managed memory while a device uses it. CUDA promises more where a copy between two places in pinned
// memory, or cudaMemset of managed memory, is complete on return, which here it is not. Not there at all: memory that
// is allocated in a stream's order, copies and access between devices (cudaMemcpyPeer), what other processes do with
// memory that is shared with them, and streams that an event makes part of a capture.
//
// One mutex covers everything, so that kernels may be launched from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "place.hpp"

namespace simt {

// ---- for tests

// order: of lanes, and between streams (0: ascending, 1: descending, else random). poison: what memory holds that
// nobody has written.
struct Seeds {
  std::uint64_t order = 0, poison = 0;
};
void set_seeds(Seeds);
// What was found since the last call, one line each; empty: nothing.
std::string take_reports();
// Forgets reports, injected and sticky errors and what is enqueued. Memory stays.
void reset();
// The n-th call (from 1) from now on of the runtime function of this name returns `error` and does nothing. Kernel
// launches: cudaLaunchKernelEx. sticks: so does every call after it, until reset().
void fail(const std::string& function, int n, int error, bool sticks = false);
std::uint64_t calls(const std::string& function);  // so far in this process
std::uint64_t calls();                             // of all functions but those that only say or clear an error
void set_device_memory(std::size_t bytes);         // allocations beyond are refused
void set_device_count(int);
// Below 13000 every call of the runtime but those for versions is refused (cudaErrorInsufficientDriver).
void set_driver_version(int);
void set_compute_capability(int major, int minor);
void set_elapsed(const std::vector<float>& ms);  // the next answers of cudaEventElapsedTime
// A context loads a kernel when it is first launched or asked for. From now on only so many, and none is loaded yet;
// reset() takes the limit away.
void set_loads(std::size_t);
std::size_t device_bytes();  // allocated now
std::size_t pinned_bytes();  // likewise, of host memory
std::uint64_t launches();
// Device memory can be read and written by this thread while the object lives; it makes no threads meanwhile.
class Reveal {
 public:
  Reveal();
  ~Reveal();
  Reveal(const Reveal&) = delete;
  Reveal& operator=(const Reveal&) = delete;

 private:
  struct State;
  State* state_;
};
// Runs `work`, which launches, waits and returns its result, under several seeds, and says what is wrong: a report, a
// result that depends on the order of lanes or streams, or on memory that was never written. Empty: nothing found.
std::string examine(const std::function<std::vector<std::uint8_t>()>& work, int seeds = 16);

// ---- for the stand-in's header and runtime

enum class Barrier { plain, any, all, count };
std::uint64_t barrier(Barrier, int predicate, Place);
enum class Collective { sync, from, up, down, exchange, ballot, match, add, least, greatest, either, both };
std::uint64_t collective(Collective, unsigned mask, std::uint64_t value, unsigned argument, int width, Place);
unsigned active_mask(Place);
void* shared_memory();  // dynamic shared memory of the block that runs
void catch_faults();    // of lanes and of the host, from now on
void name_kernel(const void* kernel, const char* name);

struct Launch {
  const void* kernel;
  unsigned grid[3], block[3];
  std::size_t shared_bytes;
  std::function<void()> lane;
};
// Runs a launch to its end; false where a fault ended it, which is then in the reports.
bool run(const Launch&);
std::string kernel_name(const void*);
bool in_kernel();                         // a lane runs
void report_of_lane(const std::string&);  // with the kernel's name
void touched_by_atomic(const void*, std::size_t);
void report(std::string);
const Seeds& seeds();
std::uint64_t draw();  // from seeds().order
std::uint32_t poison_word();
// Whether the address is in device memory, and what to say about it.
bool describe_device_address(const void*, std::string*);

}  // namespace simt
