// Calls with buffers in device memory: of a GPU, or of the stand-in for CUDA (tests/support/simt), where plain code
// that touches them faults.
//   device sums [COUNT...] | scattered | named_shares | extents SIDE | rates [broken] | unused | misaligned | pinned |
//   passes | unfinished [passes | managed | nonblocking | old_card] | starved | late | errors [RANK] | many | products
//   [broken] | classify | day KIND [RANK]
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "check.hpp"
#include "core/half.hpp"
#include "crimp/crimp.h"
#include "support/cuda_device.hpp"
#ifdef CRIMP_SIMT
#include "support/simt/driver.hpp"
#endif

using check::rank;
using check::size;

namespace {

bool managed = false;  // what is in device memory

// Bytes in host or device memory; what stands before and behind them must stay.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool on_device) : bytes_(bytes), on_device_(on_device), host_(bytes + 2 * kGuard, 'g') {
    const std::size_t all = host_.size();
    if (on_device_ && (managed ? cudaMallocManaged(&device_, all) : cudaMalloc(&device_, all)) != cudaSuccess)
      std::abort();
    put();
  }
  ~Buffer() {
    if (on_device_) cudaFree(device_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() { return (on_device_ ? static_cast<char*>(device_) : host_.data()) + kGuard; }
  void set(const void* from) {
    std::memcpy(host_.data() + kGuard, from, bytes_);
    put();
  }
  std::vector<char> get() {
    if (on_device_ && cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost) != cudaSuccess)
      std::abort();
    for (std::size_t i = 0; i < kGuard; ++i)
      CHECK(host_[i] == 'g' && host_[host_.size() - 1 - i] == 'g', "written outside the buffer");
    return {host_.begin() + kGuard, host_.end() - kGuard};
  }

 private:
  static constexpr std::size_t kGuard = 64;
  void put() {
    if (on_device_ && cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice) != cudaSuccess)
      std::abort();
  }
  std::size_t bytes_;
  bool on_device_;
  std::vector<char> host_;
  void* device_ = nullptr;
};

std::vector<char> values(std::size_t count, crimp_dtype type, unsigned salt) {
  const std::size_t element = type == CRIMP_FLOAT64 ? 8 : type == CRIMP_FLOAT32 ? 4 : 2;
  std::vector<char> all(count * element);
  for (std::size_t i = 0; i < count; ++i) {
    const double x = check::value(i, rank, salt) * (i / 3000 % 2 ? 0x1p-6 : 1);
    const auto f = static_cast<float>(x);
    const std::uint16_t half = type == CRIMP_FLOAT16 ? crimp::half_from_float(f) : crimp::bfloat_from_float(f);
    std::memcpy(all.data() + i * element,
                type == CRIMP_FLOAT64   ? static_cast<const void*>(&x)
                : type == CRIMP_FLOAT32 ? static_cast<const void*>(&f)
                                        : &half,
                element);
  }
  return all;
}

// Who holds send and receive buffer in device memory.
enum Homes { kHost, kDevice, kMixedRanks, kSendOnly, kReceiveOnly, kHomes };
bool send_on_device(int homes) {
  return homes == kDevice || (homes == kMixedRanks && rank % 2 == 0) || homes == kSendOnly;
}
bool receive_on_device(int homes) {
  return homes == kDevice || (homes == kMixedRanks && rank % 2 == 0) || homes == kReceiveOnly;
}

// The same calls on five communicators, with buffers in different places: every result has the host's bits, call by
// call.
void sums(const std::vector<std::size_t>& counts) {
  MPI_Comm comms[kHomes];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  unsigned salt = 0;
  long calls = 0, on_device = 0;
  for (const std::size_t count : counts)
    for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT64, CRIMP_FLOAT16, CRIMP_BFLOAT16})
      for (const bool in_place : {false, true})
        for (int repeat = 0; repeat < 2; ++repeat) {
          ++salt;
          const auto mine = values(count, type, salt);
          const std::string name = "tensor" + std::to_string(count);
          const crimp_segment segments[] = {
              {name.c_str(), count / 3}, {"bias", count / 3}, {"last", count - 2 * (count / 3)}};
          std::vector<char> expected;
          for (int homes = 0; homes < kHomes; ++homes) {
            Buffer send(mine.size(), in_place ? receive_on_device(homes) : send_on_device(homes));
            Buffer receive(mine.size(), receive_on_device(homes));
            (in_place ? receive : send).set(mine.data());
            const int rc = crimp_allreduce(in_place ? MPI_IN_PLACE : send.data(), receive.data(), count, type,
                                           comms[homes], segments, 3);
            CHECK(rc == MPI_SUCCESS, "code %d", rc);
            ++calls;
            const bool sent = (in_place ? receive_on_device(homes) : send_on_device(homes));
            on_device += sent && receive_on_device(homes);
            const auto got = receive.get();
            if (homes == kHost) expected = got;
            CHECK(got == expected, "count %zu, type %d, in place %d, homes %d, call %u: not the host's bits", count,
                  static_cast<int>(type), in_place, homes, salt);
            if (!in_place) CHECK(send.get() == mine, "sendbuf was changed");
            CHECK(check::identical(got.data(), got.size(), MPI_COMM_WORLD));
          }
          const std::string found = simt::take_reports();
          CHECK(found.empty(), "%s", found.c_str());
        }
  for (auto& comm : comms) MPI_Comm_free(&comm);
  check::expected["calls"] = calls;
  (void)on_device;
}

// The code of a call that does not block and has been waited for. start(&request) makes it.
template <class Start>
int waited(Start start) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = start(&request);
  return rc != MPI_SUCCESS ? rc : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Likewise of sums of which ranks receive shares, here of uneven sizes, or one rank all.
void scattered(bool nonblocking) {
  MPI_Comm comms[kHomes];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  unsigned salt = 0;
  for (const std::size_t count : {std::size_t{1000}, std::size_t{45001}})
    for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT64, CRIMP_BFLOAT16})
      for (const bool to_root : {false, true})
        for (const bool in_place : {false, true}) {
          MPI_Datatype datatype;
          MPI_Op op;
          CHECK(crimp_datatype(type, &datatype, &op) == MPI_SUCCESS);
          const auto mine = values(count, type, ++salt);
          const std::size_t element = mine.size() / count;
          const int root = size - 1;
          std::vector<int> counts(static_cast<std::size_t>(size), to_root ? 0 : 300);
          counts.back() = static_cast<int>(count) - (to_root ? 0 : 300 * (size - 1));
          const std::size_t own = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]) * element;
          const bool here = in_place && (!to_root || rank == root);
          std::vector<char> expected;
          for (int homes = 0; homes < kHomes; ++homes) {
            Buffer send(mine.size(), send_on_device(homes)),
                receive(here ? mine.size() : own, receive_on_device(homes));
            send.set(mine.data());
            if (here) receive.set(mine.data());
            const void* from = here ? MPI_IN_PLACE : send.data();
            const int n = static_cast<int>(count);
            void* const to = receive.data();
            const MPI_Comm comm = comms[homes];
            const int rc = nonblocking ? waited([&](MPI_Request* request) {
              return to_root ? MPI_Ireduce(from, to, n, datatype, op, root, comm, request)
                             : MPI_Ireduce_scatter(from, to, counts.data(), datatype, op, comm, request);
            })
                           : to_root   ? MPI_Reduce(from, to, n, datatype, op, root, comm)
                                       : MPI_Reduce_scatter(from, to, counts.data(), datatype, op, comm);
            CHECK(rc == MPI_SUCCESS, "code %d", rc);
            auto got = receive.get();
            got.resize(own);
            if (homes == kHost) expected = got;
            CHECK(got == expected, "count %zu, type %d, in place %d, to root %d, homes %d: not the host's bits", count,
                  static_cast<int>(type), in_place, to_root, homes);
            CHECK(send.get() == mine, "sendbuf was changed");
            ++check::expected["calls"];
          }
          const std::string found = simt::take_reports();
          CHECK(found.empty(), "%s", found.c_str());
        }
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

