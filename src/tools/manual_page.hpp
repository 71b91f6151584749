// Manual pages in roff's man macros, from the tables that the command and the library go by.
#pragma once
#include <string>
#include <vector>

namespace crimp::tools {

struct ManualPage {
  std::string name;  // "crimp-run"
  int section;
  std::string text() const;
};
// crimp(1), a page for each command, crimp-settings(7), crimp-codecs(7).
std::vector<ManualPage> manual_pages();
// crimp(3) out of the text of crimp.h: its comments, each with the declaration behind it.
std::string manual_of_header(const std::string& header);

}  // namespace crimp::tools
