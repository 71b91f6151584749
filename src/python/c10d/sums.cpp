#include "sums.hpp"

#include "mpi_process.hpp"
#include "work.hpp"

namespace crimp_torch {
namespace {

// Models throw away the sums of parameters that no rank has used in a step. Behind a call, in which nothing waits yet.
void leave_unused(const Label* label, MPI_Comm comm) {
  if (label) check_mpi(crimp_set_idle_waits(comm, 1), "crimp_set_idle_waits");
}

void sum_in_place(HostTensor& tensor, const Reduction& r, const Label* label, MPI_Comm comm) {
  const auto count = static_cast<std::uint64_t>(tensor.host().numel());
  const auto turn = mpi_turn();
  if (r.gradient) {
    const auto segments = label ? label->segments(count) : std::vector<crimp_segment>();
    check_mpi(crimp_allreduce(MPI_IN_PLACE, tensor.data(), count, r.dtype, comm, label ? segments.data() : nullptr,
                              segments.size()),
              "crimp_allreduce");
    leave_unused(label, comm);
  } else {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, tensor.data(), mpi_count(tensor.host().numel()), r.type, r.op, comm),
              "MPI_Allreduce");
  }
}

}  // namespace

void all_reduce(const at::Tensor& tensor, const Reduction& r, const Label* label, int size, MPI_Comm comm) {
  HostTensor host(tensor, r.values);
  if (label) divide(host.host(), label->divisor());
  sum_in_place(host, r, label, comm);
  if (r.averages) divide(host.host(), size);
  host.give_back();
}

void reduce_scatter_block(at::Tensor output, at::Tensor input, const Reduction& r, const Label* label, int size,
                          MPI_Comm comm) {
  if (label && label->divisor() != 1) {  // the program's input stays as it is
    const at::NoGradGuard no_gradients;
    input = input.to(at::kCPU, r.values, false, true).contiguous();
    divide(input, label->divisor());
  }
  HostTensor from(std::move(input), r.values);
  // A rank's output may be its own part of the input, which MPI forbids.
  const auto* const begin = static_cast<const char*>(from.data());
  const auto* const place = output.device().is_cpu() ? static_cast<const char*>(output.data_ptr()) : nullptr;
  const bool inside = place && place >= begin && place < begin + from.host().nbytes();
  const at::Tensor apart = inside ? at::empty_like(output) : output;
  HostTensor to(apart, r.values);
  const std::int64_t count = to.host().numel();
  {
    const auto turn = mpi_turn();
    if (r.gradient) {
      const auto segments =
          label ? label->segments(static_cast<std::uint64_t>(from.host().numel())) : std::vector<crimp_segment>();
      check_mpi(crimp_reduce_scatter_block(from.data(), to.data(), static_cast<std::uint64_t>(count), r.dtype, comm,
                                           label ? segments.data() : nullptr, segments.size()),
                "crimp_reduce_scatter_block");
      leave_unused(label, comm);
    } else {
      check_mpi(MPI_Reduce_scatter_block(from.data(), to.data(), mpi_count(count), r.type, r.op, comm),
                "MPI_Reduce_scatter_block");
    }
  }
  if (r.averages) divide(to.host(), size);
  to.give_back();
  const at::NoGradGuard no_gradients;
  if (inside) output.copy_(apart);
}

std::shared_ptr<const Label> scattered_label(const at::Tensor& share, const Reduction& r, int size) {
  return r.gradient ? label_for(static_cast<std::uint64_t>(share.numel()) * static_cast<std::uint64_t>(size), size)
                    : nullptr;
}

void all_gather(at::Tensor output, at::Tensor input, MPI_Comm comm) {
  HostTensor from(std::move(input)), to(std::move(output));
  const int count = mpi_count(from.host().numel());
  const MPI_Datatype type = element_type(from.host());
  {
    const auto turn = mpi_turn();
    // A rank's input may be its own part of the output, as FSDP's is.
    const char* own = static_cast<const char*>(to.data());
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    own += static_cast<std::ptrdiff_t>(rank) * count * from.host().element_size();
    const void* source = from.data() == own ? MPI_IN_PLACE : from.data();
    check_mpi(MPI_Allgather(source, count, type, to.data(), count, type, comm), "MPI_Allgather");
  }
  to.give_back();
}

}  // namespace crimp_torch
