#include "codec/spec.hpp"

#include <charconv>

#include "crimp/error.hpp"

namespace crimp {

std::string spec_number(double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  return std::string(text, end);
}

SpecValues::SpecValues(std::string_view text, const CodecInfo& info) : text_(text) {
  const auto colon = text.find(':');
  std::string_view rest = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    bool known = false;
    std::string legal;
    for (const auto& p : info.parameters) {
      known = known || p.key == key;
      legal += (legal.empty() ? "" : ", ") + std::string(p.key) + " (" + std::string(p.legal) + ")";
    }
    if (!known || equals == item.npos)
      throw Error(ErrorCode::codec_unknown, "codec '" + text_ + "': '" + std::string(item) + "' is not a parameter of " +
                                                std::string(info.name) + "; legal: " + (legal.empty() ? "none" : legal) +
                                                ", as in '" + std::string(info.name) + (legal.empty() ? "'" : ":key=value'"));
    values_.insert_or_assign(std::string(key), std::string(item.substr(equals + 1)));
  }
}

double SpecValues::number(std::string_view key, double default_value) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return default_value;
  double value = 0;
  const auto& s = it->second;
  const auto [end, status] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (status != std::errc() || end != s.data() + s.size()) fail(key, "a number");
  return value;
}

bool SpecValues::flag(std::string_view key, bool default_value) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return default_value;
  if (it->second != "0" && it->second != "1") fail(key, "0 or 1");
  return it->second == "1";
}

void SpecValues::fail(std::string_view key, std::string_view legal) const {
  const auto it = values_.find(key);
  throw Error(ErrorCode::codec_unknown, "codec '" + text_ + "': " + std::string(key) + " is '" +
                                            (it == values_.end() ? "" : it->second) + "', legal is " + std::string(legal));
}

}  // namespace crimp
