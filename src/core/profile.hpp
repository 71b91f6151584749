// CRIMP_PROFILE: groups of settings under a name. A profile's values stand in for the defaults of its options; whatever
// says such an option itself (a variable, the file of CRIMP_CONFIG, rank 0) wins. Which values, and why:
// docs/running.md has the figures that they are taken from.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace crimp {

struct ProfileSetting {
  const char *name, *value;  // "CRIMP_CODEC", as text
};

struct Profile {
  const char* name;  // "safe"
  const char* summary;
  const char* accuracy;  // what it costs, by measurements, and where they stand
  std::span<const ProfileSetting> settings;
};

std::span<const Profile> profiles();
const Profile* find_profile(std::string_view name);  // null: none of that name
std::string profiles_as_text();                      // `crimp info --profiles`
std::string profiles_as_markdown();                  // the table in docs/running.md

}  // namespace crimp
