// Backends and memory of which one piece of work fails, as of a device that is lost.
#pragma once
#include <new>

#include "backend/host_backend.hpp"
#include "core/error.hpp"
#include "memory/workers.hpp"

namespace crimp::test {

// The host's memory, but one reading or writing of several fails.
class FailingMemory final : public MemoryResource {
 public:
  explicit FailingMemory(int which) : left_(which) {}
  std::byte* allocate(std::size_t bytes) override { return host_memory().allocate(bytes); }
  void free(std::byte* memory, std::size_t bytes) noexcept override { host_memory().free(memory, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override {
    count();
    host_memory().read(host, from, bytes);
  }
  void write(void* to, const void* host, std::size_t bytes) override {
    count();
    host_memory().write(to, host, bytes);
  }

 private:
  void count() {
    if (--left_ == 0) throw Error(ErrorCode::device_failed, "planted");
  }
  int left_;
};

// The host's, but one encoding of several fails, or there is no memory to decode with: a device's (0), or the host's
// (-1); or its memory alone fails (kNone).
class FailingBackend final : public Backend {
 public:
  static constexpr int kNone = 1 << 30;
  FailingBackend(Workers& workers, int which, MemoryResource& memory = host_memory())
      : host_(workers), memory_(memory), which_(which), left_(which) {}
  Ticket start_encode(std::span<const EncodeJob> jobs, const Progress& progress) override {
    if (--left_ == 0) throw Error(ErrorCode::device_failed, "planted");
    return host_.start_encode(jobs, progress);
  }
  bool asynchronous() const override { return false; }
  MemoryResource& memory() override { return memory_; }
  MemoryResource& staging() override { return host_.staging(); }
  bool readable_bodies() const override { return true; }
  bool runs(const Codec&) override { return true; }
  void prepare(const Codec&, const ChunkPartition&, int) override {}
  void prepare(const Arena& arena) override { host_.prepare(arena); }
  void finish_encode(Ticket, const Progress&) override {}
  Ticket start_decode(std::span<const DecodeJob> jobs, const Progress& progress) override {
    if (which_ == 0) throw Error(ErrorCode::out_of_memory, "planted");
    if (which_ < 0) throw std::bad_alloc();
    return host_.start_decode(jobs, progress);
  }
  void finish_decode(Ticket, const Progress&) override {}
  std::string open(BodyView& view, const Codec& codec, const ChunkPartition& partition,
                   std::span<const std::uint8_t> body) override {
    return host_.open(view, codec, partition, body);
  }
  TensorSteps* tensor_steps() override { return nullptr; }
  void copy(float* to, const float* from, std::uint64_t count) override { host_.copy(to, from, count); }
  void read(void* host, const void* from, std::size_t bytes) override { host_.read(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { host_.write(to, host, bytes); }
  void widen(Dtype type, const void* in, float* out, std::uint64_t count) override {
    host_.widen(type, in, out, count);
  }
  void narrow(Dtype type, const float* in, void* out, std::uint64_t count) override {
    host_.narrow(type, in, out, count);
  }
  void magnitudes(Dtype type, const void* values, std::span<const Group> groups, double* results) override {
    host_.magnitudes(type, values, groups, results);
  }
  void begin(bool) override {}
  void synchronize() override {}
  SumSteps* sum_steps(const Codec&) override { return nullptr; }

 private:
  HostBackend host_;
  MemoryResource& memory_;
  const int which_;
  int left_;
};

}  // namespace crimp::test
