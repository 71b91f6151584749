// Horovod's responses: what its ranks agreed to reduce, by name. Read from the MPI_Bcast that carries them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crimp::horovod {

struct Response {
  enum Type : std::int8_t { allreduce, allgather, broadcast, join, adasum, alltoall, barrier, reducescatter, error };
  Type type = allreduce;
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;  // elements, one per name for allreduce and adasum
  // One per rank, -1: the host. Where ranks have joined (hvd.join) one per rank that has not, and those of them whose
  // number is less than that have theirs at its place; what nobody fills is 0, as a GPU's.
  std::vector<std::int32_t> devices;
  std::int8_t tensor_type = 0;  // 6 float16, 7 float32, 8 float64
  std::int8_t reduce_op = 0;
  double prescale = 1, postscale = 1;

  // Whether Horovod may put both into one buffer.
  bool fuses_with(const Response& other) const {
    return type == other.type && devices == other.devices && tensor_type == other.tensor_type &&
           reduce_op == other.reduce_op && prescale == other.prescale && postscale == other.postscale;
  }
};

// Horovod's names for tensors without one: a new one in every call, so that it says nothing about the tensor.
inline bool unnamed(const std::string& name) { return name.find(".noname.") != name.npos; }

// Of a tensor that was reduced by hvd.grouped_allreduce ("name_<i>of<n>"): the group's name, and its place there; empty
// where it is in no group. Some other tensors are called so, too.
std::string group_of(const std::string& name);
int index_in_group(const std::string& name);
std::int64_t group_size(const std::string& name);

// Empty where the bytes are no valid ResponseList (checked by the FlatBuffers verifier before anything is read).
std::optional<std::vector<Response>> read_response_list(const void* bytes, std::size_t size);

}  // namespace crimp::horovod
