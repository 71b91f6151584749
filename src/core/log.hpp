// Lines on standard error, quiet by default. Never per call.
#pragma once
#include <string>

#include "crimp/config.hpp"

namespace crimp {

void set_log(LogLevel level, int rank);  // rank < 0: not known yet
void log(LogLevel level, const std::string& line);  // "crimp: line", with the rank in it for warnings and errors of a rank

}  // namespace crimp
