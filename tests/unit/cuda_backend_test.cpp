// The CUDA backend under the pipelines, with the stand-in for CUDA or on a GPU: one rank, so that results and residuals
// can be compared with the host's; several ranks are tests/mpi/device.cpp.
#include <doctest/doctest.h>

#include <dlfcn.h>

#include <array>
#include <barrier>
#include <cmath>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_blas.hpp"
#include "backend/cuda_driver.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/cuda_tensor_steps.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"
#include "core/convert.hpp"
#include "loopback.hpp"
#include "memory/workers.hpp"
#include "support/cuda_device.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#ifdef CRIMP_SIMT
#include "support/simt/driver.hpp"
#include "support/thread_transport.hpp"
#endif

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("cuda_backend") {
  namespace {

#ifdef CRIMP_SIMT
  constexpr int kEvery = 3;  // in the executor all cases take half a minute
#else
  constexpr int kEvery = 1;
#endif

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

  TEST_CASE("results and residuals have the host's bits, copied bodies or not, in any order that streams may take") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    const auto tensors = layout();
    MemoryResource& device = cuda::device_memory(0);
    Turns turns(kEvery, kEvery, kEvery);
    for (const char* spec : {"3lc", "3lc:zero_run=0", "fp16", "maxmin", "adaq:ratio=0.1", "powersgd:r=3",
                             "powersgd:memory=none", "thc:bits=3,g=17"})
      for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot, Algorithm::low_rank,
                                        Algorithm::homomorphic, Algorithm::integer_sum})
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
            if (!turns.next()) continue;
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
  TEST_CASE("sums of slots are added in their order, of any number and length, in place of one of them") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    cuda::CudaBackend backend(0, false);
    MemoryResource& device = backend.memory();
    constexpr std::uint64_t kFloats = 5000;
    for (const std::size_t n : {1, 2, 8, 9, 15, 16, 19}) {
      std::vector<std::unique_ptr<SharedSlots>> of_rank;
      std::vector<SharedSlots::Handle> handles;
      std::vector<std::vector<float>> values;
      for (std::size_t r = 0; r < n; ++r) {
        of_rank.push_back(backend.shared_slots(kFloats));
        handles.push_back(of_rank.back()->handle());
        values.push_back(make_data(Data::normal, r + 1, kFloats));
        for (std::size_t i = 0; i < kFloats; i += 7) values[r][i] *= r % 2 ? 1e8f : 1.0f;  // so that the order shows
      }
      for (auto& slots : of_rank) slots->open(handles);
      for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{4099}}) {
        CAPTURE(n);
        CAPTURE(count);
        std::vector<float> sum = values[0];
        std::vector<const float*> from;
        for (std::size_t r = 0; r < n; ++r) {
          device.write(of_rank[0]->slot(r), values[r].data(), kFloats * sizeof(float));
          from.push_back(of_rank[n - 1]->slot(r));
          for (std::uint64_t i = 0; i < count && r > 0; ++i) sum[i] += values[r][i];
        }
        of_rank[n - 1]->add(of_rank[n - 1]->slot(0), from, count);
        of_rank[n - 1]->finish();
        CHECK(same_bits(fetched(of_rank[0]->slot(0), kFloats), sum));
      }
    }
    cudaFree(context);
  }

  TEST_CASE("memory of slots that are not needed any more is taken again, not freed") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    cuda::CudaBackend backend(0, false);
    const SharedSlots::Handle first = backend.shared_slots(1000000)->handle();
    CHECK(backend.shared_slots(999999)->handle() == first);
    CHECK(backend.shared_slots(2000000)->handle() != first);
    const auto one = backend.shared_slots(1000000), other = backend.shared_slots(1000000);
    CHECK(one->handle() != other->handle());
    cudaFree(context);
  }

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

  // Values of a call that begins anew, and one piece of work of them.
  struct OneEncoding {
    explicit OneEncoding(const char* spec)
        : codec(make_codec(spec)), backend(0, false), staging(backend.staging()),
          values(kElements * sizeof(float), cuda::device_memory(0)) {
      partition.add_group(kElements);
      backend.prepare(*codec, partition, 1);
      staging.reserve(partition.body_bound(*codec));
      backend.prepare(staging);
      backend.begin(false);
      const auto in = make_data(Data::normal, 4, kElements);
      cuda::device_memory(0).write(values.data(), in.data(), values.bytes());
      body = reinterpret_cast<std::uint8_t*>(staging.take(partition.body_bound(*codec)));
      expected.resize(partition.body_bound(*codec));
      Workers workers(1);
      expected.resize(encode_body(*codec, partition, in.data(), {}, {}, expected.data(), nullptr, workers));
    }
    Backend::Ticket start() {
      const EncodeJob job{*codec, partition, reinterpret_cast<float*>(values.data()), {}, {}, body, nullptr, &bytes};
      return backend.start_encode({&job, 1}, {});
    }
    bool complete() const { return std::memcmp(body, expected.data(), expected.size()) == 0; }

    static constexpr std::uint64_t kElements = 30000;
    std::shared_ptr<const Codec> codec;
    ChunkPartition partition;
    cuda::CudaBackend backend;
    Arena staging;
    Memory values;
    std::uint8_t* body = nullptr;
    std::vector<std::uint8_t> expected;
    std::uint64_t bytes = 0;
  };

