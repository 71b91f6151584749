#include "core/pass_reason.hpp"

namespace crimp {
namespace {

#define CRIMP_ITEM(name, text) #name,
constexpr const char* kPasses[] = {CRIMP_PASSES(CRIMP_ITEM)};
#undef CRIMP_ITEM
#define CRIMP_ITEM(name, text) text,
constexpr const char* kTexts[] = {CRIMP_PASSES(CRIMP_ITEM)};
#undef CRIMP_ITEM

}  // namespace

const char* name_of(PassReason p) { return kPasses[static_cast<std::size_t>(p)]; }
const char* text_of(PassReason p) { return kTexts[static_cast<std::size_t>(p)]; }

}  // namespace crimp
