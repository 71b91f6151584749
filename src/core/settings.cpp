#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/nearest.hpp"
#include "core/numbers.hpp"
#include "core/profile.hpp"
#include "core/settings.hpp"
#include "core/settings_file.hpp"
#include "core/types.hpp"

namespace crimp {
namespace {

bool parse_flag(std::string_view text, bool& to) {
  if (text == "1" || text == "on" || text == "true" || text == "yes") return to = true;
  if (text == "0" || text == "off" || text == "false" || text == "no") return to = false, true;
  return false;
}

constexpr const char* kLevels[] = {"off", "error", "warn", "info", "debug"};
bool parse_level(std::string_view text, LogLevel& to) {
  for (int i = 0; i < 5; ++i)
    if (text == kLevels[i]) return to = static_cast<LogLevel>(i), true;
  return false;
}

bool parse_text(std::string_view text, std::string& to) {
  to = text;
  return true;
}
bool parse_codec(std::string_view text, std::string& to) { return !text.empty() && parse_text(text, to); }

// 1: exact, infinity: any.
bool parse_quality(std::string_view text, double& to) {
  if (text == "exact") return to = 1, true;
  if (text == "any") return to = std::numeric_limits<double>::infinity(), true;
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value >= 1) || std::isinf(value)) return false;
  return to = value, true;
}
std::string quality_text(double quality) {
  if (quality == 1) return "exact";
  if (std::isinf(quality)) return "any";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, quality).ptr};
}

bool parse_control(std::string_view text, std::string& to) {
  return (text == "off" || text == "delay") && parse_text(text, to);
}
// A number from `low` to `high`, without a suffix.
bool parse_real(std::string_view text, double low, double high, double& to) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) return false;
  return to = value, true;
}
std::string real_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string flag_text(bool b) { return b ? "1" : "0"; }

bool parse_status(std::string_view text, std::string& to) {
  // As flags are written; nobody means a file of such a name.
  if (bool on = false; parse_flag(text, on)) text = on ? "stderr" : "off";
  return !text.empty() && parse_text(text, to);
}

