#include "simd_option.hpp"

#include <cstdlib>

#include "codec/simd.hpp"

namespace crimp::tools {

SimdOption::SimdOption(CommandLine& app) {
  app.option("--simd", name_, "Use no better SIMD target than this one (the best here)").one_of(simd_targets());
}

void SimdOption::apply() const {
  if (name_.empty()) return;
  choose_simd(name_);
  setenv("CRIMP_SIMD", name_.c_str(), 1);
}

}  // namespace crimp::tools
