// Which sources this library was built from.
#pragma once

namespace crimp {

// 16 hexadecimal digits: a hash over all files that the library is made of. Whoever compiles the same files, where and
// with whatever, gets the same, because compilers decide no bit of what ranks exchange (src/README.md); who changes one
// gets another.
const char* build_id() noexcept;

}  // namespace crimp
