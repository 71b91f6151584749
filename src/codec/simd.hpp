// The processor's instructions that codecs use: a target of Highway, by its name ("AVX2", "AVX3"). Results are the same
// with all of them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

// What was compiled and this processor has, the best first.
std::vector<std::string> simd_targets();
// The one in use: the best, or the best that is no better than what was chosen.
std::string simd_target();
// Codecs use no better one from here on, in this process. Not while other threads run codecs. Throws
// Error{argument_invalid} where there is none of this name here.
void choose_simd(std::string_view name);

}  // namespace crimp