// Shares of named tensors, over whose borders some reach; "bias" is summed exactly (CRIMP_RULES).
void named_shares() {
  MPI_Comm comms[kHomes];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  unsigned salt = 0;
  const auto ranks = static_cast<std::size_t>(size);
  for (const std::size_t own : {std::size_t{701}, std::size_t{22001}})
    for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT64, CRIMP_BFLOAT16})
      for (const bool in_place : {false, true}) {
        const std::size_t count = own * ranks;
        const auto mine = values(count, type, ++salt);
        const std::size_t bytes = mine.size() / ranks;
        const crimp_segment segments[] = {{"first", own - 100}, {"bias", 200}, {"last", count - own - 100}};
        std::vector<char> expected;
        for (int homes = 0; homes < kHomes; ++homes) {
          Buffer send(mine.size(), send_on_device(homes)),
              receive(in_place ? mine.size() : bytes, receive_on_device(homes));
          send.set(mine.data());
          if (in_place) receive.set(mine.data());
          const void* from = in_place ? MPI_IN_PLACE : send.data();
          CHECK(crimp_reduce_scatter_block(from, receive.data(), own, type, comms[homes], segments, 3) == MPI_SUCCESS);
          auto got = receive.get();
          got.resize(bytes);
          if (homes == kHost) expected = got;
          CHECK(got == expected, "count %zu, type %d, in place %d, homes %d: not the host's bits", count,
                static_cast<int>(type), in_place, homes);
          CHECK(send.get() == mine, "sendbuf was changed");
          ++check::expected["calls"];
        }
        const std::string found = simt::take_reports();
        CHECK(found.empty(), "%s", found.c_str());
      }
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

// Element i of a matrix of rank 2, of two such factors on every rank in other shares.
float element(std::size_t i, std::size_t cols, int of_rank, unsigned salt) {
  double sum = 0;
  for (unsigned k = 0; k < 2; ++k)
    sum += (1 + 0.25 * of_rank * k) * check::value(i / cols, 0, salt + 2 * k) *
           check::value(i % cols, 0, salt + 2 * k + 1);
  return static_cast<float>(sum);
}

// Extents that nobody says. Both tensors have side x side elements, which is what is taken of such a count before
// anything is known; the second one is another matrix, of which two columns keep everything once that is found.
// CRIMP_CODEC is powersgd:r=2; without a memory a call shows what its extents keep.
void extents(std::size_t side) {
  struct ChunkPartition {
    const char* name;
    std::size_t cols;
  };
  const bool remembers = !std::strstr(std::getenv("CRIMP_CODEC"), "memory=none");
  const std::size_t count = side * side;
  const bool large = side > 200;  // takes the stand-in seconds
  MPI_Comm comms[kMixedRanks + 1];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT16})
    for (const ChunkPartition partition : {ChunkPartition{"square", side}, ChunkPartition{"wide", 4 * side}}) {
      if (large && (type == CRIMP_FLOAT32 || partition.cols == side)) continue;
      const std::string name = partition.name + std::to_string(static_cast<int>(type));
      const crimp_segment segment[] = {{name.c_str(), count}};
      const std::size_t bytes = count * (type == CRIMP_FLOAT16 ? 2 : 4);
      for (unsigned call = 0; call < (large ? 2u : 3u); ++call) {
        std::vector<float> sum(count);
        std::vector<char> mine(bytes);
        for (int r = 0; r < size; ++r)
          for (std::size_t i = 0; i < count; ++i) {
            float x = element(i, partition.cols, r, 1);
            const std::uint16_t half = crimp::half_from_float(x);
            if (type == CRIMP_FLOAT16) x = crimp::float_from_half(half);
            sum[i] += x;
            if (r == rank)
              std::memcpy(mine.data() + i * bytes / count, type == CRIMP_FLOAT16 ? static_cast<const void*>(&half) : &x,
                          bytes / count);
          }
        std::vector<char> expected;
        for (int homes = kHost; homes <= (large ? kDevice : kMixedRanks); ++homes) {
          Buffer buffer(bytes, receive_on_device(homes));
          buffer.set(mine.data());
          CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), count, type, comms[homes], segment, 1) == MPI_SUCCESS);
          ++check::expected["calls"];
          const auto got = buffer.get();
          if (homes == kHost) expected = got;
          CHECK(got == expected, "%s, call %u, homes %d: not the host's bits", name.c_str(), call, homes);
          CHECK(check::identical(got.data(), got.size(), MPI_COMM_WORLD));
        }
        double lost = 0, all = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float x;
          if (type == CRIMP_FLOAT16) {
            std::uint16_t half;
            std::memcpy(&half, expected.data() + 2 * i, 2);
            x = crimp::float_from_half(half);
          } else {
            std::memcpy(&x, expected.data() + 4 * i, 4);
          }
          lost += std::pow(static_cast<double>(x) - static_cast<double>(sum[i]), 2);
          all += std::pow(static_cast<double>(sum[i]), 2);
        }
        if (rank == 0) std::printf("%s, call %u: %.6f of the energy is kept\n", name.c_str(), call, 1 - lost / all);
        // What is found counts from the next call on.
        if (partition.cols == side || call > (remembers ? 1u : 0u))
          CHECK(lost < 1e-3 * all, "%s, call %u: %g of the energy is lost", name.c_str(), call, lost / all);
        if (partition.cols != side && call == 0) CHECK(lost > 0.1 * all, "%s: nothing was to be found", name.c_str());
      }
    }
  for (auto& comm : comms) MPI_Comm_free(&comm);
  const std::string reports = simt::take_reports();
  CHECK(reports.empty(), "%s", reports.c_str());
}

// When the learning rate falls to a tenth, what waits weighs ten times as much, wherever it is kept. Every rank sends
// the largest value of its own; what of that owners keep back (two_shot) waits as the other values do.
void rates() {
  constexpr std::size_t kCount = 5000;
  const auto gradient = [](int of_rank) {
    std::vector<float> g(kCount, 1.0f);
    g[static_cast<std::size_t>(of_rank)] = 3.0f + 0.25f * static_cast<float>(of_rank);
    return g;
  };
  std::vector<double> all(kCount);
  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < kCount; ++i) all[i] += static_cast<double>(gradient(r)[i]);
  const crimp_segment segment[] = {{"tensor", kCount}};
  for (int homes = kHost; homes <= kMixedRanks; ++homes) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    std::vector<double> waits(kCount);
    struct Call {
      double rate, times;
      bool few;
    };
    for (const Call& call : {Call{0.1, 1, true}, Call{0.01, 10, false}, Call{0.01, 1, false}}) {
      CHECK(crimp_set_learning_rate(comm, call.rate) == MPI_SUCCESS);
      CHECK(crimp_set_codec(comm, "*", call.few ? "topk:ratio=0.0002" : "topk:ratio=1") == MPI_SUCCESS);
      Buffer buffer(kCount * sizeof(float), receive_on_device(homes));
      buffer.set(gradient(rank).data());
      CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, comm, segment, 1) == MPI_SUCCESS);
      const auto got = buffer.get();
      CHECK(check::identical(got.data(), got.size(), MPI_COMM_WORLD));
      std::vector<float> sum(kCount);
      std::memcpy(sum.data(), got.data(), got.size());
      CHECK(!call.few || sum[kCount - 1] == 0.0f, "nothing waits");
      for (std::size_t i = 0; i < kCount; ++i) {
        const double expected = all[i] + call.times * waits[i];
        if (!call.few)
          CHECK(std::abs(static_cast<double>(sum[i]) - expected) <= 1e-5 * expected,
                "homes %d, rate %g: element %zu is %.9g, not %.9g", homes, call.rate, i, static_cast<double>(sum[i]),
                expected);
        waits[i] = expected - static_cast<double>(sum[i]);
      }
      ++check::expected["calls"];
    }
    MPI_Comm_free(&comm);
  }
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}

