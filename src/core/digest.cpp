#include "core/digest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crimp {

std::uint64_t digest(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

struct DigestOfParts::State {
  XXH3_state_t of;
};

DigestOfParts::DigestOfParts() : state_(std::make_unique<State>()) { restart(); }
DigestOfParts::~DigestOfParts() = default;
void DigestOfParts::add(const void* bytes, std::size_t count) { XXH3_64bits_update(&state_->of, bytes, count); }
std::uint64_t DigestOfParts::value() const { return XXH3_64bits_digest(&state_->of); }
void DigestOfParts::restart() { XXH3_64bits_reset(&state_->of); }

}  // namespace crimp
