// Tensors as files of saved state have them.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "collective/saved_state.hpp"

namespace crimp::test {

inline Memory memory_of(const std::vector<float>& values, MemoryResource& where = host_memory()) {
  Memory made(values.size() * sizeof(float), where);
  where.write(made.data(), values.data(), made.bytes());
  return made;
}

// `values`: the kind's arrays behind one another.
inline SavedTensor saved_tensor(const std::string& name, const std::vector<float>& values,
                                FeedbackKind kind = FeedbackKind::residual, bool owner = false) {
  const std::uint64_t count = values.size() / static_cast<std::uint64_t>(FeedbackPolicy{kind}.arrays());
  return {Layout::Source::named, owner, name, kind, Encoding::float32, count, 3, 0, 0, "", memory_of(values)};
}

inline SavedTensor in_bytes(SavedTensor t) {
  Memory rounded(byte_residual::bytes(t.count));
  byte_residual::round(reinterpret_cast<const float*>(t.payload.data()), t.count, {1, 1, 1}, rounded.data());
  t.payload = std::move(rounded);
  t.encoding = Encoding::bytes;
  return t;
}

inline std::vector<float> floats(const SavedTensor& t) {
  std::vector<float> out(t.payload.bytes() / sizeof(float));
  std::memcpy(out.data(), t.payload.data(), t.payload.bytes());
  return out;
}

}  // namespace crimp::test
