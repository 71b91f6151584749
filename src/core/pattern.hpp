// Shell patterns over tensors' names: `*` any bytes, `?` one, `[a-z]` one of these (`[!a-z]`, `[^a-z]`: one of the
// others; `[[:digit:]]` and its kin, of ASCII), `\` before what is meant as it is. As POSIX fnmatch() in the C locale,
// without collating symbols; fnmatch() itself follows the program's locale, which may be another one on another rank,
// and takes memory of which a rank may have none.
#pragma once
#include <string_view>

namespace crimp {

bool matches(std::string_view pattern, std::string_view name) noexcept;

}  // namespace crimp
