#include "tensors.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <numeric>

#include "reduction.hpp"

namespace crimp_torch {

void settle(const Tensors& tensors) {
  for (const at::Tensor& one : tensors)
    if (!one.device().is_cpu()) c10::impl::VirtualGuardImpl(one.device().type()).getStream(one.device()).synchronize();
}

const at::Tensor& only(const Tensors& tensors, const char* call) {
  settle(tensors);
  TORCH_CHECK(tensors.size() == 1, "crimp: ", call, " takes one tensor a rank, not ", tensors.size());
  return tensors[0];
}

void check_alike(const Tensors& tensors, const at::Tensor& like, const char* call) {
  for (const at::Tensor& one : tensors)
    TORCH_CHECK(one.numel() == like.numel() && one.scalar_type() == like.scalar_type(), "crimp: ", call,
                " takes tensors of one size and type");
}

at::Tensor buffer_for(std::int64_t count, const at::Tensor& like) {
  return at::empty({count}, like.options().device(at::kCPU));
}

at::Tensor joined(const Tensors& tensors) {
  const at::NoGradGuard no_gradients;
  std::int64_t count = 0;
  for (const at::Tensor& one : tensors) count += one.numel();
  at::Tensor out = buffer_for(count, tensors.at(0));
  std::int64_t at = 0;
  for (const at::Tensor& one : tensors) {
    out.narrow(0, at, one.numel()).copy_(one.reshape({-1}));
    at += one.numel();
  }
  return out;
}

void part(const at::Tensor& from, Tensors& tensors) {
  const at::NoGradGuard no_gradients;
  std::int64_t at = 0;
  for (at::Tensor& one : tensors) {
    one.copy_(from.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
}

Splits splits(const std::vector<std::int64_t>& counts) {
  Splits out;
  std::int64_t at = 0;
  for (const std::int64_t one : counts) {
    out.counts.push_back(mpi_count(one));
    out.offsets.push_back(mpi_count(at));
    at += one;
  }
  return out;
}

Splits splits_of(const Tensors& tensors) {
  std::vector<std::int64_t> counts;
  for (const at::Tensor& one : tensors) counts.push_back(one.numel());
  return splits(counts);
}

Splits splits_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, int size) {
  const std::int64_t all = tensor.dim() ? tensor.size(0) : 0;
  const std::int64_t row = all ? tensor.numel() / all : 0;
  std::vector<std::int64_t> counts(rows);
  if (rows.empty()) {
    TORCH_CHECK(all % size == 0, "crimp: alltoall of ", all, " rows among ", size, " ranks");
    counts.assign(static_cast<std::size_t>(size), all / size);
  }
  TORCH_CHECK(static_cast<int>(counts.size()) == size && std::accumulate(counts.begin(), counts.end(), 0LL) == all,
              "crimp: alltoall's split sizes do not add up to the ", all, " rows of the tensor");
  for (std::int64_t& one : counts) one *= row;
  return splits(counts);
}

void check_parts(const at::Tensor& whole, const at::Tensor& one, int size, const char* call) {
  TORCH_CHECK(whole.numel() == one.numel() * size && whole.scalar_type() == one.scalar_type(), "crimp: ", call, " of ",
              one.numel(), " elements a rank among ", size, " ranks needs ", one.numel() * size, " elements of type ",
              one.scalar_type(), " on the other side, not ", whole.numel(), " of type ", whole.scalar_type());
}

}  // namespace crimp_torch
