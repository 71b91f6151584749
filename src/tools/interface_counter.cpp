#include "interface_counter.hpp"

#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/nearest.hpp"

namespace crimp::tools {

std::uint64_t InterfaceCounter::sent() const {
  std::ifstream file("/proc/self/net/dev");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == line.npos) continue;  // the two title lines
    const auto begin = line.find_first_not_of(' ');
    names.push_back(line.substr(begin, colon - begin));
    if (names.back() != name_) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int i = 0; i < 9; ++i) numbers >> value;  // eight counters of receiving, then bytes sent
    return value;
  }
  throw Error(ErrorCode::argument_invalid, "--interface: there is no '" + name_ + "' here, there are " + joined(names));
}

}  // namespace crimp::tools
