#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
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
  of_->extra_[option_].values = legal;
  return option_->check(CLI::IsMember(legal)), *this;
}
CommandLine::Option CommandLine::Option::check(std::function<std::string(const std::string&)> complaint) const {
  return option_->check(std::move(complaint)), *this;
}
namespace {
// CLI11 takes what 64 bits do not hold for the most that they do, and what is below 0 for 2^64 more.
CLI::Validator in_64_bits() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        if (const std::size_t minus = text.find('-'); minus != text.npos) {
          const bool below = text.find_first_not_of(" \t") == minus &&
                             std::isdigit(static_cast<unsigned char>(text[minus + 1])) &&
                             text.find('-', minus + 1) == text.npos;
          return "'" + text + (below ? "' is below 0" : "' is no size");
        }
        const auto error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
        return error == std::errc::result_out_of_range ? "'" + text + "' is too large a number" : std::string();
      },
      "");
}
}  // namespace
CommandLine::Option CommandLine::Option::sizes() const {
  return option_->transform(CLI::AsSizeValue(false))->transform(in_64_bits()), *this;
}
CommandLine::Option CommandLine::Option::units(
    std::initializer_list<std::pair<const std::string, std::uint64_t>> units) const {
  option_->transform(CLI::AsNumberWithUnit(std::map<std::string, std::uint64_t>(units)));
  return option_->transform(in_64_bits()), *this;
}
CommandLine::Option CommandLine::Option::one_each() const { return option_->allow_extra_args(false), *this; }
CommandLine::Option CommandLine::Option::separated_by(char c) const { return option_->delimiter(c), *this; }
CommandLine::Option CommandLine::Option::value_optional() const { return option_->expected(0, 1), *this; }
CommandLine::Option CommandLine::Option::completes(const std::string& what) const {
  of_->extra_[option_].completes = what;
  return *this;
}
bool CommandLine::Option::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}
CommandLine::~CommandLine() = default;

void CommandLine::show_defaults() { app_->option_defaults()->always_capture_default(); }

template <class T>
CommandLine::Option CommandLine::option(const std::string& name, T& to, const std::string& help) {
  return Option(app_->add_option(name, to, help), this);
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

namespace {
CommandText* asked = nullptr;  // by text_of()
}  // namespace

CommandText text_of(int (*command)(Arguments)) {
  CommandText text;
  asked = &text;
  try {
    command({});
  } catch (...) {
    asked = nullptr;
    throw;
  }
  asked = nullptr;
  return text;
}

CommandText CommandLine::text() const {
  CommandText text;
  text.name = app_->get_name();
  text.description = app_->get_description();
  text.footer = app_->get_footer();
  text.others = app_->get_allow_extras();
  for (const CLI::Option* const option : app_->get_options()) {
    OptionText one;
    one.position = option->get_positional();
    if (one.position) one.names.push_back(option->get_name(true));
    for (const auto& name : option->get_snames()) one.names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) one.names.push_back("--" + name);
    const bool value = option->get_items_expected_max() > 0;
    if (value) one.type = option->get_type_name();
    one.help = option->get_description();
    one.value_optional = value && option->get_items_expected_min() == 0;
    one.repeats = option->get_expected_max() > 1;
    if (const auto extra = extra_.find(option); extra != extra_.end())
      one.values = extra->second.values, one.completes = extra->second.completes;
    if (one.completes.empty()) one.completes = one.type.starts_with("TEXT") ? "file" : "none";
    text.options.push_back(std::move(one));
  }
  return text;
}

// CLI11 takes "--name=" for an option whose value is the next word.
Arguments CommandLine::with_empty_values(const Arguments& arguments) const {
  const auto takes_value = [&](const std::string& name) {
    const CLI::Option* const option = name.starts_with("--") ? app_->get_option_no_throw(name) : nullptr;
    return option && option->get_items_expected_max() > 0;
  };
  Arguments out;
  bool options = true, value = false;  // whether options may follow; whether the word is one's value
  for (const std::string& word : arguments) {
    options = options && word != "--" && (value || word.starts_with('-') || !app_->get_positionals_at_end());
    if (options && word.ends_with('=') && takes_value(word.substr(0, word.size() - 1))) {
      out.push_back(word.substr(0, word.size() - 1));
      out.emplace_back();
    } else {
      out.push_back(word);
    }
    value = takes_value(word);
  }
  return out;
}

std::optional<int> CommandLine::parse(Arguments arguments, bool quiet) {
  if (asked) return *asked = text(), 0;
  arguments = with_empty_values(arguments);
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
