// JSON that somebody else may have written or damaged.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace crimp {

// How deep values may be nested: several times what Crimp writes. Whoever copies or prints a deeper one takes the
// stack, which ends the process.
constexpr int kMostNesting = 32;

// As nlohmann::json::parse() does, but discarded as well where it is nested deeper. Throws std::bad_alloc alone.
nlohmann::json parse_json(std::string_view text);

}  // namespace crimp