#ifdef CRIMP_SIMT
// Likewise where one copy on rank 0 fails in the call that has the new rate: what that call has not sent weighs ten
// times as much in the next one, and as much more as the rate falls further until then.
void rates_broken(double further) {
  constexpr std::size_t kCount = 70001;  // more than is read at once
  const crimp_segment segment[] = {{"tensor", kCount}};
  int checked = 0, used = 1;
  for (int nth = 1; nth <= 40 && used; ++nth) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const auto sum = [&](double rate, const char* codec, unsigned salt, bool fails, std::vector<double>& all) {
      CHECK(crimp_set_learning_rate(comm, rate) == MPI_SUCCESS && crimp_set_codec(comm, "*", codec) == MPI_SUCCESS);
      std::vector<float> mine(kCount);
      all.assign(kCount, 0);
      for (std::size_t i = 0; i < kCount; ++i) {
        mine[i] = static_cast<float>(check::value(i, rank, salt));
        for (int r = 0; r < size; ++r) all[i] += static_cast<double>(static_cast<float>(check::value(i, r, salt)));
      }
      Buffer buffer(kCount * sizeof(float), true);
      buffer.set(mine.data());
      if (fails) simt::fail("cudaMemcpyAsync", nth, cudaErrorLaunchFailure);
      const auto before = simt::calls("cudaMemcpyAsync");
      const int rc = crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, comm, segment, 1);
      if (fails) used = simt::calls("cudaMemcpyAsync") - before >= static_cast<std::uint64_t>(nth);
      if (fails) simt::reset();
      const auto got = buffer.get();
      std::memcpy(mine.data(), got.data(), got.size());
      return std::pair(rc, mine);
    };
    const auto differs = [](const std::vector<float>& a, const std::vector<double>& b) {
      for (std::size_t i = 0; i < kCount; ++i)
        if (std::abs(static_cast<double>(a[i]) - b[i]) > 1e-4) return true;
      return false;
    };
    std::vector<double> all, waits(kCount);
    const auto first = sum(0.1, "topk:ratio=0.001", 1, false, all).second;
    for (std::size_t i = 0; i < kCount; ++i) waits[i] = 10 * (all[i] - static_cast<double>(first[i]));
    auto [rc, second] = sum(0.01, "topk:ratio=1", 2, rank == 0, all);
    MPI_Allreduce(MPI_IN_PLACE, &rc, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Bcast(&used, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rc == MPI_SUCCESS) {
      if (differs(second, all)) {  // else it was MPI's
        for (std::size_t i = 0; i < kCount; ++i) all[i] += std::exchange(waits[i], 0);
        CHECK(!differs(second, all), "copy %d: neither MPI's sum nor Crimp's", nth);
      }
      const auto third = sum(0.01 / further, "topk:ratio=1", 3, false, all).second;
      for (std::size_t i = 0; i < kCount; ++i) all[i] += further * waits[i];
      CHECK(!differs(third, all), "copy %d: what waited has not the weight of the new rate", nth);
      checked += waits != std::vector<double>(kCount);
    }
    MPI_Comm_free(&comm);
  }
  CHECK(checked >= 4, "%d", checked);  // two blocks, each read and written
}
#endif

// A named tensor is zeros beside others, on one rank or on all: call by call the host's bits, and what is held back of
// it waits.
void unused() {
  constexpr std::size_t kEach = 7000, kCount = 3 * kEach;
  const crimp_segment segments[] = {{"one", kEach}, {"two", kEach}, {"three", kEach}};
  MPI_Comm comms[kHomes];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (unsigned call = 0; call < 7; ++call) {
    auto mine = values(kCount, CRIMP_FLOAT32, call + 1);
    const bool nobody = call % 3 == 1, somebody = call % 3 == 2;  // has left the second one
    if (nobody || (somebody && rank != 0)) std::memset(mine.data() + kEach * sizeof(float), 0, kEach * sizeof(float));
    std::vector<char> expected;
    for (const int homes : {kHost, kDevice, kMixedRanks}) {
      Buffer buffer(mine.size(), receive_on_device(homes));
      buffer.set(mine.data());
      CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, comms[homes], segments, 3) ==
            MPI_SUCCESS);
      ++check::expected["calls"];
      const auto got = buffer.get();
      if (homes == kHost) expected = got;
      CHECK(got == expected, "homes %d, call %u: not the host's bits", homes, call);
    }
    std::vector<float> sum(kCount);
    std::memcpy(sum.data(), expected.data(), expected.size());
    const bool zeros = std::all_of(sum.begin() + kEach, sum.begin() + 2 * kEach, [](float x) { return x == 0; });
    CHECK(zeros == nobody, "call %u", call);
  }
  for (auto& comm : comms) MPI_Comm_free(&comm);
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}

// Buffers that begin within an element, in device memory.
void misaligned() {
  MPI_Comm comms[2];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  constexpr std::size_t kCount = 12001;
  const crimp_segment segment[] = {{"tensor", kCount}};
  unsigned salt = 0;
  for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT64, CRIMP_FLOAT16})
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto mine = values(kCount, type, ++salt);
      Buffer plain(mine.size(), false), buffer(mine.size() + 1, true);
      plain.set(mine.data());
      std::vector<char> behind(1, 'x');
      behind.insert(behind.end(), mine.begin(), mine.end());
      buffer.set(behind.data());
      const auto sum = [&](void* at, MPI_Comm comm) {
        CHECK(crimp_allreduce(MPI_IN_PLACE, at, kCount, type, comm, segment, 1) == MPI_SUCCESS);
        ++check::expected["calls"];
      };
      sum(plain.data(), comms[0]);
      sum(static_cast<char*>(buffer.data()) + 1, comms[1]);
      const auto got = buffer.get();
      CHECK(got[0] == 'x' && std::vector<char>(got.begin() + 1, got.end()) == plain.get(),
            "type %d: not the host's bits", static_cast<int>(type));
    }
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

#ifdef CRIMP_SIMT
// Of host memory a call in device memory pins what its chunks need, and nothing for its values.
void pinned() {
  constexpr std::size_t kCount = 1000000;
  const crimp_segment segment[] = {{"tensor", kCount}};
  const auto mine = values(kCount, CRIMP_FLOAT32, 1);
  Buffer buffer(mine.size(), true);
  buffer.set(mine.data());
  const std::size_t before = simt::pinned_bytes();
  CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, segment, 1) == MPI_SUCCESS);
  ++check::expected["calls"];
  const std::size_t bytes = simt::pinned_bytes() - before;
  CHECK(bytes > 0 && bytes < mine.size() / 2, "%zu bytes", bytes);
}
#endif

// Everything that may go through unchanged gives MPI's own bits, and leaves its input alone.
template <class Call>
void pass(const char* what, std::size_t sent, std::size_t received, Call call) {
  std::vector<int> in(sent);
  for (std::size_t i = 0; i < sent; ++i)
    in[i] = static_cast<int>(check::random_bits(i, static_cast<unsigned>(rank)) & 0xffff);
  std::vector<char> expected;
  for (const bool on_device : {false, true}) {
    Buffer from(sent * sizeof(int), on_device), to(received * sizeof(int), on_device);
    from.set(in.data());
    CHECK(call(from.data(), to.data()) == MPI_SUCCESS, "%s", what);
    const auto got = to.get();
    if (!on_device) expected = got;
    CHECK(got == expected, "%s: not MPI's result", what);
    const auto left = from.get();
    CHECK(std::memcmp(left.data(), in.data(), left.size()) == 0, "%s: its input was changed", what);
  }
}

#ifdef CRIMP_SIMT
int ran = 0, code = MPI_SUCCESS;
void handle(MPI_Comm*, int* of, ...) { ++ran, code = *of; }

// The copy of a result fails on a communicator that is no more: the error is raised on MPI_COMM_WORLD.
void pass_on_a_freed_communicator() {
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  Buffer buffer(1000 * sizeof(int), true);
  MPI_Comm freed;
  MPI_Comm_dup(MPI_COMM_WORLD, &freed);
  MPI_Request request;
  CHECK(MPI_Iallreduce(MPI_IN_PLACE, buffer.data(), 1000, MPI_INT, MPI_MAX, freed, &request) == MPI_SUCCESS);
  const auto get_status =
      reinterpret_cast<decltype(&PMPI_Request_get_status)>(check::in_libmpi("PMPI_Request_get_status"));
  for (int flag = 0; !flag;) get_status(request, &flag, MPI_STATUS_IGNORE);  // Open MPI 4 goes on with a freed one
  MPI_Comm_free(&freed);
  simt::fail("cudaMemcpyAsync", 1, cudaErrorLaunchFailure);
  const int rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
  simt::reset();
  CHECK((rc > MPI_ERR_LASTCODE && ran == 1 && code == rc), "code %d, the handler ran %d times, for %d", rc, ran, code);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
}
#endif

