#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace crimp::tools {

CommandLine::Option CommandLine::Option::within(int least, int most) const {
  return option_->check(CLI::Range(least, most)), *this;
}
CommandLine::Option CommandLine::Option::within(std::uint64_t least, std::uint64_t most) const {
  return option_->check(CLI::Range(least, most)), *this;
}
namespace {
// NaN is in every range of CLI11's.
std::string not_a_number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && std::isnan(value) ? "'" + text + "' is no number" : "";
}
}  // namespace
CommandLine::Option CommandLine::Option::within(double least, double most) const {
  return option_->check(CLI::Range(least, most))->check(not_a_number), *this;
}
CommandLine::Option CommandLine::Option::positive() const {
  return option_->check(CLI::PositiveNumber)->check(not_a_number), *this;
}
CommandLine::Option CommandLine::Option::one_of(const std::vector<std::string>& legal) const {
  return option_->check(CLI::IsMember(legal)), *this;
}
CommandLine::Option CommandLine::Option::check(std::function<std::string(const std::string&)> complaint) const {
  return option_->check(std::move(complaint)), *this;
}
CommandLine::Option CommandLine::Option::sizes() const { return option_->transform(CLI::AsSizeValue(false)), *this; }
CommandLine::Option CommandLine::Option::units(
    std::initializer_list<std::pair<const std::string, std::uint64_t>> units) const {
  return option_->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>(units))), *this;
}
CommandLine::Option CommandLine::Option::one_each() const { return option_->allow_extra_args(false), *this; }
CommandLine::Option CommandLine::Option::separated_by(char c) const { return option_->delimiter(c), *this; }
CommandLine::Option CommandLine::Option::value_optional() const { return option_->expected(0, 1), *this; }
bool CommandLine::Option::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}
CommandLine::~CommandLine() = default;

void CommandLine::show_defaults() { app_->option_defaults()->always_capture_default(); }

template <class T>
CommandLine::Option CommandLine::option(const std::string& name, T& to, const std::string& help) {
  return Option(app_->add_option(name, to, help));
}
template CommandLine::Option CommandLine::option(const std::string&, std::string&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, std::uint64_t&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, int&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, double&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, std::vector<std::string>&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, std::vector<std::uint64_t>&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, std::vector<int>&, const std::string&);
template CommandLine::Option CommandLine::option(const std::string&, std::vector<double>&, const std::string&);

void CommandLine::flag(const std::string& name, bool& to, const std::string& help) { app_->add_flag(name, to, help); }
void CommandLine::help_flag(const std::string& name, const std::string& help) { app_->set_help_flag(name, help); }
void CommandLine::footer(const std::string& text) { app_->footer(text); }
void CommandLine::positions_at_end() { app_->positionals_at_end(); }
void CommandLine::allow_others() { app_->allow_extras(); }
Arguments CommandLine::others() const { return app_->remaining(); }

std::optional<int> CommandLine::parse(Arguments arguments, bool quiet) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app_->parse(std::move(arguments));
    return {};
  } catch (const CLI::ParseError& e) {
    if (quiet) return e.get_exit_code() == 0 ? 0 : 2;
    return app_->exit(e) == 0 ? 0 : 2;
  }
}

}  // namespace crimp::tools
