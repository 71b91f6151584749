#include "mpi/exact_sum.hpp"

#include <cmath>
#include <optional>

#include "codec/exact_feedback.hpp"
#include "core/error.hpp"
#include "core/reserve.hpp"

namespace crimp {

std::uint64_t count_of(std::span<const ExactTensor> tensors) {
  std::uint64_t sum = 0;
  for (const ExactTensor& t : tensors) sum += t.segment->count;
  return sum;
}

void sum_exactly(const AllreduceRequest& request, std::span<const ExactTensor> tensors, const CallValues& values,
                 std::span<char> packed, int ranks) {
  if (packed.empty()) return;
  const std::size_t element = size_of(request.dtype);
  Backend& backend = values.backend();
  const auto with_each = [&](auto&& use) {
    std::size_t at = 0;
    for (const ExactTensor& t : tensors) {
      use(t, packed.data() + at, t.segment->offset * element, t.segment->count * element);
      at += t.segment->count * element;
    }
  };
  // Whatever fails here, the other ranks wait for this one.
  std::optional<Error> failure;
  try {
    with_each([&](const ExactTensor&, char* here, std::size_t there, std::size_t bytes) {
      backend.read(here, static_cast<const char*>(values.send()) + there, bytes);
    });
    backend.synchronize();
    with_each([&](const ExactTensor& t, char* here, std::size_t, std::size_t) {
      if (!t.memory) return;
      const FeedbackPolicy& policy = t.momentum->feedback();
      const double gain = policy.clip > 0.0f ? clip_gain(request.dtype, here, t.segment->count,
                                                         static_cast<double>(policy.clip) / std::sqrt(ranks))
                                             : 1.0;
      compensate_exactly(policy, request.dtype, here, t.segment->count, t.memory, gain);
    });
  } catch (const Error& e) {
    failure = e;
  } catch (const std::exception& e) {
    insist([&] { failure.emplace(ErrorCode::out_of_memory, e.what()); });
  }
  if (const int rc = request.sum_exactly(packed.data(), packed.size() / element))
    throw Error(ErrorCode::transport_failed, "MPI_Allreduce failed with code " + std::to_string(rc), rc);
  if (failure) throw Error(*failure);
  with_each([&](const ExactTensor&, char* here, std::size_t there, std::size_t bytes) {
    backend.write(static_cast<char*>(values.receive()) + there, here, bytes);
  });
  backend.synchronize();
}

}  // namespace crimp
