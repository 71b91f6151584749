// Settings: what the CRIMP_* environment variables say, else the file of CRIMP_CONFIG, else rank 0. One table
// (src/core/settings.cpp) makes the parser, `crimp info --env`, the table in docs/settings.md and the complaints about
// unknown or malformed values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

// What CRIMP_CODEC=auto means under Horovod. Measured in docs/horovod.md: as fast as with s=1, and within 0.3 points of
// accuracy of no compression.
inline constexpr const char* kHorovodCodec = "3lc:s=0.5,entropy=1";

enum class LogLevel { off, error, warn, info, debug };

// The defaults are these, and stand nowhere else.
struct Settings {
  std::string config;  // the file, which has been read
  bool enable = true;
  std::string profile = "off";
  std::string codec = "auto";
  std::string unknown_layout = "fp16";
  std::string rules = "*bias=none; *bn*=none; *[nN]orm*=none; *ln_*=none; <1024=none";
  std::string merge = "off";
  std::string plan_file;
  int hold_ms = 100;
  std::string control = "off";
  std::string ladder =
      "fp16:memory=residual; 8bit:memory=residual; maxmin:rounding=nearest,memory=residual; 3lc:s=0.5,entropy=1; 3lc; 3lc:s=1.5; 3lc:s=1.9";
  std::string delay_target = "6%";
  double gain_floor = 0.1;
  std::string algorithm = "auto";
  double quality = 3;  // infinity: any
  int node_size = 0;
  std::string progress = "off";
  bool error_feedback = true;
  int residual_jump = 0;
  std::string residual = "float32";
  std::uint64_t min_count = 16384;
  std::uint64_t chunk = 0;  // 0: auto
  int radix = 0;            // 0: auto; 1: direct
  int periods = 3;
  int threads = 1;
  std::string simd = "auto";
  std::string cuda_plugin = "auto";
  std::string cuda_aware = "auto";
  bool checksum = true;
  int stall_s = 10;
  bool skew = false;
  LogLevel log = LogLevel::info;
  std::string status = "off";
  std::string report;
  std::string replay;
  std::string replayed;  // digest of the content of the file `replay`, which ranks compare in place of its name
  std::string trace;
  std::string state_dir;
  std::uint64_t state_interval = 0;  // compressed calls; 0: at the end alone
  std::string check;                 // read by mpi_shim/self_check.cpp, also in processes without MPI
  bool help = false;
};

struct Option {
  const char* name;   // "CRIMP_CODEC"
  const char* legal;  // what a value may be
  const char* help;   // what it does, with units
  bool agreed;        // must be equal on all ranks of a communicator
  // Stores `text` in the settings; false where it is not legal.
  bool (*set)(Settings&, std::string_view text);
  std::string (*get)(const Settings&);
  std::string default_value() const;  // as text; empty: unset
};

std::span<const Option> option_table();

struct Complaint {
  std::string text;
  bool illegal;  // a known name with a value that is not legal: Crimp stays off. False: an unknown name, reported and
                 // ignored
};

struct SettingText {
  std::string name, value;
};

// Reads NAME=VALUE strings up to a null pointer (environ), and the file of CRIMP_CONFIG, which they override. Of what
// neither says `otherwise` holds (settings_text.hpp); what is not legal in that is left out. Behind all of them come
// the values of CRIMP_PROFILE (profile.hpp), and then the defaults.
Settings read_settings(const char* const* environment, std::vector<Complaint>& complaints,
                       std::span<const SettingText> otherwise = {});

// Behind a complaint that begins with a setting's name: " (line 3 of FILE)" where that came out of the file of
// CRIMP_CONFIG, else nothing.
std::string place_in_file(const Settings&, const char* const* environment, std::string_view complaint);

// The table as aligned text (`crimp info --env`, CRIMP_HELP=1) and as the Markdown table of docs/settings.md.
std::string options_as_text();
std::string options_as_markdown();

}  // namespace crimp
