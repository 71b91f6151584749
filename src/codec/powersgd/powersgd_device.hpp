// PowerSGD's steps in device memory: the bits of powersgd::run_step (codec/powersgd/powersgd.hpp), all tensors of a
// call in one or two launches. No CUDA header is needed to call it.
#pragma once
#include <array>
#include <span>

#include "codec/device_codec.hpp"
#include "codec/powersgd/powersgd.hpp"

namespace crimp::powersgd {

inline constexpr int kSteps = 3;
struct DeviceTensor {
  Tensor tensor;
  std::uint32_t first[kSteps];  // its first block in each step's grid
  std::uint32_t end = 0;
};
struct DeviceTensors {
  const DeviceTensor* tensors;  // in device memory
  std::uint32_t count, rank;    // rank: of all that do not travel exactly; 0: all do
  std::uint32_t blocks[kSteps];
};
// Steps of a tensor whose product somebody else makes.
using Elsewhere = std::array<bool, kSteps>;
// Writes the table's host copy to `to`, one entry for each tensor; returns the rest, with `tensors` null. elsewhere: of
// each tensor; empty: none.
DeviceTensors device_tensors(std::span<const Tensor>, DeviceTensor* to, std::span<const Elsewhere> elsewhere = {});
// Loads the kernels of all steps, of tensors of this rank and exact ones, into the current context. 0 or the CUDA
// error.
int load_steps(std::uint32_t rank);
// Enqueues a step on the stream. 0 or the CUDA error of a launch.
int enqueue_step(Step, const DeviceTensors&, float share, Stream);
// The product of project or project_back alone: its columns are orthonormal already.
int enqueue_product(Step, const DeviceTensors&, Stream);

}  // namespace crimp::powersgd
