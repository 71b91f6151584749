// Values in host memory: everything is done when it is started.
#pragma once
#include <map>
#include <memory>

#include "backend/backend.hpp"
#include "memory/thread_scratch.hpp"
#include "memory/workers.hpp"

namespace crimp {

class HostBackend final : public Backend {
 public:
  explicit HostBackend(Workers&);
  ~HostBackend() override;
  bool asynchronous() const override { return false; }
  MemoryResource& memory() override { return host_memory(); }
  MemoryResource& staging() override { return host_memory(); }
  bool readable_bodies() const override { return true; }
  bool runs(const Codec&) override { return true; }
  void prepare(const Codec&, const ChunkPartition&, int) override {}
  void prepare(const Arena&) override { thread_scratch(); }
  Ticket start_encode(std::span<const EncodeJob>, const Progress&) override;
  void finish_encode(Ticket, const Progress&) override {}
  Ticket start_decode(std::span<const DecodeJob>, const Progress&) override;
  void finish_decode(Ticket, const Progress&) override {}
  std::string open(BodyView& view, const Codec& codec, const ChunkPartition& partition,
                   std::span<const std::uint8_t> body) override {
    return view.open(codec, partition, body);
  }
  TensorSteps* tensor_steps() override;
  void copy(float* to, const float* from, std::uint64_t count) override;
  void read(void* host, const void* from, std::size_t bytes) override { host_memory().read(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { host_memory().write(to, host, bytes); }
  void widen(Dtype, const void* in, float* out, std::uint64_t count) override;
  void narrow(Dtype, const float* in, void* out, std::uint64_t count) override;
  void magnitudes(Dtype, const void* values, std::span<const Group>, double* results) override;
  void begin(bool) override {}
  void synchronize() override {}
  SumSteps* sum_steps(const Codec&) override;

 private:
  Workers& workers_;
  std::unique_ptr<TensorSteps> tensor_steps_;  // once they are asked for
  std::map<const Codec*, std::unique_ptr<SumSteps>> sum_steps_;
};

}  // namespace crimp
