// Where a kernel synchronises, for reports and for telling barriers apart.
#pragma once
#include <source_location>

namespace simt {

#ifdef __cpp_lib_source_location
using Place = std::source_location;
#else  // clang before 16
class Place {
 public:
  static constexpr Place current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                 unsigned column = __builtin_COLUMN()) {
    return {file, line, column};
  }
  constexpr Place() = default;
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return column_; }

 private:
  constexpr Place(const char* file, unsigned line, unsigned column) : file_(file), line_(line), column_(column) {}
  const char* file_ = "";
  unsigned line_ = 0, column_ = 0;
};
#endif

}  // namespace simt
