// The CUDA backend under the pipelines, with the stand-in for CUDA or on a GPU: one rank, so that results and residuals
// can be compared with the host's; several ranks are tests/mpi/device.cpp.
#include <doctest/doctest.h>

#include <barrier>
#include <cmath>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_memory.hpp"
#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"
#include "core/convert.hpp"
#include "loopback.hpp"
#include "memory/workers.hpp"
#include "support/cuda_device.hpp"
#include "support/data.hpp"
#ifdef CRIMP_SIMT
#include "support/thread_transport.hpp"
#endif

using namespace crimp;
using namespace crimp::test;

namespace {

constexpr std::uint64_t kCount = 70001,
                        kMemory = kCount + 20000;  // with room for PowerSGD's Q behind each tensor's residual

std::shared_ptr<const Layout> layout() {
  return Layout::make(
      Layout::Source::named,
      {{"a", 0, 30000}, {"pad", 30000, 4, Segment::Use::skip}, {"b", 30004, 17}, {"c", 30021, kCount - 30021}});
}

CallBuffers buffers_of(const RoutePlan& route, float* in, float* out, float* residual, float* owner,
                       std::uint32_t sequence) {
  CallBuffers call{.in = in, .out = out};
  call.sequence = sequence;
  for (const Segment& s : route.part.layout->segments) {
    if (route.part.remembers) {
      call.residuals.push_back(s.summed() ? residual : nullptr);
      residual += route.part.codec->feedback_elements(s.count);
    }
    if (route.owner_memory) call.owner_residuals.push_back(s.summed() ? owner + s.offset : nullptr);
  }
  return call;
}

std::vector<float> fetched(const float* from, std::uint64_t count = kCount) {
  std::vector<float> all(count);
  cuda::device_memory(0).read(all.data(), from, all.size() * sizeof(float));
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_SUITE("cuda_backend") {
  TEST_CASE("results and residuals have the host's bits, copied bodies or not, in any order that streams may take") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    const auto tensors = layout();
    MemoryResource& device = cuda::device_memory(0);
    for (const char* spec :
         {"3lc", "3lc:zero_run=0", "fp16", "maxmin", "adaq:ratio=0.1", "powersgd:r=3", "powersgd:memory=none"})
      for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot, Algorithm::low_rank})
        for (const bool device_bodies : {false, true})
          for (const std::uint64_t seed : {0, 1, 7, 8}) {
            CAPTURE(std::string(spec));
            CAPTURE(static_cast<int>(algorithm));
            CAPTURE(device_bodies);
            CAPTURE(seed);
            simt::set_seeds({seed, seed});
            const auto codec = make_codec(spec);
            if (!entry_of(algorithm).why_unsupported(*codec, 1).empty()) continue;
            if (seed % 7 == 1 && (codec->traits().selects || codec->traits().whole_tensors))
              continue;  // slow, and their copies are the others'
            cuda::CudaBackend backend(0, device_bodies);
            REQUIRE(backend.runs(*codec));
            const auto route = plan_route(
                algorithm, {codec.get(), tensors, kCount, Dtype::f32, true, codec->feedback().kept()}, 20480, 1);
            std::vector<float> residual(kMemory), owner(kCount), out(kCount, 5.0f);
            const Memory in_there(kCount * sizeof(float), device), out_there(kCount * sizeof(float), device),
                residual_there(kMemory * sizeof(float), device), owner_there(kCount * sizeof(float), device);
            const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.data()); };
            device.write(out_there.data(), out.data(), kCount * sizeof(float));
            Arena host_arena, staging(backend.staging()), values(backend.memory()), pinned(cuda::pinned_memory());
            Workers workers(1);
            for (std::uint32_t step = 0; step < 3; ++step) {
              auto in = make_data(Data::normal, 3 + step, kCount);
              device.write(in_there.data(), in.data(), kCount * sizeof(float));
              CallBuffers host = buffers_of(*route, in.data(), out.data(), residual.data(), owner.data(), step);
              host_arena.reserve(route->bytes({}).together);
              host.arena = &host_arena;
              tools::Loopback plain;
              CHECK_FALSE(allreduce_compressed(plain, *route, host, workers).error.has_value());

              CallBuffers call = buffers_of(*route, floats(in_there), floats(out_there), floats(residual_there),
                                            floats(owner_there), step);
              call.backend = &backend;
              call.values = &values;
              call.arena = route->host_bodies ? &pinned : &staging;
              route->prepare(backend);
              call.arena->reserve(route->bytes({}).bodies);
              values.reserve(route->bytes({}).values);
              backend.prepare(staging);
              backend.begin(false);
              tools::Loopback aware([](void* to, const void* from, std::size_t bytes) {
                CHECK(copy_anywhere(to, from, bytes));
              });  // MPI that takes device pointers
              const CollectiveResult result =
                  allreduce_compressed(device_bodies ? aware : plain, *route, call, workers);
              try {
                backend.synchronize();
              } catch (const Error& e) {
                FAIL(e.what() << ": " << simt::take_reports());
              }
              CHECK_MESSAGE(!result.error.has_value(), std::string(result.error ? result.error->what() : ""));
              CHECK(same_bits(fetched(floats(out_there)), out));
              CHECK(same_bits(fetched(floats(residual_there), kMemory), residual));
              CHECK(same_bits(fetched(floats(owner_there)), owner));
            }
            const std::string found = simt::take_reports();
            CHECK(found == "");
          }
    simt::set_seeds({});
    cudaFree(context);
  }

  TEST_CASE("magnitudes and conversions have the host's bits") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    cuda::CudaBackend backend(0, false);
    MemoryResource& device = cuda::device_memory(0);
    std::vector<float> wide = make_data(Data::normal, 5, 100000);
    wide[99999] = 3e38f, wide[77777] = 0x1p-149f, wide[0] = -0.0f;
    for (const Dtype type : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
      CAPTURE(std::string(name_of(type)));
      const std::size_t bytes = wide.size() * size_of(type);
      std::vector<char> narrowed(bytes), got(bytes);
      narrow(type, wide.data(), narrowed.data(), wide.size());
      const Memory there(bytes, device), wide_there(wide.size() * sizeof(float), device);
      device.write(wide_there.data(), wide.data(), wide.size() * sizeof(float));
      backend.begin(false);
      backend.narrow(type, reinterpret_cast<float*>(wide_there.data()), there.data(), wide.size());
      backend.synchronize();
      device.read(got.data(), there.data(), bytes);
      CHECK(got == narrowed);

      std::vector<float> expected(wide.size()), back(wide.size());
      widen(type, narrowed.data(), expected.data(), expected.size());
      backend.widen(type, there.data(), reinterpret_cast<float*>(wide_there.data()), wide.size());
      backend.synchronize();
      device.read(back.data(), wide_there.data(), back.size() * sizeof(float));
      CHECK(std::memcmp(back.data(), expected.data(), back.size() * sizeof(float)) == 0);

      const Group groups[] = {{0, 1}, {1, 70000}, {70001, 29998}, {99999, 1}, {5, 0}};
      double mine[5], theirs[5];
      backend.magnitudes(type, there.data(), groups, mine);
      for (std::size_t g = 0; g < 5; ++g)
        theirs[g] = magnitude(type, narrowed.data() + groups[g].offset * size_of(type), groups[g].count);
      for (std::size_t g = 0; g < 5; ++g) CHECK(mine[g] == theirs[g]);
    }
    CHECK(simt::take_reports() == "");
    cudaFree(context);
  }

