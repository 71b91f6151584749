#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/plain_text.hpp"
#include "report/figures.hpp"
#include "report/page.hpp"

namespace crimp::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kRows = 10;  // of what the page has more of

std::string digits(double x) {
  const double a = std::fabs(x);
  return a == 0 ? "0" : fmt::format("{:.{}f}", x, a < 0.1 ? 4 : a < 10 ? 2 : a < 100 ? 1 : 0);
}
std::string bytes(const Json& of) {
  const double b = of.get<double>(), a = std::fabs(b);
  if (a >= 1e9) return digits(b * 1e-9) + " GB";
  if (a >= 1e6) return digits(b * 1e-6) + " MB";
  return a >= 1e3 ? digits(b * 1e-3) + " kB" : digits(b) + " B";
}
std::string seconds_text(double s) {
  const double a = std::fabs(s);
  if (a >= 1 || a == 0) return digits(s) + " s";
  return a >= 1e-3 ? digits(s * 1e3) + " ms" : digits(s * 1e6) + " us";
}
std::string seconds_text(const Json& of) { return seconds_text(of.get<double>()); }
// Of a ratio; 0: nothing but headers was sent.
std::string times(const Json& of) { return of.get<double>() > 0 ? digits(of.get<double>()) : "-"; }
std::string count(const Json& of) { return fmt::format("{:.0f}", of.get<double>()); }
std::string counted(const Json& of, const char* what) {
  return count(of) + " " + what + (of.get<double>() == 1 ? "" : "s");
}

// Names come from programs.
std::string words(const Json& of) { return plain_text(of.get<std::string>()); }

// Of UTF-8, which is not cut inside of a character.
std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// A third of the width for names, the rest for numbers.
std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = fmt::format("  {:<44}", cut(name, 44));
  for (const auto& cell : cells) line += fmt::format(" {:>10}", cell);
  return line + "\n";
}

std::string head(const Json& d) {
  const Json& j = d["job"];
  std::string out = fmt::format("{}\n", plain_text(d["file"].get<std::string>()));
  if (const std::string program = words(j["program"]); !program.empty()) out += "  " + program + "\n";
  out += "  " + counted(j["ranks"], "rank");
  if (!j["nodes"].is_null()) out += " on " + counted(j["nodes"], "node");
  if (const std::string at = words(j["started"]); !at.empty()) out += ", " + at;
  if (!j["elapsed_s"].is_null()) out += ", took " + seconds_text(j["elapsed_s"]);
  out += fmt::format("; Crimp {}, status: {}\n", words(j["crimp"]), words(j["status"]));
  for (const Json& s : d["settings"]["changed"]) out += fmt::format("  {}={}\n", words(s["name"]), words(s["value"]));
  return out;
}

std::string saved(const Json& d) {
  const Json &b = d["saved"]["bytes"], &t = d["saved"]["time"];
  std::string out = "\nWhat it came to\n";
  out += fmt::format("  {} calls compressed, {} passed; {} in, {} sent by all ranks{}\n",
                     count(d["calls"]["compressed"]["calls"]), count(d["calls"]["passed"]), bytes(b["in"]),
                     bytes(b["sent"]), b["ratio"] > 0 ? ", " + times(b["ratio"]) + " times less" : "");
  const auto line = [&](const char* what, const Json& of, const char* name) {
    if (!(of["calls"].get<double>() > 0)) return;
    const double saved_s = of["saved_s"].get<double>(), took_s = of["took_s"].get<double>(),
                 own_s = of["own_s"].get<double>();
    if (saved_s == 0 && &of == &t["measured"]) {
      out +=
          fmt::format("  {} calls took {} a rank; MPI carried them itself\n", count(of["calls"]), seconds_text(took_s));
      return;
    }
    const std::string undisturbed =
        std::fabs(took_s - own_s) > 0.05 * took_s ? fmt::format("undisturbed {}, ", seconds_text(own_s)) : "";
    out += fmt::format("  {} calls took {} a rank; {}{} {}: {} {}\n", count(of["calls"]), seconds_text(took_s),
                       undisturbed, what, seconds_text(of[name]), seconds_text(std::fabs(saved_s)),
                       saved_s >= 0 ? "saved" : "lost");
  };
  line("plain MPI (measured)", t["measured"], "plain_s");
  line("plain MPI (predicted, roughly)", t["predicted"], "plain_s");
  line("the fastest that was measured", t["best"], "best_s");
  if (t["unknown_calls"].get<double>() >= 0.5)
    out += fmt::format("  of {} calls it is not known what plain MPI would have taken\n", count(t["unknown_calls"]));
  return out;
}

