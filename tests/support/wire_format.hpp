// What src/codec/WIRE_FORMAT.md says of ids, read from its text.
#pragma once
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "support/golden_files.hpp"

namespace crimp::test {

using Ids = std::map<std::string, int>;

inline std::string wire_format() {
  std::ifstream in(codec_tree() / "WIRE_FORMAT.md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The names and values that the header's table gives a field of one byte: "| 5 | 1 | codec | 1 fp32, 2 fp16 |".
inline Ids ids_of_field(const std::string& field) {
  Ids ids;
  std::istringstream lines(wire_format());
  for (std::string line; std::getline(lines, line);) {
    std::smatch row;
    if (!std::regex_match(line, row, std::regex("\\| *[0-9]+ *\\| *1 *\\| *" + field + " *\\| *(.*)\\|"))) continue;
    const std::string values = row[1];
    const std::regex pair("(?:^|, |: )([0-9]+) ([a-z0-9_]+)");
    for (std::sregex_iterator it(values.begin(), values.end(), pair), end; it != end; ++it)
      ids.emplace((*it)[2], std::stoi((*it)[1]));
  }
  return ids;
}

// Those of the headings of a section: "### 4.9 1bit (9), 4.10 signsgd (10)".
inline Ids ids_of_headings(const std::string& section) {
  Ids ids;
  std::istringstream lines(wire_format());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("### " + section + ".")) continue;
    const std::regex heading("([a-z0-9_]+) \\(([0-9]+)\\)");
    for (std::sregex_iterator it(line.begin(), line.end(), heading), end; it != end; ++it)
      ids.emplace((*it)[1], std::stoi((*it)[2]));
  }
  return ids;
}

}  // namespace crimp::test
