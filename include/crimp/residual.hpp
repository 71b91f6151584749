// Residuals of error feedback, one array of float32 per tensor key. A tensor keeps its residual however it is merged with others.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "crimp/memory.hpp"

namespace crimp {

// Not thread-safe: one communicator's calls are ordered.
class ResidualStore {
 public:
  // The tensor's residual in this kind of memory, zeros when new. A tensor that comes back with another count starts from zeros, one that was in
  // another kind of memory moves. Throws Error{out_of_memory} and Error{device_failed}; the residual is then as it was.
  float* find(const std::string& key, std::uint64_t count, Allocator& memory = host_memory());
  // Since the last keep(): what find() made holds nothing yet. keep() makes it stay, drop_new() drops it.
  void keep() { new_.clear(); }
  void drop_new();
  // Drops the tensors whose keys begin so.
  void forget(std::string_view prefix);
  std::uint64_t bytes() const;
  std::size_t tensors() const { return tensors_.size(); }

 private:
  struct Tensor {
    Memory memory;
    std::uint64_t count;
  };
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::string> new_;
};

}  // namespace crimp
