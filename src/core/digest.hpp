// The one hash of the house: of bodies on the wire, layouts, settings and measurements that ranks compare.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace crimp {

// XXH3-64 with seed 0.
std::uint64_t digest(const void* bytes, std::size_t count);
inline std::uint64_t digest(std::string_view text) { return digest(text.data(), text.size()); }

// The same of bytes that come one part after another.
class DigestOfParts {
 public:
  DigestOfParts();
  ~DigestOfParts();
  DigestOfParts(const DigestOfParts&) = delete;
  DigestOfParts& operator=(const DigestOfParts&) = delete;
  void add(const void* bytes, std::size_t count);
  std::uint64_t value() const;  // of all so far
  void restart();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crimp
