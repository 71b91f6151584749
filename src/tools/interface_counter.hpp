// Bytes that a network interface has sent, as the kernel counts them in this process's network namespace.
#pragma once
#include <cstdint>
#include <string>

namespace crimp::tools {

class InterfaceCounter {
 public:
  explicit InterfaceCounter(std::string name) : name_(std::move(name)) {}
  std::uint64_t sent()
      const;  // throws Error{argument_invalid} that lists the interfaces, where there is none of this name

 private:
  std::string name_;
};

}  // namespace crimp::tools