void passes() {
  constexpr std::size_t n = 1000;
  const auto ranks = static_cast<std::size_t>(size);
  const MPI_Comm comm = MPI_COMM_WORLD;
  std::vector<int> counts, places, scattered(ranks, static_cast<int>(n));
  for (int r = 0, at = 0; r < size; ++r) {  // with gaps
    counts.push_back(10 + r);
    places.push_back(at);
    at += 15 + r;
  }
  const std::size_t spread = static_cast<std::size_t>(places.back() + counts.back());
  const int root = size - 1;
  pass("MPI_Allreduce", n, n, [&](void* s, void* r) { return MPI_Allreduce(s, r, n, MPI_INT, MPI_SUM, comm); });
  pass("MPI_Allreduce in place", n, n, [&](void* s, void* r) {
    cudaMemcpy(r, s, n * sizeof(int), cudaMemcpyDefault);
    return MPI_Allreduce(MPI_IN_PLACE, r, n, MPI_INT, MPI_MAX, comm);
  });
  pass("MPI_Reduce", n, n, [&](void* s, void* r) { return MPI_Reduce(s, r, n, MPI_INT, MPI_SUM, root, comm); });
  pass("MPI_Bcast", n, n, [&](void* s, void* r) {
    cudaMemcpy(r, s, n * sizeof(int), cudaMemcpyDefault);
    return MPI_Bcast(r, n, MPI_INT, root, comm);
  });
  pass("MPI_Gather", n, n * ranks,
       [&](void* s, void* r) { return MPI_Gather(s, n, MPI_INT, r, n, MPI_INT, root, comm); });
  pass("MPI_Gather in place", n * ranks, n * ranks, [&](void* s, void* r) {
    cudaMemcpy(r, s, n * ranks * sizeof(int), cudaMemcpyDefault);
    return rank == root ? MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r, n, MPI_INT, root, comm)
                        : MPI_Gather(s, n, MPI_INT, nullptr, 0, MPI_DATATYPE_NULL, root, comm);
  });
  pass("MPI_Gatherv", n, spread, [&](void* s, void* r) {
    return MPI_Gatherv(s, counts[static_cast<std::size_t>(rank)], MPI_INT, r, counts.data(), places.data(), MPI_INT,
                       root, comm);
  });
  pass("MPI_Scatter", n * ranks, n,
       [&](void* s, void* r) { return MPI_Scatter(s, n, MPI_INT, r, n, MPI_INT, root, comm); });
  pass("MPI_Scatterv", spread, n, [&](void* s, void* r) {
    return MPI_Scatterv(s, counts.data(), places.data(), MPI_INT, r, counts[static_cast<std::size_t>(rank)], MPI_INT,
                        root, comm);
  });
  pass("MPI_Allgather", n, n * ranks,
       [&](void* s, void* r) { return MPI_Allgather(s, n, MPI_INT, r, n, MPI_INT, comm); });
  pass("MPI_Allgather in place", n * ranks, n * ranks, [&](void* s, void* r) {
    cudaMemcpy(r, s, n * ranks * sizeof(int), cudaMemcpyDefault);
    return MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r, n, MPI_INT, comm);
  });
  pass("MPI_Allgather from an absolute address", n, n * ranks, [&](void* s, void* r) {
    const int all = n;
    MPI_Aint at = 0;
    MPI_Get_address(s, &at);
    MPI_Datatype absolute;
    MPI_Type_create_hindexed(1, &all, &at, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    std::vector<int> here(n * ranks);  // where only the host's memory is
    const int rc = MPI_Allgather(MPI_BOTTOM, 1, absolute, here.data(), n, MPI_INT, comm);
    MPI_Type_free(&absolute);
    cudaMemcpy(r, here.data(), here.size() * sizeof(int), cudaMemcpyDefault);
    return rc;
  });
  pass("MPI_Allgatherv", n, spread, [&](void* s, void* r) {
    return MPI_Allgatherv(s, counts[static_cast<std::size_t>(rank)], MPI_INT, r, counts.data(), places.data(), MPI_INT,
                          comm);
  });
  pass("MPI_Alltoall", n * ranks, n * ranks,
       [&](void* s, void* r) { return MPI_Alltoall(s, n, MPI_INT, r, n, MPI_INT, comm); });
  pass("MPI_Alltoall in place", n * ranks, n * ranks, [&](void* s, void* r) {
    // Not as they lie in the host's memory, which a copy there may come to reuse.
    cudaMemcpy(r, static_cast<int*>(s) + 1, (n * ranks - 1) * sizeof(int), cudaMemcpyDefault);
    return MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, r, n, MPI_INT, comm);
  });
  const std::vector<int> mine(ranks, counts[static_cast<std::size_t>(rank)]);
  std::vector<int> mine_at(ranks);
  for (std::size_t r = 0; r < ranks; ++r) mine_at[r] = static_cast<int>(r * 20);
  pass("MPI_Alltoallv", 20 * ranks + 20, spread, [&](void* s, void* r) {
    return MPI_Alltoallv(s, mine.data(), mine_at.data(), MPI_INT, r, counts.data(), places.data(), MPI_INT, comm);
  });
  // Rank r receives 10 + r of each. Not as it lies in the host's memory, as above.
  std::vector<int> rising(ranks), rising_at(ranks);
  for (std::size_t r = 0; r < ranks; ++r) rising[r] = 10 + static_cast<int>(r), rising_at[r] = static_cast<int>(r * 20);
  const std::vector<int> to_me(ranks, rising[static_cast<std::size_t>(rank)]);
  pass("MPI_Alltoallv of other counts", 20 * ranks + 1, 20 * ranks, [&](void* s, void* r) {
    return MPI_Alltoallv(static_cast<int*>(s) + 1, rising.data(), rising_at.data(), MPI_INT, r, to_me.data(),
                         rising_at.data(), MPI_INT, comm);
  });
  pass("MPI_Reduce_scatter", n * ranks, n,
       [&](void* s, void* r) { return MPI_Reduce_scatter(s, r, scattered.data(), MPI_INT, MPI_SUM, comm); });
  pass("MPI_Reduce_scatter_block", n * ranks, n,
       [&](void* s, void* r) { return MPI_Reduce_scatter_block(s, r, n, MPI_INT, MPI_SUM, comm); });
  pass("MPI_Iallreduce", n, n, [&](void* s, void* r) {
    return waited([&](MPI_Request* q) { return MPI_Iallreduce(s, r, n, MPI_INT, MPI_SUM, comm, q); });
  });
  pass("MPI_Ireduce", n, n, [&](void* s, void* r) {
    return waited([&](MPI_Request* q) { return MPI_Ireduce(s, r, n, MPI_INT, MPI_SUM, root, comm, q); });
  });
  pass("MPI_Ireduce_scatter", n * ranks, n, [&](void* s, void* r) {
    return waited(
        [&](MPI_Request* q) { return MPI_Ireduce_scatter(s, r, scattered.data(), MPI_INT, MPI_SUM, comm, q); });
  });
  pass("MPI_Ireduce_scatter_block", n * ranks, n, [&](void* s, void* r) {
    return waited([&](MPI_Request* q) { return MPI_Ireduce_scatter_block(s, r, n, MPI_INT, MPI_SUM, comm, q); });
  });
  MPI_Datatype every_third;
  MPI_Type_vector(100, 1, 3, MPI_INT, &every_third);
  MPI_Type_commit(&every_third);
  pass("MPI_Bcast of a strided type", n, n, [&](void* s, void* r) {
    cudaMemcpy(r, s, n * sizeof(int), cudaMemcpyDefault);
    return MPI_Bcast(static_cast<int*>(r) + 3, 2, every_third, root, comm);
  });
  MPI_Type_free(&every_third);
#ifdef CRIMP_SIMT
  pass_on_a_freed_communicator();
#endif
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}