// The texts of codecs are read by make_codec once, at start-up; core knows no codec.
constexpr Option kTable[] = {
    {"CRIMP_CONFIG", "a file name",
     "the other variables, a line NAME=VALUE each, where the environment does not say them (a regular file; lines that begin with # are comments; of a name that comes twice the last line counts)",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.config); },
     [](const Settings& s) { return s.config; }},
    {"CRIMP_ENABLE", "0 or 1 (off or on)", "0: every call passes through", true,
     [](Settings& s, std::string_view t) { return parse_flag(t, s.enable); },
     [](const Settings& s) { return flag_text(s.enable); }},
    {"CRIMP_PROFILE", "off, safe, balanced, aggressive",
     "a group of settings, in place of the defaults of those that nothing else says (crimp info --profiles lists them)",
     true, [](Settings& s, std::string_view t) { return (t == "off" || find_profile(t)) && parse_text(t, s.profile); },
     [](const Settings& s) { return s.profile; }},
    {"CRIMP_CODEC", "auto, none, fp16, bf16, 3lc, or codec:parameter=value,...",
     "how gradients are compressed; auto: 3lc:s=0.5,entropy=1 under Horovod, elsewhere nothing lossy until a codec is chosen (crimp info --codecs lists all)",
     true, [](Settings& s, std::string_view t) { return parse_codec(t, s.codec); },
     [](const Settings& s) { return s.codec; }},
    {"CRIMP_UNKNOWN_LAYOUT", "any codec without residual but votes (signsgd), as: none, fp16, bf16, 8bit",
     "replaces a codec that needs a residual in calls whose tensors are not known; none: such calls pass through", true,
     [](Settings& s, std::string_view t) { return parse_codec(t, s.unknown_layout); },
     [](const Settings& s) { return s.unknown_layout; }},
    {"CRIMP_RULES", "pattern=codec; <N=codec; >=N=codec; ...; codec|codec for codec",
     "codec by tensor name (shell pattern) or element count, first match wins, where names are known; none: summed exactly; none:memory=none: without dgc's momentum, too, as metrics must be; 3lc|topk: CRIMP_MERGE=auto takes the faster one, group by group, else the first",
     true, [](Settings& s, std::string_view t) { return parse_text(t, s.rules); },
     [](const Settings& s) { return s.rules; }},
    {"CRIMP_MERGE", "off, auto, all, bytes=N, y=N, cuts=i,j,...",
     "under Horovod: which consecutive tensors are reduced together; auto: tried while the job runs; y=N: N groups of about equal bytes",
     true, [](Settings& s, std::string_view t) { return parse_text(t, s.merge); },
     [](const Settings& s) { return s.merge; }},
    {"CRIMP_PLAN_FILE", "a file name",
     "under Horovod with CRIMP_MERGE=auto: rank 0 saves the plan that was found, and a later job begins with it (a new or regular file)",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.plan_file); },
     [](const Settings& s) { return s.plan_file; }},
    {"CRIMP_HOLD_MS", "1 .. 60000 milliseconds",
     "under Horovod: the longest that a ready tensor waits for the rest of its merge group while none of the plan is reduced",
     true, [](Settings& s, std::string_view t) { return parse_number(t, 1, 60000, s.hold_ms); },
     [](const Settings& s) { return std::to_string(s.hold_ms); }},
    {"CRIMP_CONTROL", "off, delay",
     "delay: calls that would have CRIMP_CODEC have a codec of CRIMP_LADDER, as strong as the network makes necessary",
     true, [](Settings& s, std::string_view t) { return parse_control(t, s.control); },
     [](const Settings& s) { return s.control; }},
    {"CRIMP_LADDER",
     "codec; codec; ... from the mildest to the strongest, all with memory=residual or all without memory",
     "under CRIMP_CONTROL: the codecs to choose from; it begins with CRIMP_CODEC, or with the first", true,
     [](Settings& s, std::string_view t) { return parse_codec(t, s.ladder); },
     [](const Settings& s) { return s.ladder; }},
    {"CRIMP_DELAY_TARGET", "N% (0.001 to 90) of the time, or Nus, Nms, Ns (0.001us to 1000s) for each call",
     "under CRIMP_CONTROL: how long calls may wait for the network", true,
     [](Settings& s, std::string_view t) { return parse_codec(t, s.delay_target); },
     [](const Settings& s) { return s.delay_target; }},
    {"CRIMP_GAIN_FLOOR", "0 .. 1",
     "under CRIMP_CONTROL: the least norm of what is sent, by the norm of what was to be sent; below it compression becomes milder",
     true, [](Settings& s, std::string_view t) { return parse_real(t, 0, 1, s.gain_floor); },
     [](const Settings& s) { return real_text(s.gain_floor); }},
    {"CRIMP_ALGORITHM",
     "auto, allgather, one_shot, two_shot, homomorphic, low_rank, hierarchical, integer_sum, node_sum",
     "how payloads travel; auto: the fastest by a model measured in a communicator's fourth call and by trials, or plain MPI where that is faster; "
     "another value forces one and compresses every call (crimp info --algorithms)",
     true, [](Settings& s, std::string_view t) { return parse_codec(t, s.algorithm); },
     [](const Settings& s) { return s.algorithm; }},
    {"CRIMP_QUALITY", "exact, any, or a factor of at least 1",
     "CRIMP_ALGORITHM=auto: how many times allgather's error, with the same codec, an algorithm may have (crimp info --algorithms says its factor); exact: none adds any; any: time alone decides",
     true, [](Settings& s, std::string_view t) { return parse_quality(t, s.quality); },
     [](const Settings& s) { return quality_text(s.quality); }},
    {"CRIMP_NODE_SIZE", "0 .. 65536 ranks",
     "hierarchical: so many consecutive ranks of a machine count as one node; 0: all ranks of a machine", true,
     [](Settings& s, std::string_view t) { return parse_number(t, 0, 65536, s.node_size); },
     [](const Settings& s) { return std::to_string(s.node_size); }},
    {"CRIMP_PROGRESS", "off, thread",
     "thread: sums that do not block (MPI_Iallreduce) are carried by a thread, while the program computes, as blocking ones are; MPI_Init then asks MPI for MPI_THREAD_MULTIPLE",
     true, [](Settings& s, std::string_view t) { return (t == "off" || t == "thread") && parse_text(t, s.progress); },
     [](const Settings& s) { return s.progress; }},
    {"CRIMP_ERROR_FEEDBACK", "0 or 1 (off or on)",
     "0: no residuals are kept, whatever the codec loses is lost; nor are momentum (dgc) and averages (signum): momentum is then the optimizer's",
     true, [](Settings& s, std::string_view t) { return parse_flag(t, s.error_feedback); },
     [](const Settings& s) { return flag_text(s.error_feedback); }},
    {"CRIMP_RESIDUAL_JUMP", "0 or 2 .. 1000000",
     "where the largest value of a tensor is so many times smaller than in its last call, what its residual has above that value is dropped: "
     "an outlier is then no echo in the calls after it; 0: so with 32 where calls name no tensors, the whole residual with 32 under Horovod, nothing elsewhere nor of sums within a node",
     false,
     [](Settings& s, std::string_view t) {
       int jump = 0;
       if (!parse_number(t, 0, 1000000, jump) || jump == 1) return false;
       s.residual_jump = jump;
       return true;
     },
     [](const Settings& s) { return std::to_string(s.residual_jump); }},
    {"CRIMP_RESIDUAL", "float32, 8bit",
     "how residuals are kept between calls, in host memory: 8bit takes a byte an element in place of four (docs/checkpoint.md); momenta and averages stay float32",
     true, [](Settings& s, std::string_view t) { return (t == "float32" || t == "8bit") && parse_text(t, s.residual); },
     [](const Settings& s) { return s.residual; }},
    {"CRIMP_MIN_COUNT", "1 .. 2^62 elements (suffix k, M, G)", "calls with fewer elements pass through", true,
     [](Settings& s, std::string_view t) {
       return parse_number<std::uint64_t>(t, 1, std::uint64_t{1} << 62, s.min_count);
     },
     [](const Settings& s) { return std::to_string(s.min_count); }},
    {"CRIMP_CHUNK", "auto, or 10240 .. 2^30 elements (suffix k, M, G)",
     "elements per step of the pipeline (encode i+1, exchange i, decode i-1), rounded up to a multiple of 10240; auto: 655360 "
     "(where a rank's values lie in GPU memory 8519680, unless the codec selects), and more where CRIMP_ALGORITHM=auto predicts that messages cost more than what they carry",
     true,
     [](Settings& s, std::string_view t) {
       if (t == "auto") return s.chunk = 0, true;
       if (!parse_number<std::uint64_t>(t, kPieceElements, std::uint64_t{1} << 30, s.chunk)) return false;
       s.chunk = round_up(s.chunk, kPieceElements);
       return true;
     },
     [](const Settings& s) { return s.chunk ? std::to_string(s.chunk) : "auto"; }},
    {"CRIMP_RADIX", "auto, direct, or 2 .. 65536",
     "two_shot: direct: every rank sends every other one its shard; N: shards pass through other ranks, which saves messages and costs bytes, "
     "in steps of at most N - 1 messages, ceil(log n / log N) of them; auto: direct, or what CRIMP_ALGORITHM=auto predicts, and then measures, to be faster on 8 ranks and more. "
     "Results do not depend on it",
     true,
     [](Settings& s, std::string_view t) {
       if (t == "auto" || t == "direct") return s.radix = t == "direct", true;
       return parse_number(t, 2, 65536, s.radix);
     },
     [](const Settings& s) { return s.radix > 1    ? std::to_string(s.radix)
                                    : s.radix == 1 ? "direct"
                                                   : "auto"; }},
    {"CRIMP_PERIODS", "2 .. 1000",
     "how often calls must have brought the same tensors, by their values, before these get residuals, as far as the last 3072 calls of a kind can show it; and at least five calls of a kind",
     true, [](Settings& s, std::string_view t) { return parse_number(t, 2, 1000, s.periods); },
     [](const Settings& s) { return std::to_string(s.periods); }},
    {"CRIMP_THREADS", "1 .. 256", "threads that encode and decode, per rank; results do not depend on it", false,
     [](Settings& s, std::string_view t) { return parse_number(t, 1, 256, s.threads); },
     [](const Settings& s) { return std::to_string(s.threads); }},
    {"CRIMP_SIMD", "auto, or a target of crimp info's line SIMD",
     "the best instructions that codecs use; results are the same with all of them, so this is for tests and figures",
     false, [](Settings& s, std::string_view t) { return parse_codec(t, s.simd); },
     [](const Settings& s) { return s.simd; }},
    {"CRIMP_CUDA_PLUGIN", "auto, off, or a file name",
     "the library for GPU memory; auto: libcrimp_cuda.so beside libcrimp.so, loaded when the program has a CUDA context",
     false, [](Settings& s, std::string_view t) { return parse_codec(t, s.cuda_plugin); },
     [](const Settings& s) { return s.cuda_plugin; }},
    {"CRIMP_CUDA_AWARE", "auto, 0 or 1",
     "1: MPI takes device pointers, payloads and passed calls are given to it as they are; 0: all go through pinned host memory; auto: as MPIX_Query_cuda_support says",
     false,
     [](Settings& s, std::string_view t) {
       bool aware;
       if (t == "auto") return parse_text(t, s.cuda_aware);
       return parse_flag(t, aware) && parse_text(flag_text(aware), s.cuda_aware);
     },
     [](const Settings& s) { return s.cuda_aware; }},
    {"CRIMP_CHECKSUM", "0 or 1 (off or on)", "payload bodies carry a hash that receivers check", true,
     [](Settings& s, std::string_view t) { return parse_flag(t, s.checksum); },
     [](const Settings& s) { return flag_text(s.checksum); }},
    {"CRIMP_STALL_S", "0 .. 86400 seconds",
     "a rank that waits so long for the others inside Crimp says so in one line, with the likely causes (MPI_Wait and MPI_Waitany are MPI's own waits, docs/nonblocking.md); 0: never",
     false, [](Settings& s, std::string_view t) { return parse_number(t, 0, 86400, s.stall_s); },
     [](const Settings& s) { return std::to_string(s.stall_s); }},
    {"CRIMP_SKEW", "0 or 1 (off or on)",
     "1: ranks meet before each call that Crimp may compress, so that report and trace tell waiting for a late rank from transfer, and name it; costs a small exchange a call (docs/traces.md)",
     true, [](Settings& s, std::string_view t) { return parse_flag(t, s.skew); },
     [](const Settings& s) { return flag_text(s.skew); }},
    {"CRIMP_LOG", "off, error, warn, info, debug",
     "how much is said on standard error; info: one or two lines at start, one where something is learnt of tensors, and a summary at the end",
     false, [](Settings& s, std::string_view t) { return parse_level(t, s.log); },
     [](const Settings& s) { return std::string(kLevels[static_cast<int>(s.log)]); }},
    {"CRIMP_STATUS", "off, stderr, live, or a file name",
     "while the job runs rank 0 says what has been done so far: on standard error, one line that is renewed four times a second on a terminal (live: wherever it leads), elsewhere "
     "a line every 10 s; or in a file, once a second, which crimp status shows",
     false, [](Settings& s, std::string_view t) { return parse_status(t, s.status); },
     [](const Settings& s) { return s.status; }},
    {"CRIMP_REPORT", "a file name",
     "rank 0 writes what was done, per rank and size class, as JSON at MPI_Finalize (a new or regular file, or /dev/stdout, /dev/stderr)",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.report); },
     [](const Settings& s) { return s.report; }},
    {"CRIMP_REPLAY", "a file that CRIMP_REPORT wrote",
     "the decisions of that job are repeated, call by call, where CRIMP_ALGORITHM=auto, CRIMP_CONTROL and CRIMP_MERGE=auto would go by clocks (docs/determinism.md); all ranks read the same",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.replay); },
     [](const Settings& s) { return s.replay; }},
    {"CRIMP_TRACE", "a file name",
     "rank 0 writes the calls of all ranks, and their times of encoding, waiting and decoding, as Chrome trace events (for Perfetto and crimp trace, docs/traces.md), to a file as CRIMP_REPORT's",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.trace); },
     [](const Settings& s) { return s.trace; }},
    {"CRIMP_STATE_DIR", "a directory, new or not",
     "what is kept of named tensors is loaded from there when a communicator of all ranks first compresses, and saved there at MPI_Finalize (docs/checkpoint.md)",
     true, [](Settings& s, std::string_view t) { return parse_text(t, s.state_dir); },
     [](const Settings& s) { return s.state_dir; }},
    {"CRIMP_STATE_INTERVAL", "0 .. 2^62 compressed calls (suffix k, M, G)",
     "with CRIMP_STATE_DIR: saved too when a communicator has compressed so many calls since; 0: at MPI_Finalize only",
     true,
     [](Settings& s, std::string_view t) {
       return parse_number<std::uint64_t>(t, 0, std::uint64_t{1} << 62, s.state_interval);
     },
     [](const Settings& s) { return std::to_string(s.state_interval); }},
    {"CRIMP_CHECK", "a file name", "set by crimp check: when the process ends, append where its MPI_Allreduce leads",
     false, [](Settings& s, std::string_view t) { return parse_text(t, s.check); },
     [](const Settings& s) { return s.check; }},
    {"CRIMP_HELP", "0 or 1 (off or on)", "1: rank 0 prints this table at start", false,
     [](Settings& s, std::string_view t) { return parse_flag(t, s.help); },
     [](const Settings& s) { return flag_text(s.help); }},
