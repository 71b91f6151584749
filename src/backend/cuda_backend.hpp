// Values in the memory of a CUDA device.
//
// Three streams that the application does not know, of the highest priority and not blocking: `compute` encodes and
// decodes, `down` takes bodies to pinned memory and `up` brings them back, so that chunk i travels while i + 1 is
// encoded. Every byte of the staging arena has a mirror in device memory; where MPI takes device pointers the arena
// itself lies there and nothing is copied.
#pragma once
#include <cuda_runtime.h>

#include <map>
#include <set>
#include <vector>

#include "backend/backend.hpp"
#include "codec/device_codec.hpp"

namespace crimp::cuda {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, bool device_bodies);
  ~CudaBackend() override;
  bool asynchronous() const override { return true; }
  MemoryResource& memory() override;
  MemoryResource& staging() override;
  bool readable_bodies() const override { return !device_bodies_; }
  bool runs(const Codec&) override;
  bool converts(const Codec&) override;
  void prepare(const Codec&, const ChunkPartition&, int ranks) override;
  void prepare(const Arena& staging) override;
  Ticket start_encode(std::span<const EncodeJob>, const Progress&) override;
  void finish_encode(Ticket, const Progress&) override;
  Ticket start_decode(std::span<const DecodeJob>, const Progress&) override;
  void finish_decode(Ticket, const Progress&) override;
  std::string open(BodyView&, const Codec&, const ChunkPartition&, std::span<const std::uint8_t> body) override;
  TensorSteps* tensor_steps() override;
  void copy(float* to, const float* from, std::uint64_t count) override;
  void copy_all(std::span<const FloatCopy>) override;
  void read(void* host, const void* from, std::size_t bytes) override;
  void write(void* to, const void* host, std::size_t bytes) override;
  void widen(Dtype, const void* in, float* out, std::uint64_t count) override;
  void narrow(Dtype, const float* in, void* out, std::uint64_t count) override;
  void magnitudes(Dtype, const void* values, std::span<const Group>, double* results) override;
  void begin(bool everything) override;
  void synchronize() override;
  SumSteps* sum_steps(const Codec&) override;  // cuda_sum_steps.cpp
  int device() const override { return device_; }
  std::unique_ptr<SharedSlots> shared_slots(std::uint64_t floats) override;  // cuda_shared_slots.cpp

 private:
  // A job under way: where its result goes, and of an encoding its body.
  struct Job {
    std::uint64_t* bytes = nullptr;
    std::uint8_t* body = nullptr;
    int* bad = nullptr;
  };
  // Something under way, with a region of its own in tables_ and its mirror: first a word of result for each job, then
  // the tables.
  struct InFlight {
    bool taken = false;
    bool lost = false;   // it has failed, and what of it was enqueued may still run: nobody may have its region before
    bool sized = false;  // bodies are on the way down, or need not come; else their sizes are awaited first
    cudaEvent_t ready = nullptr, done = nullptr;  // sizes; bodies as well
    std::vector<Job> jobs;                        // with room for as many as were prepared for
  };
  struct TableWriter;

  const DeviceCodec& kernels(const Codec&);
  void load(const Codec&);
  std::uint8_t* mirror(const std::uint8_t* staged) const;
  std::size_t take_slot(std::size_t jobs);
  void retire_lost();  // waits for the streams, where there is any
  std::byte* region(const Memory& of, std::size_t slot) const { return of.data() + slot * region_bytes_; }
  template <class Result>
  Result result(std::size_t slot, std::size_t job) const;
  ChunkTable upload(TableWriter&, const ChunkArrays&) const;
  void note_sizes(std::size_t slot);
  void copy_to_host(InFlight&);
  void poll_copies();                       // copies that wait for nothing but their sizes
  void wait(cudaEvent_t, const Progress&);  // outside of a ContextGuard
  void order(cudaStream_t after, cudaStream_t before, cudaEvent_t);

  int device_;
  bool device_bodies_;
  cudaStream_t compute_ = nullptr, down_ = nullptr, up_ = nullptr;
  cudaEvent_t entered_ = nullptr;
  std::map<const Codec*, std::unique_ptr<DeviceCodec>> codecs_;
  std::set<const Codec*> loaded_;
  std::set<Dtype> narrows_;  // types that narrow() is loaded for
  bool copies_loaded_ = false;
  std::vector<InFlight> in_flight_;
  std::size_t region_bytes_ = 0, wanted_region_ = 0, jobs_ = 0, wanted_jobs_ = 0, wanted_scratch_ = 0;
  Memory tables_, tables_mirror_;  // pinned and device
  Memory scratch_, mirror_, sizes_, sizes_mirror_, look_;
  std::unique_ptr<TensorSteps> tensor_steps_;  // once they are asked for
  const std::byte* staging_ = nullptr;
  std::map<const Codec*, std::unique_ptr<SumSteps>> sum_steps_;
};

}  // namespace crimp::cuda
