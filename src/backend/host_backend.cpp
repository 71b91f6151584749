#include "backend/host_backend.hpp"

#include <cstring>

#include "codec/powersgd/tensor_steps.hpp"
#include "codec/sum_steps.hpp"
#include "core/convert.hpp"

namespace crimp {

HostBackend::HostBackend(Workers& workers) : workers_(workers) {}
HostBackend::~HostBackend() = default;

TensorSteps* HostBackend::tensor_steps() {
  if (!tensor_steps_) tensor_steps_ = powersgd::host_steps(workers_);
  return tensor_steps_.get();
}

SumSteps* HostBackend::sum_steps(const Codec& codec) {
  if (!codec.homomorphic()) return nullptr;
  auto& steps = sum_steps_[&codec];
  if (!steps) steps = host_sum_steps(codec, workers_);
  return steps.get();
}

Backend::Ticket HostBackend::start_encode(std::span<const EncodeJob> jobs, const Progress& progress) {
  for (const EncodeJob& job : jobs)
    *job.bytes = encode_body(job.codec, job.partition, job.values.floats(), job.feedback, job.counter, job.body,
                             job.scratch, workers_, progress);
  return 0;
}

Backend::Ticket HostBackend::start_decode(std::span<const DecodeJob> jobs, const Progress& progress) {
  for (const DecodeJob& job : jobs)
    *job.bad = decode_add(job.codec, job.partition, job.bodies, job.counter, job.out.floats(), job.accumulate, workers_,
                          progress, job.voters, job.streamed);
  return 0;
}

void HostBackend::copy(float* to, const float* from, std::uint64_t count) { std::memcpy(to, from, count * sizeof *to); }

void HostBackend::widen(Dtype from, const void* in, float* out, std::uint64_t count) {
  crimp::widen(from, in, out, count);
}

void HostBackend::narrow(Dtype to, const float* in, void* out, std::uint64_t count) {
  crimp::narrow(to, in, out, count);
}

void HostBackend::magnitudes(Dtype type, const void* values, std::span<const Group> groups, double* results) {
  for (const Group& group : groups)
    *results++ = magnitude(type, static_cast<const char*>(values) + group.offset * size_of(type), group.count);
}

}  // namespace crimp
