// A file to be read. A directory, which can be opened and then not be read, fails like what is not there.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

namespace crimp::tools {

inline std::ifstream input_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code none;
  if (std::filesystem::is_directory(file, none)) in.close(), in.setstate(std::ios::failbit);
  return in;
}

}  // namespace crimp::tools
