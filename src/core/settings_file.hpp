// The file of CRIMP_CONFIG: settings, one NAME=VALUE a line, for launchers that lose the environment's variables.
//
//   # what follows a number sign at a line's beginning is a comment
//   CRIMP_CODEC = 3lc
//
// A line's name is an option's. White space around name and value, empty lines and a UTF-8 mark do not count; quotes
// are characters like others. Of a name that comes twice the last one counts.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

struct FileSetting {
  std::string name, value;
  int line;
};

// Throws std::runtime_error, whose text names the line where one is at fault: "line 3 is 'codec', ...".
std::vector<FileSetting> parse_settings_file(std::string_view text);
// Of a regular file, or a link to one, of at most 1 MiB, or of /dev/null. Throws likewise: "it cannot be read:
// Permission denied".
std::vector<FileSetting> read_settings_file(const std::string& path);

}  // namespace crimp