#ifdef CRIMP_SIMT
  TEST_CASE("progress, which may leave by longjmp, is made in the thread's own context") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    for (const char* spec : {"fp16", "3lc"}) {  // whose sizes are known, or awaited
      CAPTURE(std::string(spec));
      OneEncoding one(spec);
      void* const own = simt::make_context(0);
      int asked = 0, others = 0;
      const Progress progress([&] { ++asked, others += simt::current_context() != own; });
      one.backend.finish_encode(one.start(), progress);
      CHECK(one.complete());
      BodyView view;
      REQUIRE(view.open(*one.codec, one.partition, {one.body, one.bytes}) == "");
      const Memory out(one.values.bytes(), cuda::device_memory(0));
      int bad = 0;
      const DecodeJob decoding{*one.codec, one.partition, {&view, 1}, {}, reinterpret_cast<float*>(out.data()), false,
                               0,          &bad};
      one.backend.finish_decode(one.backend.start_decode({&decoding, 1}, progress), progress);
      CHECK(bad == -1);
      CHECK(asked > 0);
      CHECK(others == 0);
      CHECK(simt::pop_context() == own);
    }
    cudaFree(context);
  }
#endif

  // Where progress is MPI's, whose error handlers may throw.
  TEST_CASE("a wait that is left has no error of the runtime behind it") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    for (const char* spec : {"fp16", "3lc"}) {
      CAPTURE(std::string(spec));
      OneEncoding one(spec);
      const Backend::Ticket ticket = one.start();
      try {
        one.backend.finish_encode(ticket, Progress([] { throw Error(ErrorCode::transport_failed, "left"); }));
      } catch (const Error&) {
      }
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      one.backend.synchronize();
      one.start();
      one.start();  // looks whether the first one's sizes are there
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      one.backend.synchronize();
    }
    cudaFree(context);
  }

  TEST_CASE("a call begins when what one before has left is complete") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    OneEncoding one("fp16");
    one.start();  // and leaves by longjmp
    one.backend.begin(false);
    CHECK(one.complete());
    one.backend.synchronize();
    cudaFree(context);
  }

  TEST_CASE("managed memory that belongs to no device is the host's") {
    static int ordinal;
    CudaDriver driver{};
    driver.pointer_attributes = [](unsigned count, const int* attributes, void** values, std::uint64_t) {
      for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
          case 1: *static_cast<void**>(values[i]) = nullptr; break;  // its context
          case 2: *static_cast<unsigned*>(values[i]) = 2; break;     // memory of a device
          case 8: *static_cast<unsigned*>(values[i]) = 1; break;     // managed
          case 9: *static_cast<int*>(values[i]) = ordinal; break;
        }
      return 0;
    };
    const float value = 0;
    for (const int of : {0, 3}) {
      ordinal = of;
      CHECK(pointer_attributes(driver, &value).kind == PointerAttributes::managed);
      CHECK(pointer_attributes(driver, &value).device_index == of);
    }
    for (const int of : {-1, -2}) {  // CU_DEVICE_CPU, CU_DEVICE_INVALID
      ordinal = of;
      CHECK(pointer_attributes(driver, &value).kind == PointerAttributes::plain);
    }
  }

  // PowerSGD's steps of several tensors, on the device and on the host, each with its own memory.
  class Steps {
   public:
    Steps(const char* spec, const std::vector<std::uint64_t>& sizes, bool with_memory, bool own_extents = true)
        : codec_(make_codec(spec)), with_memory_(with_memory) {
      for (const std::uint64_t n : sizes) {
        // Other columns than a divisor: the last row is short.
        const auto m = powersgd::matrix_of(n, codec_->parameter_word(), own_extents ? 0 : 61);
        matrices_.push_back(m);
        count_ += n, memories_ += n + m.right(), lefts_ += m.left(), rights_ += m.right();
      }
      for (Arrays* a : {&host_, &read_}) {
        a->values.resize(count_), a->out.resize(count_), a->memory.resize(memories_), a->left.resize(lefts_);
        a->before.resize(rights_), a->right.resize(rights_);
      }
      for (const std::uint64_t n : {count_, count_, memories_, lefts_, rights_, rights_})
        there_.emplace_back(n * sizeof(float), device_);
      steps_ = cuda::make_tensor_steps(0, stream_.get());
    }
    TensorSteps& device() { return *steps_; }

    // A call whose sums are the device's own P and Q, so that both make the rest of the same.
    void call(unsigned salt, bool same_left, bool same_right) {
      host_.values = make_data(Data::normal, salt, count_);
      device_.write(there_[0].data(), host_.values.data(), there_[0].bytes());
      const auto mine = tensors(host_.pointers(), salt), theirs = tensors(pointers_there(), salt);
      steps_->load(*codec_, theirs.size());
      steps_->prepare(*codec_, theirs, 0.25f);
      Workers workers(1);
      for (const auto step : {powersgd::Step::project, powersgd::Step::project_back, powersgd::Step::rebuild}) {
        CAPTURE(static_cast<int>(step));
        powersgd::run_step(step, mine, 0.25f, workers, {});
        steps_->start(step, {});
        REQUIRE(cudaStreamSynchronize(stream_.get()) == cudaSuccess);
        fetch();
        CHECK(same_bits(read_.before, host_.before));
        if (step == powersgd::Step::project) alike(read_.left, host_.left, same_left);
        else CHECK(same_bits(read_.left, host_.left));  // orthonormal
        if (step == powersgd::Step::project_back) alike(read_.right, host_.right, same_right);
        host_.left = read_.left, host_.right = read_.right;
      }
      CHECK(same_bits(read_.out, host_.out));
      CHECK(same_bits(read_.memory, host_.memory));
      CHECK(simt::take_reports() == "");
    }

   private:
    struct Arrays {
      std::vector<float> values, out, memory, left, before, right;
      std::array<float*, 6> pointers() {
        return {values.data(), out.data(), memory.data(), left.data(), before.data(), right.data()};
      }
    };
    struct Stream {
      cudaStream_t stream = nullptr;
      Stream() { REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
      ~Stream() { cudaStreamDestroy(stream); }
      cudaStream_t get() const { return stream; }
    };
    std::array<float*, 6> pointers_there() const {
      std::array<float*, 6> all;
      for (std::size_t i = 0; i < 6; ++i) all[i] = reinterpret_cast<float*>(there_[i].data());
      return all;
    }
    void fetch() {
      const auto to = read_.pointers();
      for (std::size_t i = 0; i < 6; ++i) device_.read(to[i], there_[i].data(), there_[i].bytes());
    }
    std::vector<powersgd::Tensor> tensors(std::array<float*, 6> at, std::uint32_t step) const {
      std::vector<powersgd::Tensor> all;
      std::uint64_t element = 0;
      for (const auto& m : matrices_) {
        all.push_back({m, {element, step}, at[0], at[1], with_memory_ ? at[2] : nullptr, at[3], at[4], at[5]});
        element += m.count, at[0] += m.count, at[1] += m.count, at[2] += m.count + m.right(), at[3] += m.left();
        at[4] += m.right(), at[5] += m.right();
      }
      return all;
    }
    static void alike(const std::vector<float>& a, const std::vector<float>& b, bool same) {
      CHECK(same_bits(a, b) == same);
      float most = 0, difference = 0;
      for (std::size_t i = 0; i < a.size(); ++i)
        most = std::max(most, std::abs(b[i])), difference = std::max(difference, std::abs(a[i] - b[i]));
      CHECK(difference <= 1e-5f * most);
    }

    std::shared_ptr<const Codec> codec_;
    bool with_memory_;
    MemoryResource& device_ = cuda::device_memory(0);
    Stream stream_;
    std::vector<powersgd::Matrix> matrices_;
    std::uint64_t count_ = 0, memories_ = 0, lefts_ = 0, rights_ = 0;
    Arrays host_, read_;
    std::vector<Memory> there_;
    std::unique_ptr<TensorSteps> steps_;
  };

  TEST_CASE("many copies at once are what they are one by one") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    cuda::CudaBackend backend(0, false);
    constexpr std::uint64_t kCounts[] = {0, 1, 3, 4, 5, 10239, 262144, 262145};
    constexpr std::size_t kCopies = 2 * kCopiesAtOnce + 1;
    std::uint64_t room = 0;
    std::vector<FloatCopy> copies(kCopies);
    for (std::size_t i = 0; i < kCopies; ++i) {  // a large one now and then, which is a copy of its own
      copies[i].count = kCounts[i % 97 == 5 ? 6 + i / 97 % 2 : i % 6];
      room += copies[i].count + 8;
    }
    const Memory from(room * sizeof(float), backend.memory()), to(room * sizeof(float), backend.memory());
    std::vector<float> values(room), expected(room, -1.0f), got(room);
    for (std::size_t i = 0; i < room; ++i) values[i] = static_cast<float>(i);
    backend.memory().write(from.data(), values.data(), from.bytes());
    backend.memory().write(to.data(), expected.data(), to.bytes());
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < kCopies; ++i) {
      const std::uint64_t source = at + i % 4, target = at + i / 4 % 4;
      copies[i].from = reinterpret_cast<const float*>(from.data()) + source;
      copies[i].to = reinterpret_cast<float*>(to.data()) + target;
      for (std::uint64_t k = 0; k < copies[i].count; ++k) expected[target + k] = values[source + k];
      at += copies[i].count + 8;
    }
    const auto small =
        std::partition(copies.begin(), copies.end(), [](const FloatCopy& c) { return c.count > 262144; });
    backend.copy_all({});
    backend.copy_all({copies.begin(), small});  // large ones alone
    backend.copy_all(copies);
    backend.synchronize();
    backend.memory().read(got.data(), to.data(), to.bytes());
    CHECK(got == expected);
  }

  TEST_CASE(
      "PowerSGD's products by cuBLAS change a rank's own P and Q alone, and Crimp's kernels make what it fails to") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    const auto products = [] { return simt::calls("cublasSgemm"); };
    const char* const nowhere[] = {"libcublas_of_nobody.so.1"};
    CHECK_THROWS_WITH_AS(cuda::find_cublas(nowhere, true), doctest::Contains("libcublas_of_nobody.so.1"), Error);

    // Nobody has loaded it, and by itself Crimp does not.
    {
      Steps steps("powersgd:min=1,r=2", {70000}, true);
      for (unsigned call = 0; call < 2; ++call) steps.call(call, true, true);
      CHECK(products() == 0);
      CHECK(steps.device().take_complaint() == "");
    }
    REQUIRE(dlopen(CRIMP_CUBLAS_STANDIN, RTLD_NOW | RTLD_LOCAL) != nullptr);

    // Several tensors, an exact one among them; with and without a memory, whole and short last rows.
    for (const char* rank : {"1", "3", "8"})
      for (const bool with_memory : {true, false})
        for (const bool own_extents : {true, false}) {
          CAPTURE(std::string(rank));
          CAPTURE(with_memory);
          CAPTURE(own_extents);
          const std::uint64_t before = products();
          Steps steps((std::string("powersgd:min=1,gemm=cublas,r=") + rank).c_str(), {9000, 30, 6000}, with_memory,
                      own_extents);
          for (unsigned call = 0; call < 2; ++call) steps.call(call, false, false);
          // Two tensors, two calls, two products; each of the values and of the memory, of whole rows and a short one.
          const std::uint64_t whole = 2 * 2 * 2 * (with_memory ? 2u : 1u);
          CHECK(products() - before == (own_extents ? whole : 2 * whole));
          CHECK(steps.device().take_complaint() == "");
        }

    // An error in any of the calls: the host's bits from there on, and one complaint.
    for (int nth = 1; nth <= 8; ++nth) {
      CAPTURE(nth);
      Steps steps("powersgd:min=1,gemm=cublas", {9001}, true);
      simt::fail("cublasSgemm", nth, 13);
      steps.call(1, nth <= 4, true);
      CHECK(steps.device().take_complaint().find("status 13") != std::string::npos);
      const std::uint64_t before = products();
      steps.call(2, true, true);
      CHECK(products() == before);
      CHECK(steps.device().take_complaint() == "");
    }
    // Nor is a handle or its workspace needed.
    for (const char* function : {"cublasSetWorkspace", "cublasSetStream", "cublasSetMathMode"}) {
      CAPTURE(std::string(function));
      Steps steps("powersgd:min=1,gemm=cublas", {9001}, true);
      simt::fail(function, 1, 3);
      steps.call(1, true, true);
      CHECK(steps.device().take_complaint().find(function) != std::string::npos);
    }
    {
      Steps steps("powersgd:min=1,gemm=cublas", {9001}, true);
      simt::set_device_memory(simt::device_bytes() + (1 << 20));
      steps.call(1, true, true);
      simt::set_device_memory(std::size_t{8} << 30);
      CHECK(steps.device().take_complaint() != "");
    }

    // The faster one of each class of shapes, timed once. The first time of either counts for nothing.
    {
      const auto calls = [&](const std::vector<float>& ms, bool timed_same) {
        simt::set_elapsed(ms);
        const std::uint64_t before = products();
        Steps steps("powersgd:min=1,r=4", {70000}, true);
        steps.call(1, timed_same, true);
        const std::uint64_t timed = products();
        steps.call(2, false, true);
        simt::set_elapsed({});
        return std::pair{timed - before, products() - timed};
      };
      using Counts = std::pair<std::uint64_t, std::uint64_t>;
      // P by cuBLAS, Q by the kernels, whose P and Q the call has in which they were timed.
      CHECK(calls({9, 1, 2, 0.1f, 3, 2, 1, 5, 5, 9, 4, 6}, true) == Counts{12, 2});
      CHECK(calls({1, 1, 1, 2, 2, 2}, false) == Counts{2, 2});
      Steps own("powersgd:min=1,r=4,gemm=own", {70000}, true);
      const std::uint64_t before = products();
      own.call(1, true, true);
      CHECK(products() == before);
    }
    simt::reset();
    cudaFree(context);
  }

  // Of calls in so many chunks, each with a piece for every rank: what a rank asks of the driver, and grids.
  struct Asked {
    double calls = 0, grids = 0, queries = 0, attributes = 0;
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
              static_cast<double>(simt::calls("cudaEventQuery")),
              static_cast<double>(simt::calls("cudaFuncSetAttribute"))};
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
            (after.queries - before.queries) / ranks, after.attributes - before.attributes};
  }

  TEST_CASE("a call asks little of the driver: at most 4 calls for a MiB of values, and 3 grids for all shards") {
    void* context = nullptr;
    REQUIRE(cudaMalloc(&context, 1) == cudaSuccess);
    // docs/gpu.md's table is of 8 ranks, which --long has; what is asked for a chunk does not depend on them.
    const int ranks = effort(8, 4, 4, 4);
    constexpr std::uint64_t kFew = 2, kMany = 3, kElements = 16 << 20;  // of 64 MiB
    for (const char* spec : {"3lc", "fp16", "thc", "inceptionn"})  // the last one has more than 48 KiB of shared memory
      for (const Algorithm algorithm :
           {Algorithm::allgather, Algorithm::two_shot, Algorithm::homomorphic, Algorithm::integer_sum}) {
        const bool integers = algorithm == Algorithm::homomorphic || algorithm == Algorithm::integer_sum;
        if (integers != (spec == std::string("thc"))) continue;
        if (algorithm == Algorithm::two_shot && std::string_view(spec) == "inceptionn") continue;
        const Asked few = asked(spec, algorithm, ranks, kFew), many = asked(spec, algorithm, ranks, kMany);
        const double calls = (many.calls - few.calls) / (kMany - kFew),
                     grids = (many.grids - few.grids) / (kMany - kFew);
        const auto codec = make_codec(spec);
        const auto chunks =
            static_cast<double>(div_up(kElements, chunk_elements(kDeviceChunk, *codec, ranks, algorithm)));
        const double all = few.calls + (chunks - static_cast<double>(kFew)) * calls;
        CAPTURE(std::string(spec));
        MESSAGE(std::string(spec), " ", std::string(entry_of(algorithm).name), ": ", calls, " calls (",
                (many.queries - few.queries) / (kMany - kFew), " to ask for an event) and ", grids, " grids a chunk, ",
                few.calls - kFew * calls, " besides; of 64 MiB in ", chunks, " chunks ", all / 64, " calls a MiB");
        CHECK(all / 64 <= 4);
        CHECK(many.attributes == 0);
        CHECK(few.calls - kFew * calls <= 40);
        // Encoding is 2 grids where sizes vary, decoding one; two_shot has both twice.
        const double encoding = codec->traits().fixed_size ? 1 : 2;
        // Sums of integers have a grid for each of five steps.
        CHECK(grids == (integers ? 5 : (encoding + 1) * (algorithm == Algorithm::two_shot ? 2 : 1)));
      }
    CHECK(simt::take_reports() == "");
    cudaFree(context);
  }
#endif
}
