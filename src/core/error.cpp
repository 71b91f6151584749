#include "core/error.hpp"

namespace crimp {

const char* name_of(ErrorCode code) noexcept {
  switch (code) {
#define CRIMP_ITEM(name, text) \
  case ErrorCode::name: return #name;
    CRIMP_ERRORS(CRIMP_ITEM)
#undef CRIMP_ITEM
  }
  return "unknown";
}

const char* text_of(ErrorCode code) noexcept {
  switch (code) {
#define CRIMP_ITEM(name, text) \
  case ErrorCode::name: return text;
    CRIMP_ERRORS(CRIMP_ITEM)
#undef CRIMP_ITEM
  }
  return "unknown";
}

}  // namespace crimp