// A call while streams of the program's, which Crimp waits for, still have to write what it sends and to read what
// stands where it receives: the result of a call with the host's memory. call(send, receive) makes it.
template <class Call>
void unfinished(const char* what, const std::vector<char>& mine, std::size_t received, Call call) {
  const std::vector<char> before(received, 'b');
  Buffer from(mine.size(), false), to(received, false);
  from.set(mine.data());
  to.set(before.data());
  CHECK(call(from.data(), to.data()) == MPI_SUCCESS, "%s", what);
  const auto expected = to.get();
  void* pinned = nullptr;
  cudaStream_t blocking = nullptr;
  CHECK(cudaMallocHost(&pinned, mine.size()) == cudaSuccess && cudaStreamCreate(&blocking) == cudaSuccess);
  std::memcpy(pinned, mine.data(), mine.size());
  int which = 0;
  for (cudaStream_t stream : {cudaStream_t{}, cudaStreamPerThread, blocking}) {
    Buffer send(mine.size(), true), receive(received, true), aside(received, true);
    receive.set(before.data());
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaMemcpyAsync(send.data(), pinned, mine.size(), cudaMemcpyHostToDevice, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(aside.data(), receive.data(), received, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    CHECK(call(send.data(), receive.data()) == MPI_SUCCESS, "%s", what);
    CHECK(cudaPeekAtLastError() == cudaSuccess, "%s: %s is left behind", what, cudaGetErrorName(cudaGetLastError()));
    CHECK(receive.get() == expected, "%s, stream %d: what it still wrote is not summed", what, which);
    CHECK(aside.get() == before, "%s, stream %d: what it still read was overwritten", what, which);
    CHECK(send.get() == mine, "%s, stream %d: its input was changed", what, which);
    ++which;
  }
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}

void unfinished(const std::string& kind) {
  constexpr int n = 12001;
  constexpr std::size_t bytes = n * sizeof(float);
  const auto mine = values(n, CRIMP_FLOAT32, 1);
  const MPI_Comm comm = MPI_COMM_WORLD;
  if (kind == "passes") {
    const auto all = static_cast<std::size_t>(size) * bytes;
    unfinished("MPI_Allreduce", mine, bytes,
               [&](void* s, void* r) { return MPI_Allreduce(s, r, n, MPI_INT, MPI_MAX, comm); });
    unfinished("MPI_Allgather", mine, all,
               [&](void* s, void* r) { return MPI_Allgather(s, n, MPI_INT, r, n, MPI_INT, comm); });
    unfinished("MPI_Allgather of the host's values", mine, all,
               [&](void*, void* r) { return MPI_Allgather(mine.data(), n, MPI_INT, r, n, MPI_INT, comm); });
    unfinished("MPI_Iallreduce", mine, bytes, [&](void* s, void* r) {
      return waited([&](MPI_Request* q) { return MPI_Iallreduce(s, r, n, MPI_INT, MPI_MAX, comm, q); });
    });
    return;
  }
  // Without a memory of the call before.
  const auto anew = [&](auto sum) {
    return [sum](void* s, void* r) {
      MPI_Comm other;
      MPI_Comm_dup(MPI_COMM_WORLD, &other);
      const int rc = sum(s, r, other);
      MPI_Comm_free(&other);
      ++check::expected["calls"];
      return rc;
    };
  };
  if (kind == "nonblocking") {
    unfinished("MPI_Iallreduce", mine, bytes, anew([&](void* s, void* r, MPI_Comm other) {
                 return waited([&](MPI_Request* q) { return MPI_Iallreduce(s, r, n, MPI_FLOAT, MPI_SUM, other, q); });
               }));
    return;
  }
  managed = kind == "managed";
#ifdef CRIMP_SIMT
  if (kind == "old_card") simt::set_compute_capability(7, 5);  // the driver's functions copy
#endif
  const crimp_segment segments[] = {{"one", n / 2}, {"two", n - n / 2}};
  const auto named = [&](const void* s, void* r, MPI_Comm other) {
    return crimp_allreduce(s, r, n, CRIMP_FLOAT32, other, segments, 2);
  };
  unfinished("crimp_allreduce", mine, bytes, anew(named));
  unfinished("crimp_allreduce of the host's values", mine, bytes,
             anew([&](void*, void* r, MPI_Comm other) { return named(mine.data(), r, other); }));
  unfinished("crimp_allreduce to the host", mine, bytes, anew([&](void* s, void* r, MPI_Comm other) {
               std::vector<char> here(bytes);
               const int rc = named(s, here.data(), other);
               return cudaMemcpy(r, here.data(), bytes, cudaMemcpyDefault) == cudaSuccess ? rc : MPI_ERR_OTHER;
             }));
}

// One call on a communicator, checked; the code where it failed.
int one_sum(
    MPI_Comm comm, int count, unsigned salt, bool expect_success, const std::function<void()>& before = [] {}) {
  std::vector<float> in(static_cast<std::size_t>(count));
  const char* codec = std::getenv("CRIMP_CODEC");
  const bool alike = codec && std::strncmp(codec, "powersgd", 8) == 0;  // a matrix of rank 1
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(alike ? 0 : i, rank, salt));
  Buffer buffer(in.size() * sizeof(float), true);
  buffer.set(in.data());
  before();
  const char* rules = std::getenv("CRIMP_RULES");
  const std::uint64_t half = static_cast<std::uint64_t>(count) / 2;
  const crimp_segment segments[] = {{"one", half}, {"two", static_cast<std::uint64_t>(count) - half}};
  const int rc = rules && std::strstr(rules, "two=")  // two codecs
                     ? crimp_allreduce(MPI_IN_PLACE, buffer.data(), static_cast<std::uint64_t>(count), CRIMP_FLOAT32,
                                       comm, segments, 2)
                     : MPI_Allreduce(MPI_IN_PLACE, buffer.data(), count, MPI_FLOAT, MPI_SUM, comm);
  if (expect_success) CHECK(rc == MPI_SUCCESS, "code %d", rc);
  if (rc != MPI_SUCCESS) return rc;
  std::vector<float> out(in.size());
  CHECK(crimp::test::copy_anywhere(out.data(), buffer.data(), out.size() * sizeof(float)));
  const double allowed = size * (check::codec_error() + check::codec_noise() + 0x1p-22);
  for (std::size_t i = 0; i < in.size(); ++i) {
    double sum = 0;
    for (int r = 0; r < size; ++r) sum += static_cast<float>(check::value(alike ? 0 : i, r, salt));
    CHECK(std::abs(static_cast<double>(out[i]) - sum) <= allowed, "element %zu of call %u is %g, not %g", i, salt,
          static_cast<double>(out[i]), sum);
  }
  return rc;
}

#ifdef CRIMP_SIMT
// A call launches as many kernels whatever the type of its values, where they are widened and rounded in those that
// encode and decode; else it launches more.
void converted(bool expected) {
  std::uint64_t of_floats = 0;
  for (const crimp_dtype type : {CRIMP_FLOAT32, CRIMP_FLOAT16, CRIMP_BFLOAT16, CRIMP_FLOAT64}) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    constexpr std::size_t kCount = 30000;
    const auto mine = values(kCount, type, 1);
    Buffer buffer(mine.size(), true);
    std::uint64_t launched = 0;
    for (int call = 0; call < 3; ++call) {
      buffer.set(mine.data());
      const std::uint64_t before = simt::launches();
      const crimp_segment segment[] = {{"one", kCount}};
      CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, type, comm, segment, 1) == MPI_SUCCESS);
      ++check::expected["calls"];
      launched = simt::launches() - before;
    }
    if (type == CRIMP_FLOAT32) of_floats = launched;
    else
      CHECK((launched == of_floats) == expected, "%llu launches, %llu of float32, type %d",
            static_cast<unsigned long long>(launched), static_cast<unsigned long long>(of_floats),
            static_cast<int>(type));
    MPI_Comm_free(&comm);
  }
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}
#endif

// Calls enough for the chooser to measure and to settle.
void many() {
  for (unsigned salt = 1; salt <= 80; ++salt) one_sum(MPI_COMM_WORLD, 30000, salt, true);
#ifdef CRIMP_SIMT
  CHECK(simt::calls("cudaIpcOpenMemHandle") > 0, "no sum within a node was measured in device memory");
#endif
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}

#ifdef CRIMP_SIMT
int bad_rank = 0;  // whose day is bad

