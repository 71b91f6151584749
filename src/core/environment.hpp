// Where the process is: other programs' environment variables, read in one place, and the host. Crimp's own are the
// option table's.
#pragma once
#include <cstdint>
#include <string>

namespace crimp {

std::string environment_text(const char* name);                             // empty where unset
std::int64_t environment_number(const char* name, std::int64_t otherwise);  // otherwise: unset or no whole number
// Where set, as strtol() reads it: the number that the text begins with, 0 without one.
std::int64_t leading_number(const char* name, std::int64_t otherwise);
std::string host_name();  // empty where it is not known

}  // namespace crimp