#ifdef CRIMP_SIMT
  TEST_CASE("what a failed start has enqueued keeps its tables until it has run") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    const auto codec = make_codec("3lc");
    constexpr std::uint64_t kElements = 30000;
    ChunkPartition partition;
    partition.add_group(kElements);
    MemoryResource& device = cuda::device_memory(0);
    const std::size_t bytes = kElements * sizeof(float), bound = partition.body_bound(*codec);
    const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.data()); };
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
      CAPTURE(seed);
      simt::set_seeds({seed, seed});
      cuda::CudaBackend backend(0, false);
      Arena staging(backend.staging());
      backend.prepare(*codec, partition, 1);
      staging.reserve(2 * bound);
      backend.prepare(staging);
      backend.begin(false);
      const Memory lost_values(bytes, device), values(bytes, device), residual(bytes, device);
      auto in = make_data(Data::normal, 4, kElements);
      device.write(values.data(), in.data(), bytes);
      const auto other = make_data(Data::laplace, 5, kElements);
      device.write(lost_values.data(), other.data(), bytes);
      std::uint64_t bytes_used;
      const auto start = [&](const Memory& from, std::span<const FeedbackView> feedback) {
        auto* const body = reinterpret_cast<std::uint8_t*>(staging.take(bound));
        const EncodeJob job{*codec, partition, floats(from), feedback, {}, body, nullptr, &bytes_used};
        return backend.start_encode({&job, 1}, {});
      };
      if (seed % 2) simt::fail("cudaEventRecord", 1, cudaErrorMemoryAllocation);
      else simt::fail("cudaMemcpyAsync", 2, cudaErrorMemoryAllocation);  // of the sizes
      CHECK_THROWS_AS(start(lost_values, {}), Error);
      const FeedbackView kept = feedback_of(*codec, floats(residual), 1, kElements, 0);
      backend.finish_encode(start(values, {&kept, 1}), {});
      backend.synchronize();

      std::vector<float> expected(kElements);
      std::vector<std::uint8_t> body(bound);
      const FeedbackView mine = feedback_of(*codec, expected.data(), 1, kElements, 0);
      Workers workers(1);
      encode_body(*codec, partition, in.data(), {&mine, 1}, {}, body.data(), nullptr, workers);
      CHECK(same_bits(fetched(floats(residual), kElements), expected));
    }
    simt::set_seeds({});
    cudaFree(context);
  }

  // Of calls in so many chunks, each with a piece for every rank: what a rank asks of the driver, and grids.
  struct Asked {
    double calls = 0, grids = 0, queries = 0;
  };
  Asked asked(const char* spec, Algorithm algorithm, int ranks, std::uint64_t chunks) {
    const auto codec = make_codec(spec);
    const std::uint64_t chunk = static_cast<std::uint64_t>(ranks) * kPieceElements, count = chunks * chunk;
    const auto tensor = Layout::make(Layout::Source::named, {{"a", 0, count}});
    const auto route =
        plan_route(algorithm, {codec.get(), tensor, count, Dtype::f32, true, codec->feedback().kept()}, chunk, ranks);
    Asked before, after;
    const auto note = [](Asked& to) {
      return [&to]() noexcept {
        to = {static_cast<double>(simt::calls()), static_cast<double>(simt::launches()),
              static_cast<double>(simt::calls("cudaEventQuery"))};
      };
    };
    std::barrier ready(ranks, note(before)), done(ranks, note(after));
    run_ranks(ranks, [&](ThreadTransport& transport) {
      MemoryResource& device = cuda::device_memory(0);
      cuda::CudaBackend backend(0, false);
      const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.data()); };
      const Memory values(count * sizeof(float), device), residual(count * sizeof(float), device);
      const auto mine = make_data(Data::normal, static_cast<unsigned>(transport.rank()), count);
      device.write(values.data(), mine.data(), values.bytes());
      CallBuffers call = buffers_of(*route, floats(values), floats(values), floats(residual), nullptr, 0);
      Arena staging(backend.staging()), scratch(backend.memory());
      call.backend = &backend;
      call.arena = &staging;
      call.values = &scratch;
      Workers workers(1);
      route->prepare(backend);
      staging.reserve(route->bytes({}).bodies);
      scratch.reserve(route->bytes({}).values);
      backend.prepare(staging);
      const Group all{0, count};
      double largest;
      backend.magnitudes(Dtype::f32, values.data(), {&all, 1}, &largest);
      ready.arrive_and_wait();
      backend.begin(false);
      backend.magnitudes(Dtype::f32, values.data(), {&all, 1}, &largest);
      const CollectiveResult result = allreduce_compressed(transport, *route, call, workers);
      backend.synchronize();
      done.arrive_and_wait();
      if (result.error) throw *result.error;
    });
    return {(after.calls - before.calls) / ranks, (after.grids - before.grids) / ranks,
            (after.queries - before.queries) / ranks};
  }

  TEST_CASE("a call asks little of the driver: at most 4 calls for a MiB of values, and 3 grids for all shards") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    constexpr int kRanks = 8;
    constexpr std::uint64_t kFew = 3, kMany = 5, kElements = 16 << 20;  // of 64 MiB
    for (const char* spec : {"3lc", "fp16"})
      for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot}) {
        const Asked few = asked(spec, algorithm, kRanks, kFew), many = asked(spec, algorithm, kRanks, kMany);
        const double calls = (many.calls - few.calls) / (kMany - kFew),
                     grids = (many.grids - few.grids) / (kMany - kFew);
        const auto codec = make_codec(spec);
        const auto chunks =
            static_cast<double>(div_up(kElements, chunk_elements(kDeviceChunk, *codec, kRanks, algorithm)));
        const double all = few.calls + (chunks - static_cast<double>(kFew)) * calls;
        CAPTURE(std::string(spec));
        MESSAGE(std::string(spec), " ", std::string(entry_of(algorithm).name), ": ", calls, " calls (",
                (many.queries - few.queries) / (kMany - kFew), " to ask for an event) and ", grids, " grids a chunk, ",
                few.calls - kFew * calls, " besides; of 64 MiB in ", chunks, " chunks ", all / 64, " calls a MiB");
        CHECK(all / 64 <= 4);
        CHECK(few.calls - kFew * calls <= 40);
        // Encoding is 2 grids where sizes vary, decoding one; two_shot has both twice.
        const double encoding = codec->traits().fixed_size ? 1 : 2;
        CHECK(grids == (encoding + 1) * (algorithm == Algorithm::two_shot ? 2 : 1));
      }
    CHECK(simt::take_reports() == "");
    cudaFree(context);
  }
#endif
}
