#include "core/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crimp {
namespace {

// Of text that is JSON; of other text some number. The parser itself does not mind how deep it is.
int nesting(std::string_view text) {
  int depth = 0, most = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') ++at;  // what follows does not end the string
    else if (c == '"') quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{')) most = std::max(most, ++depth);
    else if (!quoted && (c == ']' || c == '}')) --depth;
  }
  return most;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  if (nesting(text) > kMostNesting) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace crimp
