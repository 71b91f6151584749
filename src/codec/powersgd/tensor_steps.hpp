// What codecs of whole tensors (Codec::Traits::whole_tensors) need of a backend: the steps around the sums of algorithm
// low_rank, made where the tensors' values are. Not thread-safe. Errors as backend/backend.hpp.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "codec/powersgd/powersgd.hpp"

namespace crimp {

class Codec;

class TensorSteps {
 public:
  virtual ~TensorSteps() = default;
  // Whatever the codec's steps need for so many tensors besides their arrays: before prepare(), once for all calls.
  // Throws Error{out_of_memory}.
  virtual void load(const Codec&, std::size_t /*tensors*/) {}
  // Of the next steps. The tensors' arrays are in the backend's memory; they and `tensors` stay until the last step is
  // complete. share: of this rank in the result.
  virtual void prepare(const Codec&, std::span<const powersgd::Tensor> tensors, float share) = 0;
  virtual void start(powersgd::Step, const Progress& progress) = 0;  // complete after Backend::synchronize()
  // What load() or a step could not do as the codec's parameters say, and did otherwise; empty: nothing new.
  virtual std::string take_complaint() { return {}; }
};

namespace powersgd {
// In host memory: complete when start() returns.
std::unique_ptr<TensorSteps> host_steps(Workers&);
}  // namespace powersgd

}  // namespace crimp
