#include "core/settings_file.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace crimp {
namespace {

constexpr std::uintmax_t kLongest = 1 << 20;
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
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw std::runtime_error("it cannot be read: " + error.message());
  if (!std::filesystem::is_regular_file(status)) throw std::runtime_error("it is no regular file");
  if (std::filesystem::file_size(path, error) > kLongest)
    throw std::runtime_error("it is longer than 1 MiB, which is too long for settings");
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("it cannot be read: " + std::generic_category().message(errno));
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  if (!stream) throw std::runtime_error("it cannot be read");
  return parse_settings_file(text);
}

}  // namespace crimp
