// Blocks of one launch that touch the same bytes: planted ones are found, and kernels that were compiled for the shadow
// (tests/support/simt/shadow.hpp) have none. The codecs' are run by suite device_codec, which is in this program as
// well.
#include <doctest/doctest.h>

#include "codec/device/block.cuh"
#include "support/device_run.hpp"
#include "support/simt/shadow.hpp"

using namespace crimp;
using namespace crimp::test;
using device::launch;

TEST_SUITE("device_races") {
  namespace {

  __global__ void own(std::uint32_t* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }
  __global__ void same_word(std::uint32_t* out) { out[threadIdx.x] = 7; }
  __global__ void one_word(std::uint32_t* out) {
    if (blockIdx.x + threadIdx.x == 0) out[0] = 1;
    if (blockIdx.x == 1 && threadIdx.x == 5) out[8] = out[0];
  }
  __global__ void neighbours(std::uint8_t* out) { out[blockIdx.x] = 1; }
  __global__ void wide(uint4* out) { out[blockIdx.x].y = 1; }
  __global__ void wider(uint4* out) {
    if (threadIdx.x == 0 && blockIdx.x < 2)
      *reinterpret_cast<uint4*>(reinterpret_cast<char*>(out) + 8 * blockIdx.x) = {};
  }
  __global__ void counts(std::uint32_t* out) { atomicAdd(out, 1u); }
  __global__ void counts_and_reads(std::uint32_t* out) {
    atomicAdd(out, 1u);
    if (blockIdx.x == 2 && threadIdx.x == 0) out[1] = out[0];
  }
  __global__ void all_read(const std::uint32_t* in, std::uint32_t* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[threadIdx.x];
  }

  template <class Pointer>
  Pointer last(void (*)(Pointer));
  template <class First, class Pointer>
  Pointer last(void (*)(First, Pointer));

  template <auto kernel, class... Argument>
  std::string verdict(Argument... more) {
    simt::reset();
    std::string all;
    for (const std::uint64_t order : {0, 1, 5}) {  // whoever comes first
      simt::set_seeds({order, 0});
      const DeviceArray<std::uint32_t> out(std::vector<std::uint32_t>(4 * 64, 0));
      launch<kernel>(4, 64, 0, cudaStream_t{}, more..., reinterpret_cast<decltype(last(kernel))>(out.data()));
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      const std::string found = simt::take_reports();
      CHECK((order == 0 || found.empty() == all.empty()));
      all += found;
    }
    simt::set_seeds({});
    return all;
  }
  bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

  }  // namespace

  TEST_CASE("blocks of a launch that touch the same bytes") {
    CHECK(verdict<own>() == "");
    CHECK(has(verdict<same_word>(), "writes what block"));
    CHECK(has(verdict<one_word>(), "in the same launch: byte 0 of"));
    CHECK(verdict<neighbours>() == "");
    CHECK(verdict<wide>() == "");
    CHECK(has(verdict<wider>(), "in the same launch: byte 8 of"));
    CHECK(verdict<counts>() == "");
    CHECK(has(verdict<counts_and_reads>(), "atomic"));
    const DeviceArray<std::uint32_t> in(std::vector<std::uint32_t>(64, 3));
    CHECK(verdict<all_read>(static_cast<const std::uint32_t*>(in.data())) == "");
  }
  TEST_CASE("launches that follow one another do not meet") {
    simt::reset();
    const DeviceArray<std::uint32_t> out(std::vector<std::uint32_t>(64, 0));
    for (int i = 0; i < 2; ++i) launch<own>(1, 64, 0, cudaStream_t{}, out.data());
    launch<counts>(1, 64, 0, cudaStream_t{}, out.data());
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(simt::take_reports() == "");
    CHECK(simt::shadowed_bytes() > 0);
  }
}
