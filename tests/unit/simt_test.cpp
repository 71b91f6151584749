// The executor and the stand-in find what they are for: kernels and host code with one planted fault each, beside the
// same without it.
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "codec/coding/prefix_code.hpp"
#include "codec/coding/prefix_code_kernels.cuh"
#include "codec/device/block.cuh"
#include "support/compare.hpp"
#include "support/device_run.hpp"
#include "support/sanitized.hpp"
#include "support/simt/driver.hpp"

using namespace crimp;
using namespace crimp::test;
using device::launch;

TEST_SUITE("simt") {
  namespace {

  struct Words {
    std::uint32_t v[256];
  };

  // Lane i gets what lane 255 - i wrote.
  template <bool barrier>
  __global__ void reverse(std::uint32_t* out) {
    auto& s = device::shared_memory<Words>();
    s.v[threadIdx.x] = threadIdx.x * threadIdx.x;
    if constexpr (barrier) __syncthreads();
    out[threadIdx.x] = s.v[255 - threadIdx.x];
  }
  __global__ void barrier_of_some(std::uint32_t* out) {
    if (threadIdx.x < 100) __syncthreads();
    out[threadIdx.x] = 1;
  }
  __global__ void barriers_apart(std::uint32_t* out) {
    if (threadIdx.x < 100) __syncthreads();
    else __syncthreads();
    out[threadIdx.x] = 1;
  }
  template <bool all>
  __global__ void half_written(std::uint32_t* out) {
    auto& s = device::shared_memory<Words>();
    if (all || threadIdx.x != 77) s.v[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s.v[(threadIdx.x + 1) % 256];
  }
  __global__ void writes_at(std::uint32_t* out, std::uint64_t at) {
    if (threadIdx.x == 3) out[at] = 5;
  }
  __global__ void reads_shared_at(std::uint32_t* out, std::uint32_t at) {
    out[threadIdx.x] = device::shared_memory<Words>().v[at];
  }
  __global__ void shuffles(std::uint32_t* out, std::uint32_t mask, int from) {
    if (mask >> threadIdx.x % 32 & 1) out[threadIdx.x] = __shfl_sync(mask, threadIdx.x, from);
  }
  __global__ void shuffles_outside(std::uint32_t* out) { out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 0); }
  __global__ void ballot_without_exited(std::uint32_t* out) {
    if (threadIdx.x == 5) return;
    out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
  }
  __global__ void fill(std::uint32_t* out, std::uint32_t value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }
  __global__ void add_one(const std::uint32_t* in, std::uint32_t* out) { out[threadIdx.x] = in[threadIdx.x] + 1; }

  struct Results {
    std::uint32_t max, total;
  };
  __global__ void primitives(const std::uint32_t* in, std::uint32_t* scan, Results* r, float* sum) {
    auto& scratch = device::shared_memory<device::BlockScratch>();
    const std::uint32_t v = in[threadIdx.x];
    const std::uint32_t top = device::block_max(v, scratch);
    std::uint32_t total;
    scan[threadIdx.x] = device::block_offsets(v, scratch, &total);
    if (threadIdx.x == 7) *r = {top, total};
    const float tree = device::warp_tree_sum(static_cast<float>(in[device::lane()]) * 0.1f,
                                             static_cast<float>(in[device::lane() + 32]) * 0.1f);
    if (threadIdx.x == 0) *sum = tree;
  }
  struct PrefixShared {
    device::BlockScratch scratch;
    threelc::PrefixDecodeTable table;
    alignas(4) std::uint8_t in[threelc::kMostSymbols + 4], coded[threelc::kMostSymbols];
  };
  // What prefix_decode_block makes of `bytes` bytes, behind its answer; what it leaves is 0xee.
  __global__ void decodes_prefix(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t base, std::uint32_t* out) {
    auto& s = device::shared_memory<PrefixShared>();
    for (std::uint32_t i = threadIdx.x; i < threelc::kMostSymbols; i += device::kThreads) s.coded[i] = 0xee;
    device::copy_bytes(s.in, in, bytes);
    const std::uint32_t n = threelc::prefix_decode_block(s.in, bytes, base, s.coded, s.table, s.scratch);
    if (threadIdx.x == 0) out[0] = n;
    for (std::uint32_t i = threadIdx.x; i < threelc::kMostSymbols; i += device::kThreads)
      out[1 + i] = i < n && n <= base ? s.coded[i] : 0xee;
  }
  __global__ void copies(std::uint8_t* to, const std::uint8_t* from, std::uint32_t n) {
    device::copy_bytes(to, from, n);
  }

  template <auto kernel, class... Argument>
  std::vector<std::uint8_t> output(Argument... arguments) {
    simt::reset();
    const TestStream stream;
    const DeviceArray<std::uint32_t> out(std::vector<std::uint32_t>(256, 0));
    launch<kernel>(1, 256, sizeof(Words), static_cast<cudaStream_t>(stream), out.data(), arguments...);
    const cudaError_t e = cudaStreamSynchronize(stream);
    std::vector<std::uint8_t> bytes(1024);
    if (e != cudaSuccess) return bytes;
    const auto words = out.read();
    std::memcpy(bytes.data(), words.data(), 1024);
    return bytes;
  }
  template <auto kernel, class... Argument>
  std::string verdict(Argument... arguments) {
    const std::string found = simt::examine([=] { return output<kernel>(arguments...); });
    simt::reset();
    return found;
  }
  // Symbols in the code of `density`, whether it suits them or not; `ragged` bits of 1 behind each stream.
  std::vector<std::uint8_t> prefix_coded(const std::vector<std::uint8_t>& symbols, int density, int ragged = 0) {
    std::vector<std::uint8_t> streams[4], out{static_cast<std::uint8_t>(density)};
    const auto number = [&](std::size_t x) {
      out.push_back(static_cast<std::uint8_t>(x));
      out.push_back(static_cast<std::uint8_t>(x >> 8));
    };
    for (std::size_t s = 0; s < 4; ++s) {
      std::size_t at = 0;
      const auto put = [&](bool bit) {
        if (at % 8 == 0) streams[s].push_back(0);
        streams[s].back() = static_cast<std::uint8_t>(streams[s].back() | bit << at++ % 8);
      };
      const threelc::PrefixCode& code = threelc::prefix_code(density);
      for (std::size_t i = s; i < symbols.size(); i += 4)
        for (int bit = 0; bit < code.length[symbols[i]]; ++bit) put(code.code[symbols[i]] >> bit & 1);
      for (int bit = 0; bit < ragged; ++bit) put(true);
    }
    number(symbols.size());
    for (std::size_t s = 0; s < 3; ++s) number(streams[s].size());
    for (const auto& stream : streams) out.insert(out.end(), stream.begin(), stream.end());
    return out;
  }
  std::vector<std::uint8_t> prefix_on_device(const std::vector<std::uint8_t>& bytes, std::size_t base) {
    simt::reset();
    const TestStream stream;
    const DeviceArray<std::uint8_t> in(bytes);
    const DeviceArray<std::uint32_t> out(1 + threelc::kMostSymbols);
    launch<decodes_prefix>(1, device::kThreads, sizeof(PrefixShared), static_cast<cudaStream_t>(stream),
                           static_cast<const std::uint8_t*>(in.data()), static_cast<std::uint32_t>(bytes.size()),
                           static_cast<std::uint32_t>(base), out.data());
    if (cudaStreamSynchronize(stream) != cudaSuccess) return {};
    const auto got = out.read();
    std::vector<std::uint8_t> result(4 * got.size());
    std::memcpy(result.data(), got.data(), result.size());
    return result;
  }
  std::vector<std::uint8_t> prefix_on_host(const std::vector<std::uint8_t>& bytes, std::size_t base) {
    std::vector<std::uint8_t> coded(threelc::kMostSymbols + 32, 0xee);
    const std::size_t n = threelc::prefix_decode(bytes, base, coded.data());
    std::vector<std::uint32_t> expected(1 + threelc::kMostSymbols, 0xee);
    expected[0] = static_cast<std::uint32_t>(n);
    if (n <= base) std::copy(coded.begin(), coded.begin() + static_cast<long>(n), expected.begin() + 1);
    std::vector<std::uint8_t> result(4 * expected.size());
    std::memcpy(result.data(), expected.data(), result.size());
    return result;
  }
  bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

  // What a child process that runs `work` says and how it ends.
  template <class Work>
  std::string dies(Work&& work) {
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);  // not doctest's
      simt::catch_faults();
      dup2(pipes[1], 2);
      close(pipes[0]);
      work();
      _exit(0);
    }
    close(pipes[1]);
    std::string said;
    char part[512];
    for (ssize_t n; (n = read(pipes[0], part, sizeof part)) > 0;) said.append(part, static_cast<std::size_t>(n));
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "lived: " : "died: ") + said;
  }

  }  // namespace

  TEST_CASE("kernels without a fault pass") {
    CHECK(verdict<reverse<true>>() == "");
    CHECK(verdict<half_written<true>>() == "");
    CHECK(verdict<shuffles>(0xffffffffu, 7) == "");
    CHECK(verdict<shuffles>(0x00ff00ffu, 7) == "");
    CHECK(verdict<writes_at>(std::uint64_t{255}) == "");
  }
  TEST_CASE("a missing barrier") { CHECK(has(verdict<reverse<false>>(), "depends on")); }
  TEST_CASE("a divergent barrier") {
    const auto some = verdict<barrier_of_some>();
    CHECK(has(some, "divergent barrier"));
    CHECK(has(some, "barrier_of_some"));
    CHECK(has(some, "simt_test.cpp:"));
    CHECK(has(verdict<barriers_apart>(), "divergent barrier"));
  }
  TEST_CASE("a shared word that nobody wrote") { CHECK(has(verdict<half_written<false>>(), "never written")); }
  TEST_CASE("warp operations with wrong masks") {
    CHECK(has(verdict<shuffles>(0x00ff00ffu, 8), "not in its mask"));
    CHECK(has(verdict<shuffles_outside>(), "its mask leaves out"));
    CHECK(has(verdict<ballot_without_exited>(), "has ended"));
  }