// Every call of the runtime fails once on one rank: no rank hangs, a rank that says success has the sum, and the next
// call is right on all ranks.
void errors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr int kCount = 30000;  // three chunks
  unsigned salt = 0;
  one_sum(MPI_COMM_WORLD, kCount, ++salt, true);
  int injected = 0, failed = 0;
  for (const char* function :
       {"cudaMalloc", "cudaHostAlloc", "cudaMemsetAsync", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority",
        "cudaEventCreateWithFlags", "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchKernelEx",
        "cudaEventQuery", "cudaStreamSynchronize"})
    for (int nth = 1; nth <= 25; ++nth) {
      MPI_Comm comm;  // a new one, whose memory is not there yet
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      std::uint64_t before = 0;
      const int rc = one_sum(comm, kCount, ++salt, false, [&] {
        before = simt::calls(function);
        if (rank == bad_rank)
          simt::fail(function, nth, std::strstr(function, "lloc") ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure);
      });
      int used = simt::calls(function) - before >= static_cast<std::uint64_t>(nth);
      if (rank == bad_rank) {
        simt::reset();
        injected += used;
        failed += rc != MPI_SUCCESS;
      }
      MPI_Bcast(&used, 1, MPI_INT, bad_rank, MPI_COMM_WORLD);
      one_sum(comm, kCount, ++salt, true);
      MPI_Comm_free(&comm);
      if (!used) break;
    }
  if (rank == bad_rank) std::printf("errors: %d injected, %d of them returned by the call\n", injected, failed);
  CHECK(rank != bad_rank || injected > 40, "%d", injected);
}
#endif

#ifdef CRIMP_SIMT
extern "C" {
int cuInit(unsigned);
int cuCtxGetCurrent(void**);
int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
}

// Calls of a tensor that keeps residuals, once with host buffers and once in device memory, where the day is bad while
// the call runs: same bits, call by call.
class Day {
 public:
  Day() {
    MPI_Comm_dup(MPI_COMM_WORLD, &host_);
    MPI_Comm_dup(MPI_COMM_WORLD, &device_);
  }
  ~Day() {
    MPI_Comm_free(&host_);
    MPI_Comm_free(&device_);
  }
  void call(const std::function<void()>& enter, const std::function<void()>& leave, int of_device = 0,
            crimp_dtype type = CRIMP_FLOAT32) {
    constexpr std::size_t kCount = 30000;
    const auto mine = values(kCount, type, ++salt_);
    const crimp_segment segments[] = {{"one", kCount / 2}, {"two", kCount / 2}};
    const auto sum = [&](void* buffer, MPI_Comm comm) {
      const int rc = crimp_allreduce(MPI_IN_PLACE, buffer, kCount, type, comm, segments, 2);
      CHECK(rc == MPI_SUCCESS, "code %d", rc);
      ++check::expected["calls"];
    };
    Buffer on_host(mine.size(), false);
    on_host.set(mine.data());
    sum(on_host.data(), host_);
    int now = 0;
    CHECK(cudaGetDevice(&now) == cudaSuccess && (now == of_device || cudaSetDevice(of_device) == cudaSuccess));
    Buffer on_device(mine.size(), true);
    on_device.set(mine.data());
    enter();
    sum(on_device.data(), device_);
    leave();
    CHECK(on_device.get() == on_host.get(), "call %u: not the host's bits", salt_);
    const std::string found = simt::take_reports();
    CHECK(found.empty(), "%s", found.c_str());
  }

 private:
  MPI_Comm host_, device_;
  unsigned salt_ = 0;
};

// The memory of one rank's device is full, later free, and full again after a time.
void full_day() {
  Day day;
  const auto nothing = [] {};
  const auto fill = [] {
    if (rank == bad_rank) simt::set_device_memory(simt::device_bytes() + 1000);
  };
  const auto free_again = [] { simt::set_device_memory(std::size_t{8} << 30); };
  for (int i = 0; i < 2; ++i) day.call(fill, free_again);
  const std::size_t with_residuals = simt::device_bytes();
  for (int i = 0; i < 12; ++i) day.call(nothing, nothing);
  CHECK(simt::device_bytes() > with_residuals || rank != bad_rank, "it never came back to the device");
  for (int i = 0; i < 2; ++i) day.call(fill, free_again);  // all is there
  // Full in the middle of getting what a call needs.
  for (const std::size_t left : {100000, 300000, 600000}) {
    Day other;
    other.call(
        [&] {
          if (rank == bad_rank) simt::set_device_memory(simt::device_bytes() + left);
        },
        free_again);
    other.call(nothing, nothing);
  }
  const bool slow = std::strncmp(std::getenv("CRIMP_CODEC"), "powersgd", 8) == 0;  // in the stand-in: the last one
  for (const char* function : {"cudaHostAlloc", "cudaMalloc"}) {
    int all = 0;
    const auto count = [&] { all = static_cast<int>(simt::calls(function)) - all; };
    Day().call(count, count);
    MPI_Bcast(&all, 1, MPI_INT, bad_rank, MPI_COMM_WORLD);
    for (int nth = slow ? all : 1; nth <= all; ++nth) {
      Day other;
      other.call(
          [&] {
            if (rank == bad_rank) simt::fail(function, nth, cudaErrorMemoryAllocation);
          },
          [] { simt::reset(); });
      other.call(nothing, nothing);
    }
  }
}

// Rank 0 has memory for the code of so many kernels only, and none is loaded when the call begins.
void code_day() {
  const bool slow = std::strncmp(std::getenv("CRIMP_CODEC"), "powersgd", 8) == 0;  // in the stand-in
  for (const auto type : {CRIMP_FLOAT32, CRIMP_FLOAT16})
    for (std::size_t loads = 0; loads < 10; ++loads) {
      // Of the steps' kernels, and of those that come behind them.
      if (slow && (type == CRIMP_FLOAT32 || (loads != 3 && loads != 6))) continue;
      Day day;
      day.call(
          [&] {
            if (rank == bad_rank) simt::set_loads(loads);
          },
          [] { simt::reset(); }, 0, type);
    }
}

// No function of the runtime is called but those that ask for versions, which would fail.
void old_driver_day() {
  Day day;
  for (int i = 0; i < 3; ++i)
    day.call(
        [] {
          if (rank == bad_rank) simt::set_driver_version(12040);
        },
        [] { simt::set_driver_version(13000); });
}

void old_card_day() {
  if (rank == bad_rank) simt::set_compute_capability(7, 5);
  Day day;
  const auto launches = simt::launches();
  for (int i = 0; i < 3; ++i) day.call([] {}, [] {});
  CHECK((simt::launches() == launches) == (rank == bad_rank));
}

