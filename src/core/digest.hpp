// The one hash of the house: of bodies on the wire, layouts, settings and measurements that ranks compare.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace crimp {

// XXH3-64 with seed 0.
std::uint64_t digest(const void* bytes, std::size_t count);
inline std::uint64_t digest(std::string_view text) { return digest(text.data(), text.size()); }

}  // namespace crimp