#ifndef __SANITIZE_ADDRESS__
  TEST_CASE("accesses out of bounds") {
    CHECK(has(verdict<writes_at>(std::uint64_t{256 + 1024}), "out of bounds of device memory"));
    CHECK(has(verdict<writes_at>(~std::uint64_t{0} - 1023), "out of bounds of device memory"));
    CHECK(has(verdict<writes_at>(std::uint64_t{257}), "out of bounds of device memory"));
    CHECK(has(verdict<reads_shared_at>(256u), "out of bounds of shared memory"));
  }
#endif
  TEST_CASE("the host touches device memory") {
    const DeviceArray<float> array(16);
    const auto said = dies([&] { *const_cast<volatile float*>(array.data()) = 1.0f; });
    CHECK(has(said, "died"));
    CHECK(has(said, "host touches device memory"));
    CHECK(has(dies([&] {
                const simt::Reveal open;
                *const_cast<volatile float*>(array.data()) = 1.0f;
              }),
              "lived"));
  }
  TEST_CASE("kernels get no pointers to plain host memory, nor to freed memory") {
    simt::reset();
    std::vector<std::uint32_t> plain(256);
    launch<fill>(1, 256, 0, cudaStream_t{}, plain.data(), 1u);
    CHECK(has(simt::take_reports(), "host memory"));
    simt::reset();
    std::uint32_t* freed;
    REQUIRE(cudaMalloc(&freed, 1024) == cudaSuccess);
    REQUIRE(cudaFree(freed) == cudaSuccess);
    launch<fill>(1, 256, 0, cudaStream_t{}, freed, 1u);
    CHECK(has(simt::take_reports(), "not allocated"));
    simt::reset();
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, cudaStream_t{}, pinned, 9u) == 0);
    CHECK(pinned[3] != 9);  // as late as possible
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(pinned[3] == 9);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(simt::take_reports() == "");
  }

  // Work on two streams, with and without the event that orders it, and a host that reads before and after it has
  // waited.
  TEST_CASE("a missing wait between streams, and of the host") {
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    const auto pipeline = [&](bool event_wait, bool host_wait) {
      const TestStream first, second;
      const DeviceArray<std::uint32_t> a(std::vector<std::uint32_t>(256, 0)), b(std::vector<std::uint32_t>(256, 0));
      cudaEvent_t done;
      cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "event");
      launch<fill>(1, 256, 0, static_cast<cudaStream_t>(first), a.data(), 41u);
      cuda(cudaEventRecord(done, first), "record");
      if (event_wait) cuda(cudaStreamWaitEvent(second, done), "wait");
      launch<add_one>(1, 256, 0, static_cast<cudaStream_t>(second), static_cast<const std::uint32_t*>(a.data()),
                      b.data());
      cuda(cudaMemcpyAsync(pinned, b.data(), 1024, cudaMemcpyDeviceToHost, second), "copy");
      if (host_wait) second.wait();
      std::vector<std::uint8_t> bytes(1024);
      std::memcpy(bytes.data(), pinned, 1024);
      second.wait();
      CHECK(cudaEventDestroy(done) == cudaSuccess);
      return bytes;
    };
    CHECK(simt::examine([&] { return pipeline(true, true); }) == "");
    CHECK(has(simt::examine([&] { return pipeline(false, true); }), "depends on"));
    CHECK(has(simt::examine([&] { return pipeline(true, false); }), "never written"));
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }

  // cudaMemcpy has taken the bytes when it returns; on the device they are when its stream has come there.
  TEST_CASE("a missing wait for a copy of pageable memory") {
    const auto increment = [](bool wait) {
      const TestStream stream;
      const DeviceArray<std::uint32_t> a(256), b(256);
      std::vector<std::uint32_t> from(256, 41);
      cuda(cudaMemcpy(a.data(), from.data(), 1024, cudaMemcpyHostToDevice), "copy");
      std::fill(from.begin(), from.end(), 7);
      if (wait) cuda(cudaStreamSynchronize(nullptr), "wait");
      launch<add_one>(1, 256, 0, static_cast<cudaStream_t>(stream), static_cast<const std::uint32_t*>(a.data()),
                      b.data());
      stream.wait();
      std::vector<std::uint8_t> bytes(1024);
      std::memcpy(bytes.data(), b.read().data(), 1024);
      return bytes;
    };
    CHECK(simt::examine([&] { return increment(true); }) == "");
    CHECK(increment(true)[0] == 42);
    CHECK(simt::examine([&] { return increment(false); }) != "");
  }

  TEST_CASE("events are done when their stream has come there, and polls end") {
    const TestStream stream;
    const DeviceArray<std::uint32_t> a(256);
    cudaEvent_t event;
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), a.data(), 1u);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);  // which the next one who asks would take for his own error
    CHECK(cudaGetLastError() == cudaSuccess);
    int polls = 0;
    while (cudaEventQuery(event) == cudaErrorNotReady) ++polls;
    CHECK(polls < 10);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
  }

  // Every way to know of a stream's work, behind 9s that another stream writes as late as it may.
  TEST_CASE("the legacy stream and blocking ones wait for each other, and nobody for streams that do not block") {
    simt::reset();
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    const DeviceArray<std::uint32_t> other(256);
    cudaEvent_t event;
    cudaStream_t blocking, second, apart;
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    for (cudaStream_t* s : {&blocking, &second}) REQUIRE(cudaStreamCreate(s) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking) == cudaSuccess);
    const auto synchronize = [](cudaStream_t s) { CHECK(cudaStreamSynchronize(s) == cudaSuccess); };
    const auto record = [&](cudaStream_t s) {
      CHECK(cudaEventRecord(event, s) == cudaSuccess);
      CHECK(cudaEventSynchronize(event) == cudaSuccess);
    };
    const std::function<void(cudaStream_t)> ways[] = {
        synchronize,
        record,
        [](cudaStream_t s) {
          cudaError_t state;
          while ((state = cudaStreamQuery(s)) == cudaErrorNotReady) cudaGetLastError();
          CHECK(state == cudaSuccess);
        },
        [&](cudaStream_t s) {
          CHECK(cudaEventRecord(event, s) == cudaSuccess);
          CHECK(cudaStreamWaitEvent(apart, event) == cudaSuccess);
          synchronize(apart);
        },
        [&](cudaStream_t s) {
          launch<fill>(1, 256, 0, s, other.data(), 1u);
          record(s);
        },
        [&](cudaStream_t s) {
          std::uint32_t word;
          CHECK(cudaMemcpyAsync(&word, other.data(), 4, cudaMemcpyDeviceToHost, s) == cudaSuccess);
        },
        [&](cudaStream_t s) {  // of an event that is long over
          CHECK(cudaEventRecord(event, apart) == cudaSuccess);
          CHECK(cudaStreamWaitEvent(s, event) == cudaSuccess);
          synchronize(s);
        },
        [&](cudaStream_t s) {
          if (s) return synchronize(s);
          const std::uint32_t word = 1;
          CHECK(cudaMemcpy(other.data(), &word, 4, cudaMemcpyHostToDevice) == cudaSuccess);
        }};
    struct Pair {
      cudaStream_t writes, asks;
      bool waits;
    };
    for (const Pair& pair : {Pair{blocking, nullptr, true}, Pair{blocking, cudaStreamLegacy, true},
                             Pair{cudaStreamPerThread, nullptr, true}, Pair{apart, nullptr, false},
                             Pair{nullptr, blocking, true}, Pair{nullptr, cudaStreamPerThread, true},
                             Pair{blocking, second, false}, Pair{blocking, cudaStreamPerThread, false}})
      for (std::size_t way = 0; way < std::size(ways); ++way) {
        const bool asks_apart = pair.writes == apart && (way == 3 || way == 6);  // an event of that stream
        CAPTURE(way);
        CAPTURE(pair.writes);
        CAPTURE(pair.asks);
        pinned[3] = 0;
        CHECK(launch<fill>(1, 256, 0, pair.writes, pinned, 9u) == cudaSuccess);
        CHECK(pinned[3] == 0);
        ways[way](pair.asks);
        CHECK((pinned[3] == 9) == (pair.waits || asks_apart));
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(pinned[3] == 9);
      }
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    for (cudaStream_t s : {blocking, second, apart}) CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(simt::take_reports() == "");
  }

  // The example of the documentation: k_1 on a blocking stream, k_2 on the legacy one, k_3 on a blocking one.
  TEST_CASE("a missing wait behind a blocking stream") {
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    const auto three = [&](unsigned first, unsigned last, bool between) {
      cudaStream_t one, other;
      const DeviceArray<std::uint32_t> a(std::vector<std::uint32_t>(256, 0)), b(std::vector<std::uint32_t>(256, 0));
      const DeviceArray<std::uint32_t> c(std::vector<std::uint32_t>(256, 0));
      CHECK(cudaStreamCreateWithFlags(&one, first) == cudaSuccess);
      CHECK(cudaStreamCreateWithFlags(&other, last) == cudaSuccess);
      launch<fill>(1, 256, 0, one, a.data(), 41u);
      if (between) launch<add_one>(1, 256, 0, cudaStream_t{}, static_cast<const std::uint32_t*>(a.data()), b.data());
      launch<add_one>(1, 256, 0, other, static_cast<const std::uint32_t*>(between ? b.data() : a.data()), c.data());
      CHECK(cudaMemcpyAsync(pinned, c.data(), 1024, cudaMemcpyDeviceToHost, other) == cudaSuccess);
      CHECK(cudaStreamSynchronize(other) == cudaSuccess);
      std::vector<std::uint8_t> bytes(1024);
      std::memcpy(bytes.data(), pinned, 1024);
      for (cudaStream_t s : {one, other}) CHECK(cudaStreamDestroy(s) == cudaSuccess);
      return bytes;
    };
    constexpr unsigned kBlocking = cudaStreamDefault, kApart = cudaStreamNonBlocking;
    CHECK(simt::examine([&] { return three(kBlocking, kBlocking, true); }) == "");
    CHECK(three(kBlocking, kBlocking, true)[0] == 43);
    CHECK(has(simt::examine([&] { return three(kApart, kBlocking, true); }), "depends on"));
    CHECK(has(simt::examine([&] { return three(kBlocking, kApart, true); }), "depends on"));
    CHECK(has(simt::examine([&] { return three(kBlocking, kBlocking, false); }), "depends on"));
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }

  TEST_CASE("a stream waits for what an event stood for when it was told to") {
    simt::reset();
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    pinned[3] = 0;
    const TestStream first, second;
    cudaEvent_t event;
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, static_cast<cudaStream_t>(first), pinned, 9u) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);  // never recorded
    second.wait();
    CHECK(pinned[3] == 0);
    CHECK(cudaEventRecord(event, first) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, event) == cudaSuccess);
    CHECK(cudaEventRecord(event, nullptr) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(pinned[3] == 0);
    second.wait();
    CHECK(pinned[3] == 9);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }

  TEST_CASE("devices have legacy streams of their own, and meet by events; each thread has its device") {
    simt::reset();
    simt::set_device_count(2);
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    pinned[3] = 0;
    cudaStream_t here, there;
    cudaEvent_t event, other;
    REQUIRE(cudaStreamCreate(&here) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, here, pinned, 9u) == cudaSuccess);
    CHECK(cudaEventRecord(event, here) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    int device = -1;
    std::thread([&] { CHECK(cudaGetDevice(&device) == cudaSuccess); }).join();
    CHECK(device == 0);
    REQUIRE(cudaStreamCreate(&there) == cudaSuccess);
    REQUIRE(cudaEventCreate(&other) == cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, here, pinned, 8u) == cudaErrorInvalidResourceHandle);
    CHECK(has(simt::take_reports(), "another context"));
    CHECK(cudaEventRecord(other, here) == cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(pinned[3] == 0);
    CHECK(cudaStreamWaitEvent(there, event) == cudaSuccess);
    CHECK(cudaStreamSynchronize(there) == cudaSuccess);
    CHECK(pinned[3] == 9);
    CHECK(cudaEventRecord(other, there) == cudaSuccess);
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, event, other) == cudaErrorInvalidResourceHandle);
    for (cudaEvent_t e : {event, other}) CHECK(cudaEventDestroy(e) == cudaSuccess);
    for (cudaStream_t s : {here, there}) CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    simt::set_device_count(1);
    simt::reset();
  }

  TEST_CASE("every thread has a stream of its own, which blocks and outlives it") {
    simt::reset();
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    pinned[3] = 0;
    std::thread([&] { CHECK(launch<fill>(1, 256, 0, cudaStreamPerThread, pinned, 9u) == cudaSuccess); }).join();
    CHECK(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);  // this thread's
    CHECK(pinned[3] == 0);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(pinned[3] == 9);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
  }

  TEST_CASE("a stream that is destroyed goes on, and nobody can use it") {
    simt::reset();
    std::uint32_t* pinned;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    pinned[3] = 0;
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, stream, pinned, 9u) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(pinned[3] == 0);
    CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaMemsetAsync(pinned, 0, 4, stream) != cudaSuccess);
    CHECK(launch<fill>(1, 256, 0, stream, pinned, 8u) == cudaErrorInvalidResourceHandle);
    CHECK(has(simt::take_reports(), "destroyed"));
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(pinned[3] == 9);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    simt::reset();
  }

  TEST_CASE("cudaFree waits for its device, and takes managed memory, which cudaFreeHost does not") {
    simt::reset();
    simt::set_device_count(2);
    const TestStream stream;
    std::uint32_t *pinned, *there, *managed, *elsewhere;
    REQUIRE(cudaMallocHost(&pinned, 1024) == cudaSuccess);
    REQUIRE(cudaMalloc(&there, 1024) == cudaSuccess);
    REQUIRE(cudaMallocManaged(&managed, 1024) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaMalloc(&elsewhere, 1024) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    const auto done_by_free = [&](void* p) {
      pinned[3] = 0;
      CHECK(launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), pinned, 9u) == cudaSuccess);
      CHECK(cudaFree(p) == cudaSuccess);
      return std::exchange(pinned[3], 0) == 9;
    };
    CHECK(done_by_free(there));
    CHECK_FALSE(done_by_free(elsewhere));
    CHECK(cudaFreeHost(managed) == cudaErrorInvalidValue);
    CHECK(done_by_free(managed));
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, managed) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
    CHECK(has(simt::take_reports(), "cudaFree of a pointer"));
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    simt::set_device_count(1);
    simt::reset();
  }

  TEST_CASE("times are between events that have been recorded and are over") {
    simt::reset();
    const TestStream stream;
    const DeviceArray<std::uint32_t> a(256);
    cudaEvent_t begin, end;
    for (cudaEvent_t* e : {&begin, &end}) REQUIRE(cudaEventCreate(e) == cudaSuccess);
    float ms = 0;
    CHECK(cudaEventRecord(begin, stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle);
    launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), a.data(), 1u);
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
    // A record takes the place of the one before, for those who ask from then on.
    launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), a.data(), 2u);
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    for (cudaEvent_t e : {begin, end}) CHECK(cudaEventDestroy(e) == cudaSuccess);
    cudaGetLastError();
  }

  TEST_CASE("errors are injected one by one, and memory ends") {
    simt::reset();
    simt::fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
    void *a = nullptr, *b = nullptr;
    CHECK(cudaMalloc(&a, 10) == cudaSuccess);
    CHECK(cudaMalloc(&b, 10) == cudaErrorMemoryAllocation);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaMalloc(&b, 10) == cudaSuccess);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, static_cast<char*>(b) + 9) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeDevice);
    CHECK(cudaPointerGetAttributes(&attributes, &attributes) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(a) == cudaSuccess);
    CHECK(cudaFree(b) == cudaSuccess);
    void* c = nullptr;
    CHECK(cudaMalloc(&c, std::size_t{1} << 40) == cudaErrorMemoryAllocation);
    CHECK(c == nullptr);
    simt::fail("cudaLaunchKernelEx", 1, cudaErrorUnknown);
    const DeviceArray<std::uint32_t> out(256);
    CHECK(launch<fill>(1, 256, 0, cudaStream_t{}, out.data(), 1u) == cudaErrorUnknown);
    CHECK(launch<fill>(1, 2048, 0, cudaStream_t{}, out.data(), 1u) == cudaErrorInvalidConfiguration);
    CHECK(has(simt::take_reports(), "illegal grid"));
    simt::reset();
  }

  TEST_CASE("errors that stay") {
    simt::reset();
    simt::fail("cudaMalloc", 1, cudaErrorIllegalAddress, true);
    void* a = nullptr;
    CHECK(cudaMalloc(&a, 10) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaMalloc(&a, 10) == cudaErrorIllegalAddress);
    simt::reset();
    CHECK(cudaMalloc(&a, 10) == cudaSuccess);
    CHECK(cudaFree(a) == cudaSuccess);
  }

  // Bytes that the host may write again at once are on their way for longer: a stream that does not wait for the
  // legacy one may be ahead of them.
  TEST_CASE("a missing wait behind a copy from pageable memory") {
    std::uint32_t* there;
    REQUIRE(cudaMalloc(&there, 1024) == cudaSuccess);
    const auto upload = [&](bool waits) {
      const TestStream stream;
      const DeviceArray<std::uint32_t> out(256);
      std::vector<std::uint32_t> words(256, 7);
      CHECK(cudaMemset(there, 0, 1024) == cudaSuccess);
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      CHECK(cudaMemcpy(there, words.data(), 1024, cudaMemcpyHostToDevice) == cudaSuccess);
      words.assign(256, 9);
      if (waits) CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
      launch<add_one>(1, 256, 0, static_cast<cudaStream_t>(stream), static_cast<const std::uint32_t*>(there),
                      out.data());
      stream.wait();
      const auto got = out.read();
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      return std::vector<std::uint8_t>(got.begin(), got.end());
    };
    CHECK(simt::examine([&] { return upload(true); }) == "");
    CHECK(upload(true)[0] == 8);
    CHECK(has(simt::examine([&] { return upload(false); }), "depends on"));
    CHECK(cudaFree(there) == cudaSuccess);
  }

  TEST_CASE("a thread has no context before it has used one") {
    void *a = nullptr, *mine = nullptr, *before = &a, *after = nullptr;
    REQUIRE(cudaMalloc(&a, 10) == cudaSuccess);
    mine = simt::current_context();
    std::thread([&] {
      before = simt::current_context();
      CHECK(cudaFree(nullptr) == cudaSuccess);
      after = simt::current_context();
    }).join();
    CHECK(before == nullptr);
    CHECK(after == mine);
    CHECK(cudaFree(a) == cudaSuccess);
  }

  TEST_CASE("streams and memory belong to a context") {
    simt::reset();
    const TestStream stream;
    const DeviceArray<std::uint32_t> array(256);
    cudaEvent_t event;
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    simt::make_context(0);
    CHECK(launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), array.data(), 1u) ==
          cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(event, nullptr) == cudaErrorInvalidResourceHandle);
    CHECK(launch<fill>(1, 256, 0, cudaStream_t{}, array.data(), 1u) == cudaErrorIllegalAddress);
    CHECK(has(simt::take_reports(), "another context"));
    simt::reset();
    simt::pop_context();
    CHECK(launch<fill>(1, 256, 0, static_cast<cudaStream_t>(stream), array.data(), 1u) == cudaSuccess);
    stream.wait();
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(simt::take_reports() == "");
  }

  // What is captured does not run, and what waits or allocates meanwhile, in whatever thread, spoils it.
  TEST_CASE("captures, and what spoils them") {
    simt::reset();
    const DeviceArray<std::uint32_t> array(std::vector<std::uint32_t>(256, 5));
    cudaEvent_t event;
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    const auto captured = [&](cudaStreamCaptureMode mode, unsigned kind, auto&& meanwhile) {
      cudaStream_t stream;
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamCreateWithFlags(&stream, kind) == cudaSuccess);
      CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
      CHECK(launch<fill>(1, 256, 0, stream, array.data(), 1u) == cudaSuccess);
      std::thread([&] { meanwhile(stream); }).join();
      const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
      std::size_t nodes = 1;
      if (graph) cudaGraphGetNodes(graph, nullptr, &nodes);
      CHECK(nodes == 1);
      if (graph) cudaGraphDestroy(graph);
      CHECK(cudaStreamDestroy(stream) == cudaSuccess);
      cudaGetLastError();
      return ended;
    };
    const auto allocate = [](cudaStream_t) {
      void* p = nullptr;
      if (cudaMalloc(&p, 10) == cudaSuccess) cudaFree(p);
    };
    const auto relaxed = [](auto&& work) {
      return [work](cudaStream_t stream) {
        auto mode = cudaStreamCaptureModeRelaxed;
        CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
        work(stream);
        CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
        CHECK(mode == cudaStreamCaptureModeRelaxed);
      };
    };
    const auto query = [&](cudaStream_t) { cudaEventQuery(event); };
    const auto wait_for_all = [](cudaStream_t) { CHECK(cudaDeviceSynchronize() != cudaSuccess); };
    const auto record_legacy = [&](cudaStream_t) { cudaEventRecord(event, nullptr); };
    const auto ask_legacy = [](cudaStream_t) {
      cudaStreamCaptureStatus status;
      CHECK(cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit);
    };
    const auto wait_for_it = [](cudaStream_t stream) { CHECK(cudaStreamSynchronize(stream) != cudaSuccess); };
    const auto global = cudaStreamCaptureModeGlobal, own = cudaStreamCaptureModeThreadLocal;
    CHECK(captured(global, cudaStreamNonBlocking, [](cudaStream_t) {}) == cudaSuccess);
    CHECK(captured(global, cudaStreamNonBlocking, allocate) == cudaErrorStreamCaptureInvalidated);
    CHECK(captured(own, cudaStreamNonBlocking, allocate) == cudaSuccess);
    CHECK(captured(global, cudaStreamNonBlocking, relaxed(allocate)) == cudaSuccess);
    CHECK(captured(global, cudaStreamNonBlocking, query) == cudaErrorStreamCaptureInvalidated);
    CHECK(captured(global, cudaStreamNonBlocking, relaxed(query)) == cudaSuccess);
    CHECK(captured(global, cudaStreamNonBlocking, relaxed(wait_for_all)) == cudaErrorStreamCaptureInvalidated);
    CHECK(captured(global, cudaStreamNonBlocking, relaxed(wait_for_it)) == cudaErrorStreamCaptureInvalidated);
    CHECK(captured(global, cudaStreamNonBlocking, relaxed(record_legacy)) == cudaSuccess);
    CHECK(captured(global, cudaStreamDefault, relaxed(record_legacy)) == cudaErrorStreamCaptureInvalidated);
    CHECK(captured(global, cudaStreamDefault, relaxed(ask_legacy)) == cudaSuccess);
    CHECK(array.read()[0] == 5);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(simt::take_reports() == "");
    simt::reset();
  }

  TEST_CASE("block primitives") {
    std::mt19937 random(1);
    std::vector<std::uint32_t> in(device::kThreads);
    for (auto& x : in) x = static_cast<std::uint32_t>(random() % 1000);
    const DeviceArray<std::uint32_t> from(in), scan(in.size());
    const DeviceArray<Results> results(1);
    const DeviceArray<float> sum(1);
    launch<primitives>(1, device::kThreads, sizeof(device::BlockScratch), cudaStream_t{},
                       static_cast<const std::uint32_t*>(from.data()), scan.data(), results.data(), sum.data());
    const auto got = scan.read();
    std::uint32_t total = 0, top = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      CHECK(got[i] == total);
      total += in[i];
      top = std::max(top, in[i]);
    }
    CHECK(results.read()[0].max == top);
    CHECK(results.read()[0].total == total);
    float tree[64];
    for (std::size_t i = 0; i < 64; ++i) tree[i] = static_cast<float>(in[i]) * 0.1f;
    for (std::size_t w = 32; w > 0; w /= 2)
      for (std::size_t i = 0; i < w; ++i) tree[i] += tree[i + w];
    CHECK(sum.read()[0] == tree[0]);
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("bytes are copied between any addresses, and nothing beside them") {
    std::vector<std::uint8_t> bytes(700);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);
    for (const std::uint32_t n : {0, 1, 3, 15, 16, 17, 33, 64, 255, 600})
      for (std::size_t to = 0; to < 16; to += kSanitized ? 5 : 1)
        for (std::size_t from = 0; from < 16; from += to % 3 + 1) {
          // The source ends where its allocation does.
          const DeviceArray<std::uint8_t> source(std::span<const std::uint8_t>(bytes.data(), from + n)),
              target(std::vector<std::uint8_t>(n + 32, 0xee));
          launch<copies>(1, 64, 0, cudaStream_t{}, target.data() + to,
                         static_cast<const std::uint8_t*>(source.data() + from), n);
          std::vector<std::uint8_t> expected(n + 32, 0xee);
          std::copy(bytes.begin() + static_cast<long>(from), bytes.begin() + static_cast<long>(from + n),
                    expected.begin() + static_cast<long>(to));
          CHECK(difference(target.read(), expected) == "");
        }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("a block decodes prefix codes as the host does, and refuses what it refuses") {
    std::mt19937 random(3);
    const auto compare = [](const std::vector<std::uint8_t>& bytes, std::size_t base, int seeds = 0) {
      if (bytes.empty() || bytes.size() > threelc::kMostSymbols) return false;
      const auto host = prefix_on_host(bytes, base);
      CHECK(difference(prefix_on_device(bytes, base), host) == "");
      if (seeds > 0) CHECK(simt::examine([&] { return prefix_on_device(bytes, base); }, seeds) == "");
      std::uint32_t n;
      std::memcpy(&n, host.data(), sizeof n);
      return n <= base;
    };
    int legal = 0, refused = 0;
    for (int density = 0; density < threelc::kDensities; density += kSanitized ? 5 : 1) {
      const auto* const length = threelc::prefix_code(density).length;
      const auto of_length = [&](int bits) {  // 256: there is none
        return static_cast<unsigned>(std::find(length, length + 256, bits) - length);
      };
      const auto longest = static_cast<std::uint8_t>(of_length(threelc::kLongestCode) % 256),
                 shortest = static_cast<std::uint8_t>(std::min_element(length, length + 256) - length);
      for (const std::size_t base : {1u, 40u, 700u, 2048u})
        for (int kind = 0; kind < 5; ++kind) {
          // All alike: one long code, which never finds its beginning by itself, the shortest, or all of them.
          std::vector<std::uint8_t> symbols(kind == 1 ? base : base * 8 / threelc::kLongestCode - base / 16);
          for (auto& x : symbols)
            x = kind == 0                        ? longest
                : kind == 1                      ? shortest
                : kind == 2 || random() % 8 == 0 ? static_cast<std::uint8_t>(random())
                : kind == 3                      ? shortest
                                                 : longest;
          auto bytes = prefix_coded(symbols, density);
          while (bytes.size() > base && !symbols.empty()) {
            symbols.pop_back();
            bytes = prefix_coded(symbols, density);
          }
          legal += compare(bytes, base, density % 5 == kind ? 4 : 0);
          for (const int ragged : {1, 3, 8}) refused += !compare(prefix_coded(symbols, density, ragged), base);
          for (int change = 0; change < 6; ++change) {
            auto changed = bytes;
            const std::size_t at = change < 2 ? random() % 9 : random() % changed.size();
            if (change == 5) changed.pop_back();
            else if (change == 4) changed.push_back(0);
            else changed[at] = static_cast<std::uint8_t>(changed[at] ^ 1u << random() % 8);
            refused += !compare(changed, base);
          }
        }
    }
    CHECK(legal > 40);
    CHECK(refused > 500);
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("the prefix codes of kernels are the host's") {
    using namespace crimp::threelc;
    static constexpr DensityTables tables = density_tables();
    for (int d = 0; d < kDensities; ++d)
      for (std::uint32_t s = 0; s < 256; ++s) {
        const PrefixCode& code = prefix_code(d);
        CHECK(tables.densities[d].code[s] == (code.code[s] | code.length[s] << kLongestCode));
        for (std::uint32_t above = code.code[s]; above < 1u << kLongestCode; above += 1u << code.length[s])
          CHECK(tables.densities[d].decode[above] == (s | static_cast<std::uint32_t>(code.length[s]) << 8));
      }
    for (const std::size_t base : {7u, 100u, 2048u})
      for (std::size_t n = 0; n <= base; ++n) {
        int d = 0;
        while (d + 1 < kDensities &&
               static_cast<double>(2 * n) > (tables.fill[d] + tables.fill[d + 1]) * static_cast<double>(base))
          ++d;
        CHECK(d == density_of(n, base));
      }
  }
}