#ifdef CRIMP_FAULTS
    {"CRIMP_FAULT", "name@rank[:nth],...", "test builds only: faults on demand (src/core/fault.hpp)", false,
     [](Settings&, std::string_view) { return true; }, [](const Settings&) { return std::string(); }},
#endif
};

}  // namespace

std::string Option::default_value() const { return get(Settings{}); }

std::span<const Option> option_table() { return kTable; }

namespace {

const Option* find_option(std::string_view name) {
  for (const Option& option : kTable)
    if (name == option.name) return &option;
  return nullptr;
}

// where: behind the value, " in line 3 of CRIMP_CONFIG='file'".
void take(Settings& settings, std::string_view name, std::string_view value, const std::string& where,
          std::vector<Complaint>& complaints) {
  const Option* const option = find_option(name);
  if (!option) {
    std::vector<std::string> names;
    for (const Option& o : kTable) names.emplace_back(o.name);
    complaints.push_back({std::string(name) + where + " is not a setting of Crimp" + did_you_mean(name, names) +
                              " (crimp info --env lists all)",
                          false});
  } else if (!option->set(settings, value)) {
    complaints.push_back(
        {std::string(name) + " is '" + std::string(value) + "'" + where + ", legal is: " + option->legal, true});
  }
}

// Of the file that CRIMP_CONFIG names; nothing where it cannot be read, which is complained of.
std::vector<FileSetting> read_file(const std::string& config, std::vector<Complaint>& complaints) {
  if (config.empty()) return {};
  try {
    return read_settings_file(config);
  } catch (const std::exception& e) {
    complaints.push_back({"CRIMP_CONFIG is '" + config + "': " + e.what(), true});
    return {};
  }
}

// All but what the environment says. Of a name that comes twice the last line counts.
void take_file(Settings& settings, const std::vector<FileSetting>& all, const std::vector<std::string_view>& said,
               std::vector<Complaint>& complaints) {
  for (auto of = all.begin(); of != all.end(); ++of) {
    const auto again = [&](const FileSetting& other) { return other.name == of->name; };
    if (std::find(said.begin(), said.end(), of->name) != said.end() && of->name != "CRIMP_CONFIG") continue;
    if (std::any_of(of + 1, all.end(), again)) continue;
    const std::string where = " in line " + std::to_string(of->line) + " of " + settings.config;
    if (of->name == "CRIMP_CONFIG")
      complaints.push_back({"CRIMP_CONFIG" + where + " is not read: one file cannot name another", false});
    else take(settings, of->name, of->value, where, complaints);
  }
}

}  // namespace

