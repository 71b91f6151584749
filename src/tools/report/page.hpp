// The HTML page of one or several digests: one file that asks for no other.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace crimp::tools {

// digests: a list. text: the same for who runs no scripts.
std::string page_of(const nlohmann::ordered_json& digests, const std::string& text);

// For a terminal; of several a comparison in front.
std::string text_of(const nlohmann::ordered_json& digests);

}  // namespace crimp::tools
