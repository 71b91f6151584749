// Where a kernel synchronises, for reports and for telling barriers apart.
#pragma once
#include <source_location>

namespace simt {

#ifdef __cpp_lib_source_location
using RandomCounter = std::source_location;
#else  // clang before 16
class RandomCounter {
 public:
  static constexpr RandomCounter current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                         unsigned column = __builtin_COLUMN()) {
    return {file, line, column};
  }
  constexpr RandomCounter() = default;
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return column_; }

 private:
  constexpr RandomCounter(const char* file, unsigned line, unsigned column)
      : file_(file), line_(line), column_(column) {}
  const char* file_ = "";
  unsigned line_ = 0, column_ = 0;
};
#endif

}  // namespace simt
