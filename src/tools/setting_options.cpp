#include "setting_options.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace crimp::tools {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == text.npos;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "0 or 1 (off or on)": what stands in brackets says the same in other words.
std::string without_brackets(std::string_view text) {
  std::string rest;
  int depth = 0;
  for (const char c : text) {
    depth += c == '(';
    if (depth == 0) rest += c;
    depth -= c == ')';
  }
  return rest;
}

}  // namespace

const crimp::Option* find_setting(std::string_view name) {
  for (const crimp::Option& option : option_table())
    if (name == option.name) return &option;
  return nullptr;
}

std::string option_name(const crimp::Option& setting) {
  std::string name = "--" + std::string(setting.name).substr(6);  // behind CRIMP_
  for (char& c : name) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::vector<std::string> legal_words(const crimp::Option& setting) {
  std::vector<std::string> words;
  std::string text = without_brackets(setting.legal);
  for (auto at = text.find(" or "); at != text.npos; at = text.find(" or ")) text.replace(at, 4, ",");
  if (const auto colon = text.find(": "); colon != text.npos) text.erase(0, colon + 1);  // "any codec ..., as: "
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view item = trimmed(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), rest.find(',') == rest.npos ? rest.size() : rest.find(',') + 1));
    if (item.starts_with("or ")) item = trimmed(item.substr(3));
    const auto equals = item.find('=');
    std::string word;
    if (equals != item.npos && is_word(item.substr(0, equals))) word = item.substr(0, equals + 1);
    else if (is_word(item)) word = item;
    Settings scratch;
    if (word.empty() || std::count(words.begin(), words.end(), word)) continue;
    if (word.back() == '=' || setting.set(scratch, word)) words.push_back(word);
  }
  return words;
}

bool takes_file(const crimp::Option& setting) {
  const std::string_view legal = setting.legal;
  return legal.find("a file") != legal.npos || legal.find("directory") != legal.npos;
}

bool takes_codecs(const crimp::Option& setting) {
  return std::string_view(setting.legal).find("codec") != std::string_view::npos;
}

SettingOptions::SettingOptions(CommandLine& app, std::span<const char* const> names) {
  for (const char* const name : names) {
    const crimp::Option* const setting = find_setting(name);
    if (!setting) continue;
    One& one = all_.emplace_back(One{setting, {}, {}});
    one.option.push_back(
        app.option(option_name(*setting), one.value,
                   std::string("Sets ") + setting->name + ": " + setting->help + "; legal: " + setting->legal)
            .completes(setting->name));
  }
}

void SettingOptions::to_environment() const {
  for (const One& one : all_) {
    if (!one.option.front().given()) continue;
    const auto words = legal_words(*one.setting);
    const bool file =
        takes_file(*one.setting) && !one.value.empty() && !std::count(words.begin(), words.end(), one.value);
    setenv(one.setting->name, file ? std::filesystem::absolute(one.value).c_str() : one.value.c_str(), 1);
  }
}

}  // namespace crimp::tools
