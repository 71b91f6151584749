#include "core/settings_text.hpp"

#include <algorithm>
#include <vector>

#include "core/build_id.hpp"

namespace crimp {
namespace {

constexpr const char *kLegal = "legal", *kBuild = "the build of Crimp";
constexpr std::size_t kShown = 60,
                      kBefore = 20;  // characters of a value, and of those in front of the first difference

struct Entry {
  std::string_view name, value;
};

std::vector<Entry> entries_of(std::string_view text) {
  const auto next = [&] {
    const std::string_view part = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    return part;
  };
  std::vector<Entry> all;
  while (!text.empty()) {
    const std::string_view name = next();
    all.push_back({name, next()});
  }
  return all;
}

const Entry* find(const std::vector<Entry>& all, std::string_view name) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Entry& e) { return e.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::string quoted(std::string_view value, std::size_t from) {
  const bool cut = value.size() > from + kShown;
  std::string shown((from ? "..." : "") + std::string(value.substr(std::min(from, value.size()), kShown)) +
                    (cut ? "..." : ""));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return "'" + shown + "'";
}

std::string difference(const Entry& first, const Entry* other, const std::string& rank) {
  if (!other) return std::string(first.name) + " is not known to Crimp on rank " + rank;
  const auto [at, none] =
      std::mismatch(first.value.begin(), first.value.end(), other->value.begin(), other->value.end());
  const auto same = static_cast<std::size_t>(at - first.value.begin());
  // From the start where that shows the difference.
  const std::size_t from =
      std::max(first.value.size(), other->value.size()) <= kShown || same < kShown / 2 ? 0 : same - kBefore;
  return std::string(first.name) + " is " + quoted(first.value, from) + " on rank 0 and " + quoted(other->value, from) +
         " on rank " + rank + (from ? " (from character " + std::to_string(same + 1) + " on)" : "");
}

}  // namespace

std::string settings_text(const Settings& settings, bool legal) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view value) {
    text.append(name).push_back('\0');
    text.append(value).push_back('\0');
  };
  add("the version of Crimp", CRIMP_VERSION);
  add(kBuild, build_id());
  add(kLegal, legal ? "1" : "0");
  for (const Option& option : option_table())
    if (option.agreed) add(option.name, option.get(settings));
  add("the content of CRIMP_REPLAY", settings.replayed);
  return text;
}

bool of_this_build(std::string_view text) {
  const std::string_view name(kBuild, std::char_traits<char>::length(kBuild) + 1);  // with its null byte
  const std::size_t at = text.find(name);
  return at != text.npos && text.substr(at + name.size()).starts_with(build_id());
}

std::vector<SettingText> options_in(std::string_view text) {
  if (!of_this_build(text)) return {};
  const auto entries = entries_of(text);
  std::vector<SettingText> options;
  for (const Option& option : option_table())
    if (const Entry* const entry = option.agreed ? find(entries, option.name) : nullptr)
      options.push_back({std::string(entry->name), std::string(entry->value)});
  return options;
}

std::string settings_difference(std::string_view of_rank_0, std::string_view of_rank, int rank) {
  const auto first = entries_of(of_rank_0), other = entries_of(of_rank);
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  for (const Entry& entry : first) {
    const Entry* same = find(other, entry.name);
    const bool equal = same && same->value == entry.value;
    if (entry.name == kLegal && same && (!equal || entry.value == "0")) {
      // A rank has named such a setting, which has its default since; all may know of it.
      add(equal ? "a rank has an illegal setting"
                : "a setting on rank " + std::to_string(entry.value == "1" ? rank : 0) + " is illegal");
      return text;
    }
    if (equal) continue;
    add(difference(entry, same, std::to_string(rank)));
  }
  for (const Entry& entry : other)
    if (!find(first, entry.name)) add(std::string(entry.name) + " is not known to Crimp on rank 0");
  return text.empty() ? "the settings of rank " + std::to_string(rank) + " could not be read" : text;
}

}  // namespace crimp