Settings read_settings(const char* const* environment, std::vector<Complaint>& complaints,
                       std::span<const SettingText> otherwise) {
  Settings settings;
  const auto each = [&](auto&& fn) {
    for (const char* const* at = environment; at && *at; ++at) {
      const std::string_view entry(*at);
      const auto equals = entry.find('=');
      if (entry.starts_with("CRIMP_") && equals != entry.npos) fn(entry.substr(0, equals), entry.substr(equals + 1));
    }
  };
  std::vector<std::string_view> said;
  std::string_view profile;
  for (const SettingText& of : otherwise)
    if (of.name == "CRIMP_PROFILE") profile = of.value;
  each([&](std::string_view name, std::string_view value) {
    said.push_back(name);
    if (name == "CRIMP_CONFIG") settings.config = value;
  });
  const std::vector<FileSetting> file = read_file(settings.config, complaints);
  for (const FileSetting& of : file)
    if (of.name == "CRIMP_PROFILE") profile = of.value;
  each([&](std::string_view name, std::string_view value) {
    if (name == "CRIMP_PROFILE") profile = value;
  });
  // From the weakest to the strongest.
  if (const Profile* const found = find_profile(profile))
    for (const ProfileSetting& of : found->settings) find_option(of.name)->set(settings, of.value);
  for (const SettingText& of : otherwise)
    if (const Option* const option = find_option(of.name)) option->set(settings, of.value);
  take_file(settings, file, said, complaints);
  each([&](std::string_view name, std::string_view value) {
    if (name != "CRIMP_ROOT") take(settings, name, value, "", complaints);  // a module's: where Crimp is installed
  });
  return settings;
}

