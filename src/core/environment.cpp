#include "core/environment.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace crimp {

std::string environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

std::int64_t environment_number(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text, text + std::strlen(text), value);
  return status == std::errc() && *end == '\0' ? value : otherwise;
}

std::int64_t leading_number(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoll(text, nullptr, 10) : otherwise;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace crimp
