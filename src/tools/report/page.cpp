#include "report/page.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "report/page_parts.hpp"

namespace crimp::tools {
namespace {

// What the parser of HTML would take for the end of the script, or JavaScript for that of a line.
std::string in_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') out += "\\u003c";
    else if (c == '>') out += "\\u003e";
    else if (c == '&') out += "\\u0026";
    else out += c;
  }
  return out;
}

std::string in_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

// Once each, in one walk over the template, so that nothing that was put in is looked through.
std::string fill(std::string_view page, std::initializer_list<std::pair<std::string_view, std::string_view>> parts) {
  std::string out;
  while (!page.empty()) {
    const auto at = page.find("@@");
    out += page.substr(0, at);
    if (at == std::string_view::npos) break;
    const auto end = page.find("@@", at + 2);
    const std::string_view name = page.substr(at + 2, end - at - 2);
    for (const auto& [key, value] : parts)
      if (key == name) out += value;
    page.remove_prefix(end + 2);
  }
  return out;
}

}  // namespace

std::string page_of(const nlohmann::ordered_json& digests, const std::string& text) {
  const std::string data = in_script(digests.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::string title = "Crimp report";
  for (const auto& digest : digests) {
    const std::string file = digest["file"].get<std::string>();
    title += (title.size() == 12 ? ": " : ", ") + file.substr(file.rfind('/') + 1);
  }
  return fill(kPageHtml,
              {{"title", in_html(title)}, {"css", kPageCss}, {"js", kPageJs}, {"data", data}, {"text", in_html(text)}});
}

}  // namespace crimp::tools
