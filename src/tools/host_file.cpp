#include "host_file.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/error.hpp"

namespace crimp::tools {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::argument_invalid, "run: --hostfile " + file + ": " + why);
}

bool read_slots(const std::string& text, int& slots) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), slots);
  return status == std::errc() && end == text.data() + text.size() && slots > 0;
}

// KEY=VALUE: what Open MPI knows beside slots is nothing to us. A rankfile has no keys there.
bool is_known(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != word.npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalpha(c) || c == '_' || c == '-'; });
}

// The slots that a word says; empty: it says something else.
std::optional<std::string> slots_in(const std::string& word) {
  for (const char* key : {"slots=", "cpu=", "count="})
    if (word.starts_with(key)) return word.substr(std::strlen(key));
  return {};
}

bool is_name(const std::string& text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == ','; });
}

// Also in brackets, and with an interface behind a '%'.
bool is_ipv6(std::string name) {
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  name.erase(std::min(name.find('%'), name.size()));
  in6_addr address;
  return ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

std::string listed(const std::vector<Host>& hosts, bool with_slots) {
  std::string text;
  for (const Host& host : hosts)
    text +=
        (text.empty() ? "" : ",") + host.name + (with_slots && host.slots > 0 ? ":" + std::to_string(host.slots) : "");
  return text;
}

}  // namespace

std::vector<Host> read_hosts(const std::string& file) {
  std::error_code none;
  std::ifstream stream(file);
  if (!stream || !std::filesystem::is_regular_file(file, none)) refuse(file, "it is no file that can be read");
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    // Open MPI takes `slots = 4` as well.
    std::string text = line.substr(0, line.find('#'));
    for (std::size_t at = text.find('='); at != text.npos; at = text.find('=', at + 1)) {
      while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) text.erase(--at, 1);
      while (at + 1 < text.size() && std::isspace(static_cast<unsigned char>(text[at + 1]))) text.erase(at + 1, 1);
    }
    std::istringstream words(text);
    Host host;
    if (!(words >> host.name)) continue;
    const auto at_fault = [&] {
      refuse(file, "line " + std::to_string(number) + " is '" + line.substr(0, 60) +
                       "'; legal is: HOST, HOST:SLOTS, HOST slots=SLOTS, # comment");
    };
    // An IPv6 address has colons itself: slots stand behind one in brackets alone.
    const auto last = host.name.rfind(':');
    const bool in_brackets = host.name.starts_with('[') && is_ipv6(host.name.substr(0, last));
    if (const auto colon = in_brackets ? last : host.name.find(':'); colon != host.name.npos && !is_ipv6(host.name)) {
      if (!read_slots(host.name.substr(colon + 1), host.slots)) at_fault();
      host.name.erase(colon);
    }
    for (std::string word; words >> word;)
      if (const auto slots = slots_in(word); slots ? !read_slots(*slots, host.slots) : !is_known(word)) at_fault();
    if (!is_name(host.name)) at_fault();
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) refuse(file, "there is no host in it");
  return hosts;
}

Arguments host_options(const std::string& file, LauncherKind kind) {
  const auto hosts = read_hosts(file);
  if (kind == LauncherKind::hydra) return {"-hosts", listed(hosts, true)};
  if (kind == LauncherKind::slurm) return {"--nodelist=" + listed(hosts, false)};
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);)
    if (line.substr(0, line.find('#')).find(':') != line.npos) return {"--host", listed(hosts, true)};
  return {"--hostfile", file};
}

}  // namespace crimp::tools
