#include "mpi/exact_sum.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/exact_feedback.hpp"
#include "core/reserve.hpp"

namespace crimp {

std::uint64_t count_of(std::span<const ExactTensor> tensors) {
  std::uint64_t sum = 0;
  for (const ExactTensor& t : tensors) sum += t.segment->count;
  return sum;
}

std::optional<Error> pack(const AllreduceRequest& request, std::span<const ExactTensor> tensors,
                          const CallValues& values, std::span<char> packed, int ranks) {
  if (packed.empty()) return {};
  const std::size_t element = size_of(request.dtype);
  Backend& backend = values.backend();
  std::optional<Error> failure;
  try {
    char* here = packed.data();
    for (const ExactTensor& t : tensors) {
      const std::size_t bytes = t.segment->count * element;
      backend.read(here, static_cast<const char*>(values.send()) + t.segment->offset * element, bytes);
      here += bytes;
    }
    backend.synchronize();
    here = packed.data();
    for (const ExactTensor& t : tensors) {
      char* const at = std::exchange(here, here + t.segment->count * element);
      if (!t.memory) continue;
      const FeedbackPolicy& policy = t.momentum->feedback();
      const double gain = policy.clip > 0.0f ? clip_gain(request.dtype, at, t.segment->count,
                                                         static_cast<double>(policy.clip) / std::sqrt(ranks))
                                             : 1.0;
      compensate_exactly(policy, request.dtype, at, t.segment->count, t.memory, gain);
    }
  } catch (const Error& e) {
    failure = e;
  } catch (const std::exception& e) {
    insist([&] { failure.emplace(ErrorCode::out_of_memory, e.what()); });
  }
  return failure;
}

void sum_exactly(const AllreduceRequest& request, std::span<const ExactTensor> tensors, const CallValues& values,
                 std::span<char> packed, const std::optional<Error>& failure) {
  if (packed.empty()) return;
  const std::size_t element = size_of(request.dtype);
  if (const int rc = request.sum_exactly(packed.data(), packed.size() / element))
    throw Error(ErrorCode::transport_failed, "MPI_Allreduce failed with code " + std::to_string(rc), rc);
  if (failure) throw Error(*failure);
  const Shares::Run own = request.own();
  const char* here = packed.data();
  for (const ExactTensor& t : tensors) {
    const std::uint64_t first = std::max(own.begin, t.segment->offset);
    const std::uint64_t last = std::min(own.end, t.segment->offset + t.segment->count);
    if (first < last)
      values.backend().write(static_cast<char*>(values.receive()) + (first - own.begin) * element,
                             here + (first - t.segment->offset) * element, (last - first) * element);
    here += t.segment->count * element;
  }
  values.backend().synchronize();
}

}  // namespace crimp