std::string place_in_file(const Settings& settings, const char* const* environment, std::string_view complaint) {
  const std::string_view name =
      complaint.substr(0, complaint.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"));
  for (const char* const* at = environment; at && *at; ++at)
    if (const std::string_view entry(*at); entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return {};
  int line = 0;
  std::vector<Complaint> known;
  for (const FileSetting& of : read_file(settings.config, known))
    if (of.name == name) line = of.line;
  return line ? " (line " + std::to_string(line) + " of " + settings.config + ")" : std::string();
}

std::string options_as_text() {
  std::string text;
  for (const auto& o : kTable) {
    const std::string otherwise = o.default_value();
    std::string head = std::string(o.name) + "=" + (otherwise.empty() ? "(unset)" : otherwise);
    head.resize(std::max<std::size_t>(head.size() + 1, 30), ' ');
    text += head + o.help + "\n" + std::string(30, ' ') + "legal: " + o.legal + "\n";
  }
  return text;
}

// A bar in a text would end a table's cell.
std::string options_as_markdown() {
  const auto cell = [](std::string text) {
    for (auto at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) text.insert(at, 1, '\\');
    return text;
  };
  std::string text = "| variable | default | legal | meaning |\n|---|---|---|---|\n";
  for (const auto& o : kTable) {
    const std::string otherwise = o.default_value();
    text += std::string("| `") + o.name + "` | " + (otherwise.empty() ? "unset" : "`" + otherwise + "`") + " | " +
            cell(o.legal) + " | " + cell(o.help) + " |\n";
  }
  return text;
}

}  // namespace crimp
