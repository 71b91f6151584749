// Options of a command that are settings: CRIMP_MIN_COUNT is --min-count. Name, help and legal values are the table's
// (core/settings.hpp).
#pragma once
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "core/settings.hpp"

namespace crimp::tools {

class SettingOptions {
 public:
  // names: of settings. The command line outlives this and is not to be moved.
  SettingOptions(CommandLine&, std::span<const char* const> names);
  SettingOptions(const SettingOptions&) = delete;
  SettingOptions& operator=(const SettingOptions&) = delete;
  // Those that were given become variables of this process; names of files become absolute, because ranks may run
  // elsewhere.
  void to_environment() const;

 private:
  struct One {
    const crimp::Option* setting;
    std::string value;
    std::vector<CommandLine::Option> option;  // one
  };
  std::list<One> all_;  // whose values stay where they are
};

const crimp::Option* find_setting(std::string_view name);  // null: there is none
std::string option_name(const crimp::Option&);             // "--min-count"
// What a value may be as whole words, in the row's order: "auto", "allgather"; "bytes=" where something follows. The
// row's own reader takes the words.
std::vector<std::string> legal_words(const crimp::Option&);
bool takes_file(const crimp::Option&);    // a value may be a file's name
bool takes_codecs(const crimp::Option&);  // ... or has codecs in it

}  // namespace crimp::tools
