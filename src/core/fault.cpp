#include "core/fault.hpp"

#ifdef CRIMP_FAULTS
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace crimp::fault {
namespace {
std::atomic<int> world_rank{-1};
}

void set_rank(int rank) { world_rank = rank; }

bool fires(const char* name) {
  static const char* const plan = std::getenv("CRIMP_FAULT");
  if (!plan) return false;
  static std::mutex mutex;
  static std::map<std::string, int> asked;
  const std::string key = std::string(name) + "@" + std::to_string(world_rank.load());
  for (const char* p = std::strstr(plan, key.c_str()); p; p = std::strstr(p + 1, key.c_str())) {
    const char* end = p + key.size();
    if (*end != '\0' && *end != ',' && *end != ':') continue;
    std::lock_guard lock(mutex);
    const int nth = ++asked[key];
    return *end == ':' ? nth == std::atoi(end + 1) : true;
  }
  return false;
}

}  // namespace crimp::fault
#endif
