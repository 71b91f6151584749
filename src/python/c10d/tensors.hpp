// What a call's lists of tensors are to MPI.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace crimp_torch {

using Tensors = std::vector<at::Tensor>;

// What the caller's stream still does to tensors of a device comes first: the group's thread has another stream.
void settle(const Tensors& tensors);

// The one tensor of a list, settled. These throw where the tensors are not what `call` takes.
const at::Tensor& only(const Tensors& tensors, const char* call);
void check_alike(const Tensors& tensors, const at::Tensor& like, const char* call);
// `whole` has room for `one` of each rank.
void check_parts(const at::Tensor& whole, const at::Tensor& one, int size, const char* call);

// On the host, of the type of `like`.
at::Tensor buffer_for(std::int64_t count, const at::Tensor& like);

// Tensors one after the other, and back.
at::Tensor joined(const Tensors& tensors);
void part(const at::Tensor& from, Tensors& tensors);

// Elements of each rank, and where they begin.
struct Splits {
  std::vector<int> counts, offsets;
};
Splits splits(const std::vector<std::int64_t>& counts);
Splits splits_of(const Tensors& tensors);
// Of rows; none given means equal parts.
Splits splits_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, int size);

}  // namespace crimp_torch
