// A file to be read. A directory, which can be opened and then not be read, fails like what is not there.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "core/error.hpp"

namespace crimp::tools {

inline std::ifstream input_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code none;
  if (std::filesystem::is_directory(file, none)) in.close(), in.setstate(std::ios::failbit);
  return in;
}

// All of a file or a pipe. Throws Error{argument_invalid}: "'FILE' cannot be read: WHY; legal is LEGAL". What has no
// end is not read until memory has one.
inline std::string input_text(const std::string& file, const std::string& legal) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  const auto refused = [&](const char* why) {
    return Error(ErrorCode::argument_invalid, "'" + file + "' cannot be read" + why + "; legal is " + legal);
  };
  constexpr const char* kLong = ": it has more than 1 GiB";
  std::error_code none;
  const auto status = std::filesystem::status(file, none);
  if (std::filesystem::is_character_file(status) || std::filesystem::is_block_file(status))
    throw refused(": it is a device");
  if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(file, none) > kMost) throw refused(kLong);
  std::ifstream in = input_file(file);
  if (!in) throw refused("");
  std::string text, part(std::size_t{1} << 16, '\0');
  do {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMost) throw refused(kLong);
  } while (in);
  if (in.bad()) throw refused("");
  return text;
}

}  // namespace crimp::tools
