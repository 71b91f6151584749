// Tables for people, printed row by row as results come in, and the JSON file beside them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace crimp::tools {

class Table {
 public:
  struct Column {
    std::string title, unit;
    int width;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void head() const;                                      // titles and units, behind a '#'
  void row(const std::vector<std::string>& cells) const;  // one cell per column

 private:
  std::vector<Column> columns_;
};

// "0.512", "12.5", "1340": three digits that count.
std::string number(double);
std::string scientific(double);  // "1.2e-07"

// To a file, or to standard output where the name is "-". Throws Error{argument_invalid} where the file cannot be
// written.
void write_json(const std::string& file, const nlohmann::ordered_json&);

}  // namespace crimp::tools