// Rank 0's plugin is of another build.
void refused_day() {
  Day day;
  const auto launches = simt::launches();
  for (int i = 0; i < 3; ++i) day.call([] {}, [] {});
  day.call([] {}, [] {}, 0, CRIMP_FLOAT16);
  CHECK((simt::launches() == launches) == (rank == bad_rank));
  pass("MPI_Allreduce", 1000, 1000,
       [&](void* s, void* r) { return MPI_Allreduce(s, r, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
  pass("MPI_Bcast", 1000, 1000, [&](void* s, void* r) {
    cudaMemcpy(r, s, 1000 * sizeof(int), cudaMemcpyDefault);
    return MPI_Bcast(r, 1000, MPI_INT, size - 1, MPI_COMM_WORLD);
  });
}

// Buffers that were made in another context than the primary one, which exists as well.
void foreign_day() {
  void* made = nullptr;
  CHECK(cudaMalloc(&made, 1) == cudaSuccess);  // the primary one is there
  if (rank == bad_rank) CHECK(simt::make_context(0) != nullptr);
  Day day;
  const auto launches = simt::launches();
  for (int i = 0; i < 3; ++i) day.call([] {}, [] {});
  CHECK((simt::launches() == launches) == (rank == bad_rank));
  pass("MPI_Allreduce", 1000, 1000,
       [&](void* s, void* r) { return MPI_Allreduce(s, r, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
}

// The first buffers are in a context of the program's own, which the calling thread does not have; there is no primary
// one.
void unseen_day(bool passing) {
  void* taken = nullptr;
  if (rank == bad_rank) CHECK(cuInit(0) == 0 && simt::make_context(0) != nullptr);
  const auto without = [&](const std::function<int()>& call) {
    CHECK(rank != bad_rank || cuCtxPopCurrent_v2(&taken) == 0);
    const int rc = call();
    CHECK(rank != bad_rank || cuCtxPushCurrent_v2(taken) == 0);
    return rc;
  };
  if (passing)
    return pass("MPI_Allreduce", 1000, 1000, [&](void* s, void* r) {
      return without([&] { return MPI_Allreduce(s, r, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
    });
  constexpr std::size_t kCount = 30000;
  const crimp_segment segment[] = {{"one", kCount}};
  const auto mine = values(kCount, CRIMP_FLOAT32, 1);
  std::vector<char> sums[2];
  for (const bool on_device : {true, false}) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    Buffer buffer(mine.size(), on_device);
    buffer.set(mine.data());
    CHECK(without([&] {
            return crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, comm, segment, 1);
          }) == MPI_SUCCESS);
    ++check::expected["calls"];
    sums[on_device] = buffer.get();
    MPI_Comm_free(&comm);
  }
  CHECK(sums[true] == sums[false], "not the host's bits");
  CHECK(simt::context_active(0) == (rank != bad_rank));
}

// Another thread captures a graph while calls run, on a stream that the legacy one waits for or not.
void capture_day() {
  Day day;
  for (const unsigned kind : {cudaStreamNonBlocking, cudaStreamDefault})
    for (int i = 0; i < 3; ++i) {
      std::optional<std::jthread> capturing;
      std::atomic<int> state{0};
      day.call(
          [&] {
            CHECK(cudaDeviceSynchronize() == cudaSuccess);  // what the program did itself is done
            capturing.emplace([&] {
              cudaStream_t stream;
              cudaGraph_t graph;
              CHECK(cudaStreamCreateWithFlags(&stream, kind) == cudaSuccess);
              CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
              state = 1;
              while (state == 1) std::this_thread::yield();
              const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
              CHECK(ended == cudaSuccess, "the capture was spoilt: %s", cudaGetErrorName(ended));
              cudaGraphDestroy(graph);
              cudaStreamDestroy(stream);
            });
            while (state == 0) std::this_thread::yield();
          },
          [&] {
            state = 2;
            capturing.reset();
          });
    }
}

// The calling thread captures a graph itself: no sum of values that were not computed, and the program learns of it.
void own_capture_day() {
  Day day;
  day.call([] {}, [] {});
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  constexpr int kElements = 40000;
  float* buffer = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&buffer), kElements * sizeof(float)) == cudaSuccess);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  MPI_Allreduce(MPI_IN_PLACE, buffer, kElements, MPI_FLOAT, MPI_SUM, comm);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess, "the capture went on, without the sum");
  cudaGetLastError();
  cudaStreamDestroy(stream);
  cudaFree(buffer);
  MPI_Comm_free(&comm);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Calls on one communicator that alternate between devices make streams once for each.
void devices_day() {
  simt::set_device_count(3);
  Day day;
  std::uint64_t streams = 0;
  for (int i = 0; i < 9; ++i) {
    day.call([] {}, [] {}, (i + rank) % 3);
    if (i == 2) streams = simt::calls("cudaStreamCreateWithPriority");
  }
  CHECK(simt::calls("cudaStreamCreateWithPriority") == streams, "streams were made anew");
}

std::uint64_t driver_calls() {
  std::uint64_t sum = 0;
  for (const char* function :
       {"cuCtxGetCurrent", "cuDeviceGetCount", "cuDevicePrimaryCtxGetState", "cuMemcpyAsync", "cuPointerGetAttributes",
        "cudaFree", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy", "cudaStreamSynchronize", "cudaMemcpyAsync",
        "cudaStreamIsCapturing"})
    sum += simt::calls(function);
  return sum;
}

// A child that frees what it has inherited, and passes a call, calls nothing of CUDA.
void fork_day() {
  Day day;
  day.call([] {}, [] {});
  MPI_Comm self;
  MPI_Comm_dup(MPI_COMM_SELF, &self);
  one_sum(MPI_COMM_WORLD, 30000, 1, true);
  std::vector<float> host(30000, 1.0f);
  Buffer device(4000, true);
  MPI_Barrier(MPI_COMM_WORLD);
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t before = driver_calls();
    bool right = MPI_Allreduce(MPI_IN_PLACE, host.data(), 1000, MPI_INT, MPI_SUM, self) == MPI_SUCCESS;
    right &= MPI_Allreduce(MPI_IN_PLACE, device.data(), 1, MPI_INT, MPI_SUM, self) == MPI_SUCCESS;
    right &= MPI_Comm_free(&self) == MPI_SUCCESS;
    _exit(right && driver_calls() == before ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %d", status);
  MPI_Comm_free(&self);
  const std::uint64_t before = driver_calls();
  day.call([] {}, [] {});
  CHECK(driver_calls() > before);
}

// Calls that pass where libcuda.so.1 is there and nobody uses it.
void idle_day() {
  const auto asked = [](int calls) {
    const std::uint64_t before = driver_calls();
    int one = 1, sum = 0;
    for (int i = 0; i < calls; ++i) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return driver_calls() - before;
  };
  CHECK(asked(100) <= 100);  // not initialised: one each
  CHECK(cuInit(0) == 0);
  simt::set_device_count(0);
  CHECK(asked(100) <= 200);
  simt::set_device_count(2);
  CHECK(asked(100) <= 200);
  simt::set_device_count(1);
  one_sum(MPI_COMM_WORLD, 30000, 1, true);
  CHECK(asked(100) <= 200);  // whose pointers are they
}

// A thread that has never called CUDA makes the call, and has no context afterwards, either.
void thread_day() {
  Day day;
  void* context = nullptr;
  for (int i = 0; i < 2; ++i) {
    void* taken = nullptr;
    day.call([&] { CHECK(cuCtxPopCurrent_v2(&taken) == 0 && cuCtxGetCurrent(&context) == 0 && !context); },
             [&] {
               CHECK(cuCtxGetCurrent(&context) == 0 && !context, "the thread was left with a context");
               CHECK(cuCtxPushCurrent_v2(taken) == 0);
             });
  }
}

// An error that stays on one rank: nobody hangs, it says so, and no other rank takes a sum without its part for
// the whole: it fails, or is not a number.
void dead_day() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (const char* function : {"cudaMemcpyAsync", "cudaLaunchKernelEx", "cudaEventRecord", "cudaStreamSynchronize"})
    for (int nth = 1; nth <= 4; ++nth)
      for (const int count : {30000, 100}) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        std::vector<float> in(static_cast<std::size_t>(count), 1.0f);
        Buffer buffer(in.size() * sizeof(float), true);
        for (int again = 0; again < 2; ++again) {
          if (again == 0) buffer.set(in.data());
          if (rank == bad_rank && again == 0) simt::fail(function, nth, cudaErrorIllegalAddress, true);
          const int rc = MPI_Allreduce(MPI_IN_PLACE, buffer.data(), count, MPI_FLOAT, MPI_SUM, comm);
          if (rank == bad_rank && again == 1) CHECK(rc != MPI_SUCCESS || cudaGetLastError() == cudaSuccess);
          if (rank == bad_rank || rc != MPI_SUCCESS || again == 1) continue;
          std::vector<float> out(in.size());
          CHECK(crimp::test::copy_anywhere(out.data(), buffer.data(), out.size() * sizeof(float)));
          for (const float x : out)
            CHECK(std::isnan(x) ||
                      std::abs(x - static_cast<float>(size)) < 0.01f + static_cast<float>(check::codec_noise()),
                  "%s %d: a sum of %g", function, nth, static_cast<double>(x));
        }
        if (rank == bad_rank) simt::reset();
        MPI_Comm_free(&comm);
      }
}

// Ranks of a node that cannot share device memory, first because one cannot offer its own, later because it cannot
// reach another's; then they can.
void apart_day() {
  Day day;
  const auto fails = [](const char* function) {
    return [function] {
      if (rank == bad_rank) simt::fail(function, 1, cudaErrorMapBufferObjectFailed);
    };
  };
  const auto nothing = [] {};
  const auto opened = [] { return simt::calls("cudaIpcOpenMemHandle"); };
  const bool concerned = rank / 2 == bad_rank / 2;  // CRIMP_NODE_SIZE=2
  day.call(fails("cudaIpcGetMemHandle"), simt::reset);
  for (int i = 0; i < 8; ++i) day.call(nothing, nothing);
  CHECK((opened() == 0) == concerned);
  day.call(fails("cudaIpcOpenMemHandle"), simt::reset);
  CHECK(opened() > 0);
  for (int i = 0; i < 16; ++i) day.call(nothing, nothing);
  const auto before = opened();
  day.call(nothing, nothing);
  CHECK((opened() > before) == (rank == bad_rank), "the others have kept what they have reached");
  Day other;  // takes what another communicator does not need any more, or some of its own
  other.call(nothing, nothing);
}

void day(const std::string& kind) {
  const std::map<std::string, void (*)()> days{{"full", full_day},
                                               {"code", code_day},
                                               {"refused", refused_day},
                                               {"old_driver", old_driver_day},
                                               {"old_card", old_card_day},
                                               {"foreign", foreign_day},
                                               {"capture", capture_day},
                                               {"own_capture", own_capture_day},
                                               {"devices", devices_day},
                                               {"fork", fork_day},
                                               {"idle", idle_day},
                                               {"thread", thread_day},
                                               {"dead", dead_day},
                                               {"apart", apart_day},
                                               {"unseen", [] { unseen_day(false); }},
                                               {"unseen_passes", [] { unseen_day(true); }}};
  days.at(kind)();
}
#endif

#ifdef CRIMP_SIMT
// Ranks whose P and Q come from cuBLAS meet others, with host buffers: all have the same result bit for bit, and, call
// by call, that of ranks with host buffers alone but for rounding, residuals included. `broken`: cuBLAS fails in the
// middle.
void products(bool broken) {
  CHECK(dlopen(std::getenv("STANDIN_CUBLAS"), RTLD_NOW | RTLD_LOCAL) != nullptr);
  constexpr std::size_t kCount = 20011;
  MPI_Comm comms[] = {MPI_COMM_NULL, MPI_COMM_NULL};
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const crimp_segment segments[] = {{"one", 8000}, {"two", 11}, {"three", kCount - 8011}};
  bool same_bits = true;
  for (unsigned call = 0; call < 5; ++call) {
    const auto mine = values(kCount, CRIMP_FLOAT32, 1 + call / 2);
    std::vector<float> sums[2];
    for (const int homes : {kHost, kMixedRanks}) {
      Buffer buffer(mine.size(), receive_on_device(homes));
      buffer.set(mine.data());
      if (broken && homes == kMixedRanks && call == 1 && rank == 0) simt::fail("cublasSgemm", 2, 13);
      CHECK(crimp_allreduce(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, comms[homes != kHost], segments, 3) ==
            MPI_SUCCESS);
      ++check::expected["calls"];
      const auto got = buffer.get();
      CHECK(check::identical(got.data(), got.size(), MPI_COMM_WORLD), "call %u: ranks have different results", call);
      sums[homes != kHost].resize(kCount);
      std::memcpy(sums[homes != kHost].data(), got.data(), got.size());
    }
    double most = 0, difference = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      most = std::max(most, std::abs(static_cast<double>(sums[0][i])));
      difference = std::max(difference, std::abs(static_cast<double>(sums[0][i]) - static_cast<double>(sums[1][i])));
    }
    CHECK(difference <= 1e-3 * most, "call %u: %g beside values of %g", call, difference, most);
    same_bits = same_bits && difference == 0;
  }
  CHECK(!same_bits, "the products were Crimp's");
  CHECK((simt::calls("cublasSgemm") > 0) == receive_on_device(kMixedRanks));
  for (auto& comm : comms) MPI_Comm_free(&comm);
  const std::string found = simt::take_reports();
  CHECK(found.empty(), "%s", found.c_str());
}
#endif

#ifdef CRIMP_SIMT
// While it lives this process gets less memory of its own than `bytes`, and none that CUDA pins for once.
class Starving {
 public:
  explicit Starving(std::size_t bytes) {
    getrlimit(RLIMIT_DATA, &before_);
    std::ifstream status("/proc/self/status");
    std::string line;
    unsigned long has = 0;
    while (std::getline(status, line)) std::sscanf(line.c_str(), "VmData: %lu kB", &has);
    const rlimit limit{has * 1024 + bytes, before_.rlim_max};
    CHECK((has > 0 && setrlimit(RLIMIT_DATA, &limit) == 0));
    simt::fail("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  }
  ~Starving() { setrlimit(RLIMIT_DATA, &before_); }

 private:
  rlimit before_{};
};

// Rank 0 has no memory for a copy of its buffer. It fails behind the call, for which the others do not wait in vain.
void starved() {
  constexpr int kInts = 8 << 20;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Buffer buffer(kInts * sizeof(int), true);
  std::vector<int> values(kInts);
  for (int root = 0; root < size; ++root) {
    std::fill(values.begin(), values.end(), rank);
    buffer.set(values.data());
    std::optional<Starving> starving;
    if (rank == 0) starving.emplace(std::size_t{16} << 20);
    const int rc = MPI_Bcast(buffer.data(), kInts, MPI_INT, root, MPI_COMM_WORLD);
    starving.reset();
    CHECK((rc != MPI_SUCCESS) == (rank == 0), "root %d: code %d", root, rc);
    const auto got = buffer.get();
    std::memcpy(values.data(), got.data(), got.size());
    const int wanted = rank == 0 ? 0 : root == 0 ? -1 : root;  // all bits of what nobody could read are set
    CHECK((values.front() == wanted && values.back() == wanted), "root %d: %d", root, values.front());
  }
  CHECK(MPI_Bcast(buffer.data(), kInts, MPI_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
}
#endif

void classify() {
  const std::size_t bytes = 1 << 20;
  Buffer host(bytes, false), device(bytes, true);
  for (Buffer* buffer : {&host, &device}) {
    constexpr int kCalls = 20000;
    const auto begin = std::chrono::steady_clock::now();
    // Of no elements: looked at, then MPI's.
    for (int i = 0; i < kCalls; ++i) MPI_Allreduce(MPI_IN_PLACE, buffer->data(), 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    const double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kCalls;
    if (rank == 0)
      std::printf("an MPI_Allreduce of one int in %s memory: %.0f ns\n", buffer == &host ? "host" : "device", ns);
  }
}

// Nothing of CUDA is touched before the program has a context.
void late() {
  const char* plugin = std::getenv("CRIMP_CUDA_PLUGIN");
  const auto loaded = [&] { return plugin && dlopen(plugin, RTLD_NOW | RTLD_NOLOAD) != nullptr; };
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (unsigned call = 0; call < 3; ++call) check::sum_floats(MPI_COMM_WORLD, everyone, 30000, call);
  CHECK(!loaded());
#ifdef CRIMP_SIMT
  for (const char* function :
       {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithPriority", "cudaPointerGetAttributes"})
    CHECK(simt::calls(function) == 0, "%s", function);
#endif
  one_sum(MPI_COMM_WORLD, 30000, 9, true);
  CHECK(loaded());
  check::expected["calls"] = 4;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argv[1];
  check::begin();
#ifndef CRIMP_SIMT
  if (const std::string why = crimp::test::no_device(); !why.empty()) {
    if (rank == 0) std::printf("skipped: %s\n", why.c_str());
    MPI_Finalize();
    return check::kSkipped;
  }
#endif
  std::vector<std::size_t> counts;
  for (int i = 2; i < argc && what != "day" && what != "unfinished"; ++i)
    counts.push_back(static_cast<std::size_t>(std::atol(argv[i])));
  if (what == "sums") sums(counts);
  if (what == "scattered") scattered(argc > 2);
  if (what == "named_shares") named_shares();
  if (what == "extents") extents(counts[0]);
  if (what == "rates" && argc == 2) rates();
  if (what == "unused") unused();
  if (what == "misaligned") misaligned();
  if (what == "passes") passes();
  if (what == "unfinished") unfinished(argc > 2 ? argv[2] : "");
  if (what == "late") late();
  if (what == "many") many();
#ifdef CRIMP_SIMT
  if (what == "errors" && argc > 2) bad_rank = std::atoi(argv[2]);
  if (what == "day" && argc > 3) bad_rank = std::atoi(argv[3]);
  if (what == "errors") errors();
  if (what == "products") products(argc > 2);
  if (what == "starved") starved();
  if (what == "rates" && argc > 2) {
    for (const double further : {1.0, 10.0}) rates_broken(further);
  }
  if (what == "pinned") pinned();
  if (what == "converted") converted(argc == 2);
  if (what == "day") day(argv[2]);
#endif
  if (what == "classify") classify();
  return check::finish();
}
