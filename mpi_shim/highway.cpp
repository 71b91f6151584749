// Highway's library, opened when a codec first runs. Linked, its static initialization would time the clock in every
// process that loads Crimp: 3.5 million instructions. Of its functions ours call these two only, as
// tests/house/check_loading.sh sees.
#include <dlfcn.h>
#include <hwy/highway.h>

namespace {

const char* missing = nullptr;

}  // namespace

namespace crimp {

const char* highway_missing() {
  static_cast<void>(hwy::SupportedTargets());
  return missing;
}

}  // namespace crimp

namespace hwy {

int64_t SupportedTargets() {
  static const int64_t targets = [] {
    void* const library = ::dlopen(CRIMP_HIGHWAY, RTLD_LAZY | RTLD_LOCAL);
    if (!library) missing = CRIMP_HIGHWAY;
    const auto ask =
        library ? reinterpret_cast<int64_t (*)()>(::dlsym(library, "_ZN3hwy16SupportedTargetsEv")) : nullptr;
    return ask ? ask()
               : static_cast<int64_t>(HWY_STATIC_TARGET);  // what the compiler was told that every processor has
  }();
  return targets;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
