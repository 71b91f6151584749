// The options of a command. CLI11 reads them, behind this border: it takes a compiler some ten seconds in every file
// that includes it, and command_line.cpp is the only one.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace crimp::tools {

using Arguments = std::vector<std::string>;

// What a command takes, as other forms of help show it (manual_page.hpp, completion.hpp).
struct OptionText {
  std::vector<std::string> names;   // "--codec", the short ones first; of a position its one name, without dashes
  std::string type, help;           // "TEXT"; empty: a flag
  std::vector<std::string> values;  // the only legal ones; empty: there are others
  std::string completes;            // CommandLine::Option::completes()
  bool position = false, value_optional = false, repeats = false;
};
struct CommandText {
  std::string name, description, footer;
  std::vector<OptionText> options;
  bool others = false;  // words that are no option's are legal
};
// Of a command whose function returns what parse() does, before it does anything else. Nothing is run. Not thread-safe.
CommandText text_of(int (*command)(Arguments));

class CommandLine {
 public:
  // What an option takes; other text ends the command (parse). Valid as long as the command line.
  class Option {
   public:
    Option(CLI::Option* option, CommandLine* of) : option_(option), of_(of) {}
    Option within(int least, int most) const;  // which stand in --help; the type is the one that it shows
    Option within(std::uint64_t least, std::uint64_t most) const;
    Option within(double least, double most) const;
    Option positive() const;
    Option one_of(const std::vector<std::string>&) const;
    Option check(std::function<std::string(const std::string&)> complaint) const;  // empty: legal
    Option sizes() const;                                                          // 16M; k is 1024
    Option units(std::initializer_list<std::pair<const std::string, std::uint64_t>>) const;
    Option one_each() const;  // of a list: a value for every time that the option stands there
    Option separated_by(char) const;
    Option value_optional() const;
    // What its values are, for who types them: "codec", "file", "directory",
    // "command", "none", or a setting, "CRIMP_ALGORITHM". Without: "file" of texts, "none" of numbers.
    Option completes(const std::string& what) const;
    bool given() const;

   private:
    CLI::Option* option_;
    CommandLine* of_;
  };

  explicit CommandLine(const std::string& description, const std::string& name = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void show_defaults();  // of the options that follow
  // T: std::string, std::uint64_t, int, double, or a vector of one of these. A name without dashes is a
  // position. What `to` holds is the default.
  template <class T>
  Option option(const std::string& name, T& to, const std::string& help);
  void flag(const std::string& name, bool& to, const std::string& help);
  void help_flag(const std::string& name, const std::string& help);  // instead of -h and --help
  void footer(const std::string& text);
  void positions_at_end();  // from the first of them on nothing is an option
  void allow_others();
  Arguments others() const;  // which are no option's, where they are allowed

  // The exit code where the arguments end the command (--help: 0, errors: 2), nothing where it goes on. quiet: another
  // rank says it. Under text_of() it ends the command, too.
  std::optional<int> parse(Arguments, bool quiet = false);

 private:
  struct Extra {
    std::vector<std::string> values;
    std::string completes;
  };
  CommandText text() const;
  Arguments with_empty_values(const Arguments&) const;
  std::unique_ptr<CLI::App> app_;
  std::map<const CLI::Option*, Extra> extra_;
};

}  // namespace crimp::tools
