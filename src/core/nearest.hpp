// "did you mean": the legal name nearest to a mistyped one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

// The name at the smallest edit distance, empty where none is near (more than a third of the letters differ).
std::string nearest(std::string_view typed, const std::vector<std::string>& names);
// ", did you mean 'x'?" or nothing.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names);
std::string joined(const std::vector<std::string>& names);  // "a, b, c"

}  // namespace crimp
