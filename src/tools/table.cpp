#include "table.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/error.hpp"
#include "core/output_file.hpp"

namespace crimp::tools {

void Table::head() const {
  for (const bool units : {false, true}) {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      std::printf("%s%*s", i ? " " : "#", columns_[i].width - (i == 0),
                  (units ? columns_[i].unit : columns_[i].title).c_str());
    std::printf("\n");
  }
  std::fflush(stdout);
}

void Table::row(const std::vector<std::string>& cells) const {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    std::printf("%s%*s", i ? " " : "", columns_[i].width, cells[i].c_str());
  std::printf("\n");
  std::fflush(stdout);
}

std::string number(double x) {
  const double size = std::fabs(x);
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0, x);
  return text;
}

std::string scientific(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return x == 0 ? "0" : text;
}

void write_json(const std::string& file, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::error_code none;
  if (std::filesystem::exists(file, none) && !std::filesystem::is_regular_file(file, none)) {  // a pipe to somebody
    std::FILE* to = std::fopen(file.c_str(), "w");
    const bool good = to && std::fputs(text.c_str(), to) >= 0;
    if (!to || std::fclose(to) != 0 || !good) throw std::runtime_error("--json: '" + file + "' could not be written");
    return;
  }
  if (const std::string why = OutputFile(file).write(text); !why.empty()) throw std::runtime_error("--json: " + why);
}

}  // namespace crimp::tools
