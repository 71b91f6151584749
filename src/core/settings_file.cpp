#include "core/settings_file.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/file_text.hpp"

namespace crimp {
namespace {

constexpr std::size_t kLongest = 1 << 20;
constexpr std::size_t kShownOfLine = 60;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\f\v");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\f\v") - first + 1);
}

}  // namespace

std::vector<FileSetting> parse_settings_file(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<FileSetting> all;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = trimmed(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), text.find('\n') == text.npos ? text.size() : text.find('\n') + 1));
    if (line.empty() || line.starts_with('#')) continue;
    const auto equals = line.find('=');
    const std::string_view name = trimmed(line.substr(0, equals));
    if (equals == line.npos || !name.starts_with("CRIMP_") || line.find('\0') != line.npos) {
      std::string shown(line.substr(0, kShownOfLine));
      for (char& c : shown)
        if (static_cast<unsigned char>(c) < ' ') c = '?';
      throw std::runtime_error("line " + std::to_string(number) + " is '" + shown +
                               "', legal is: CRIMP_NAME=value, # comment, or nothing");
    }
    all.push_back({std::string(name), std::string(trimmed(line.substr(equals + 1))), number});
  }
  return all;
}

std::vector<FileSetting> read_settings_file(const std::string& path) {
  if (path == "/dev/null") return {};
  std::string text;
  try {
    text = file_text(path, kLongest);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(std::string("it ") + e.what());
  }
  return parse_settings_file(text);
}

}  // namespace crimp
