#include "core/profile.hpp"

#include "core/settings.hpp"

namespace crimp {
namespace {

constexpr ProfileSetting kSafe[] = {
    {"CRIMP_CODEC", "fp16"},
    {"CRIMP_QUALITY", "2"},
    {"CRIMP_CONTROL", "off"},
};
constexpr ProfileSetting kBalanced[] = {
    {"CRIMP_CODEC", kHorovodCodec},
    {"CRIMP_QUALITY", "3"},
    {"CRIMP_CONTROL", "off"},
};
constexpr ProfileSetting kAggressive[] = {
    {"CRIMP_CODEC", "3lc"},
    {"CRIMP_QUALITY", "3"},
    {"CRIMP_CONTROL", "delay"},
    {"CRIMP_DELAY_TARGET", "6%"},
};

constexpr Profile kProfiles[] = {
    {"safe", "half the bytes; nothing of a gradient is held back, and a call's error is that of 16-bit floats",
     "trainings end where those without Crimp end (84.1 and 84.0 %, 82.9 and 82.9 %), squared error of a sum below 1e-7 (docs/quality.md, fp16)",
     kSafe},
    {"balanced",
     "some 50 times fewer bytes; error feedback sends later what a call leaves out (what Horovod has by default)",
     "0.2 points less to as much as without Crimp after 4 epochs (docs/horovod.md, three seeds)", kBalanced},
    {"aggressive",
     "as few bytes as the network makes necessary: 64 times fewer at its first level, 160 times and more where it is slow; the strongest levels delay gradients",
     "0.2 points less after six epochs, 0.8 to 1.2 after two, through networks down to 20 Mbit/s (docs/control.md)",
     kAggressive},
};

// A bar in a text would end a table's cell; there is none.
std::string settings_of(const Profile& profile, const char* quote) {
  std::string text;
  for (const ProfileSetting& s : profile.settings)
    text += (text.empty() ? quote : std::string(" ") + quote) + s.name + "=" + s.value + quote;
  return text;
}

}  // namespace

std::span<const Profile> profiles() { return kProfiles; }

const Profile* find_profile(std::string_view name) {
  for (const Profile& profile : kProfiles)
    if (name == profile.name) return &profile;
  return nullptr;
}

std::string profiles_as_text() {
  std::string text;
  for (const Profile& profile : kProfiles) {
    std::string head = profile.name;
    head.resize(12, ' ');
    text += head + profile.summary + "\n";
    text += std::string(12, ' ') + "settings: " + settings_of(profile, "") + "\n";
    text += std::string(12, ' ') + "accuracy: " + profile.accuracy + "\n";
  }
  return text +
         "CRIMP_PROFILE=NAME, or crimp run --profile NAME; a variable, a line of CRIMP_CONFIG or an option that says one of these settings wins\n";
}

std::string profiles_as_markdown() {
  std::string text = "| profile | what | settings | accuracy |\n|---|---|---|---|\n";
  for (const Profile& profile : kProfiles)
    text += std::string("| `") + profile.name + "` | " + profile.summary + " | " + settings_of(profile, "`") + " | " +
            profile.accuracy + " |\n";
  return text;
}

}  // namespace crimp