std::string advice(const Json& d) {
  std::string out = "\nWhat to try next\n";
  int number = 0;
  for (const Json& a : d["advice"])
    out += fmt::format("  {}. [{}] {}\n     {}\n     {}\n", ++number, words(a["level"]), words(a["text"]),
                       words(a["figure"]), words(a["try"]));
  return out;
}

std::string step(const Json& d) {
  const bool known = !d["step"].is_null();
  const Json& s = known ? d["step"] : d["calls"]["compressed"];
  const double total_s = s["total_s"].get<double>();
  if (!(total_s > 0)) return "";
  // A mean with what was measured at the beginning may be longer than a median.
  const bool within = known && !s["step_s"].is_null() && s["step_s"].get<double>() >= total_s;
  std::string out = known ? fmt::format("\nA step ({} of them): {} in compressed calls{}\n", count(s["steps"]),
                                        seconds_text(total_s), within ? " of " + seconds_text(s["step_s"]) : "")
                          : fmt::format("\nAll steps, per rank: {} in compressed calls\n", seconds_text(total_s));
  const auto part = [&](const char* name, double part_s) {
    out += row(name, {seconds_text(part_s), percent(part_s / total_s)});
  };
  part("encode", s["encode_s"].get<double>());
  part("wire", s["wire_s"].get<double>());
  part("decode", s["decode_s"].get<double>());
  part("other", s["other_s"].get<double>());
  if (!s["wait_s"].is_null()) part("and before, waiting for a late rank", s["wait_s"].get<double>());
  if (s["wait_s"].is_null()) out += "  waiting for a late rank: not separated from the wire (CRIMP_SKEW=1 does)\n";
  return out;
}

std::string tables(const Json& d) {
  std::string out;
  if (!d["sizes"].is_null()) {
    out += "\n" + row("Sizes of compressed calls, from", {"calls", "in", "ratio", "time"});
    for (const Json& s : d["sizes"])
      out += row(bytes(s["from_bytes"]),
                 {count(s["calls"]), bytes(s["bytes_in"]), times(s["ratio"]), seconds_text(s["total_s"])});
  }
  if (!d["codecs"].empty()) {
    out += "\n" + row("Codecs", {"calls", "in", "ratio", "time"});
    for (const Json& s : d["codecs"])
      out += row(words(s["name"]),
                 {count(s["calls"]), bytes(s["bytes_in"]), times(s["ratio"]), seconds_text(s["total_s"])});
    out += "\n" + row("Algorithms", {"calls", "in", "ratio", "time"});
    for (const Json& s : d["algorithms"])
      out += row(words(s["name"]),
                 {count(s["calls"]), bytes(s["bytes_in"]), times(s["ratio"]), seconds_text(s["total_s"])});
  }
  if (!d["tensors"].is_null()) {
    out += "\n" + row(fmt::format("Tensors ({})", count(d["tensors"]["tensors"])),
                      {"calls", "in", "ratio", "residual", "gradient"});
    std::size_t shown = 0;
    for (const Json& t : d["tensors"]["listed"]) {
      if (shown++ == kRows) break;
      const Json& residual = t["residual"];
      out += row(words(t["name"]), {count(t["calls"]), bytes(t["bytes_in"]), times(t["ratio"]),
                                    residual.empty() ? "-" : digits(residual.back()[2].get<double>()),
                                    residual.empty() ? "-" : digits(residual.back()[3].get<double>())});
    }
    if (d["tensors"]["listed"].size() > kRows) out += "  ... the page and --json have more\n";
  }
  if (!d["plans"].is_null())
    for (const Json& p : d["plans"]) {
      out += fmt::format("\nMerge plan of a step, {}: the exchange ends after {}, in {} calls\n", words(p["plan"]),
                         seconds_text(p["end_s"]), p["calls"].size() + p["calls_left_out"].get<std::size_t>());
      for (const Json& q : p["plans"]) out += row(words(q["name"]), {count(q["groups"]), seconds_text(q["end_s"])});
    }
  if (!d["control"].is_null())
    for (const Json& c : d["control"]) {
      out += fmt::format("\nCRIMP_CONTROL: {} changes\n", count(c["changes"]));
      std::size_t shown = 0;
      for (const Json& q : c["decisions"])
        if (shown++ < kRows)
          out += fmt::format("  call {} of calls from {}: level {} to {}, {}\n", count(q["call"]),
                             bytes(q["from_bytes"]), count(q["from"]), count(q["to"]), words(q["why"]));
    }
  if (!d["passed"].empty()) {
    out += "\n" + row("What passed to MPI, and why", {"calls", "of all"});
    for (const Json& p : d["passed"])
      out += row(words(p["text"]), {count(p["calls"]), percent(p["share"].get<double>())});
  }
  if (!d["missing"].empty()) {
    out += "\nNot in this report\n";
    for (const Json& m : d["missing"])
      out += "  " + words(m["why"]) + (m["how"] == "" ? "" : " " + words(m["how"])) + "\n";
  }
  return out;
}

