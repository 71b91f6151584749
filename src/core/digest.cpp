#include "core/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crimp {

std::uint64_t digest(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

}  // namespace crimp