std::string comparison(const Json& digests) {
  std::string out = "Side by side\n";
  std::vector<std::string> names;
  for (const Json& d : digests) {
    const std::string file = plain_text(d["file"].get<std::string>()), name = file.substr(file.rfind('/') + 1);
    names.push_back(cut(name, 10));
  }
  // Jobs that each have a directory.
  if (std::adjacent_find(names.begin(), names.end(), std::not_equal_to<>()) == names.end())
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::filesystem::path file = plain_text(digests[i]["file"].get<std::string>());
      if (file.has_parent_path()) names[i] = cut(file.parent_path().filename().string(), 10);
    }
  out += row("", names);
  const auto line = [&](const char* name, auto&& value) {
    std::vector<std::string> cells;
    for (const Json& d : digests) cells.push_back(value(d));
    out += row(name, cells);
  };
  const auto seconds_of = [](const Json& of) { return of.is_null() ? std::string("-") : seconds_text(of); };
  line("ranks", [](const Json& d) { return count(d["job"]["ranks"]); });
  line("job", [&](const Json& d) { return seconds_of(d["job"]["elapsed_s"]); });
  line("a step", [&](const Json& d) { return d["step"].is_null() ? "-" : seconds_of(d["step"]["step_s"]); });
  for (const char* part : {"encode_s", "wire_s", "wait_s", "decode_s", "total_s"})
    line(fmt::format("a step's {} in compressed calls", std::string(part, std::string(part).size() - 2)).c_str(),
         [&](const Json& d) { return d["step"].is_null() ? "-" : seconds_of(d["step"][part]); });
  line("saved against plain MPI, per rank (measured)", [&](const Json& d) {
    const Json& m = d["saved"]["time"]["measured"];
    return m["calls"].get<double>() > 0 ? seconds_of(m["saved_s"]) : std::string("-");
  });
  line("sent by all ranks", [](const Json& d) { return bytes(d["saved"]["bytes"]["sent"]); });
  line("ratio", [](const Json& d) { return times(d["saved"]["bytes"]["ratio"]); });
  line("calls compressed", [](const Json& d) { return count(d["calls"]["compressed"]["calls"]); });
  line("calls passed", [](const Json& d) { return count(d["calls"]["passed"]); });
  return out + "\n";
}

}  // namespace

std::string text_of(const Json& digests) {
  std::string out = digests.size() > 1 ? comparison(digests) : "";
  bool first = true;
  for (const Json& d : digests) {
    if (!first) out += "\n" + std::string(80, '-') + "\n\n";
    first = false;
    out += head(d) + saved(d) + advice(d) + step(d) + tables(d);
  }
  return out;
}

}  // namespace crimp::tools
