#include "manual_page.hpp"

#include <algorithm>
#include <sstream>

#include "codec/codec.hpp"
#include "commands.hpp"
#include "core/profile.hpp"
#include "core/settings.hpp"
#include "exit_code.hpp"

namespace crimp::tools {
namespace {

// Text as roff prints it: no request at a line's beginning, hyphens that can be searched for and copied.
std::string escaped(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
    begins = c == '\n';
  }
  return out;
}
std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

// Sentences as they are, but for lines that are indented, which are commands and keep their form.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool verbatim = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.starts_with("  ");
    if (indented != verbatim) out += indented ? ".PP\n.nf\n" : ".fi\n";
    if (!indented && verbatim && !line.empty()) out += ".PP\n";
    verbatim = indented;
    if (line.empty()) {
      if (!out.empty() && !out.ends_with(".PP\n") && lines.peek() != EOF && lines.peek() != ' ') out += ".PP\n";
      continue;
    }
    out += escaped(line) + "\n";
  }
  return out + (verbatim ? ".fi\n" : "");
}

std::string head(const std::string& name, int section, const std::string& what) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".\\\" Made by crimp man.\n.TH " + upper + " " + std::to_string(section) +
         " " CRIMP_DATE " \"crimp " CRIMP_VERSION "\" \"Crimp\"\n.SH NAME\n" + escaped(name) + " \\- " + escaped(what) +
         "\n";
}

std::string reference(const std::string& name, int section) {
  return ".BR " + escaped(name) + " (" + std::to_string(section) + ")";
}

std::string see_also(const std::string& but) {
  std::string text = ".SH SEE ALSO\n";
  std::vector<std::string> all;
  for (const ManualPage& page : manual_pages())
    if (page.name != but) all.push_back(reference(page.name, page.section));
  for (std::size_t i = 0; i < all.size(); ++i) text += all[i] + (i + 1 < all.size() ? ",\n" : "\n");
  return text;
}

std::string exit_codes(bool launcher) {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitText& e : kExitTexts) text += ".TP\n" + bold(std::to_string(e.code)) + "\n" + escaped(e.text) + "\n";
  return launcher ? text + ".PP\nWhat the launcher returns is returned as it is, once it has started.\n" : text;
}

// "TEXT:{a,b}" and the like become what a person fills in.
std::string value_of(const OptionText& option) {
  const std::string type = option.type.substr(0, option.type.find_first_of(": "));
  std::string lower = type.empty() ? "value" : type;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return option.completes == "directory" ? "directory" : lower == "text" && option.completes == "file" ? "text" : lower;
}

std::string options(const CommandText& text) {
  std::string out;
  for (const OptionText& option : text.options) {
    out += ".TP\n";
    for (std::size_t i = 0; i < option.names.size(); ++i)
      out += (i ? ", " : "") + (option.position ? italic(option.names[i]) : bold(option.names[i]));
    if (!option.position && !option.type.empty())
      out += option.value_optional ? " [" + italic(value_of(option)) + "]" : " " + italic(value_of(option));
    out += "\n" + escaped(option.help) + "\n";
    if (!option.values.empty()) {
      out += "Legal:";
      for (std::size_t i = 0; i < option.values.size(); ++i) out += (i ? ", " : " ") + escaped(option.values[i]);
      out += ".\n";
    } else if (const auto in = option.type.find(" in ["); in != option.type.npos) {
      out += "Legal: " + escaped(option.type.substr(in + 4)) + ".\n";
    }
  }
  return out;
}

std::string of_command(const Command& command) {
  const CommandText text = text_of(command.call);
  const std::string name = "crimp-" + dashed(command.name);
  std::string out = head(name, 1, command.summary) + ".SH SYNOPSIS\n" + bold("crimp " + std::string(command.name));
  out += " [" + italic("options") + "]";
  for (const OptionText& option : text.options)
    if (option.position) out += " [" + italic(option.names[0]) + (option.repeats ? " ..." : "") + "]";
  if (text.others)
    out += " [" + italic("launcher options") + "] \\-\\- " + italic("program") + " [" + italic("arguments") + "]";
  out += "\n.SH DESCRIPTION\n" + paragraphs(text.description);
  out += ".SH OPTIONS\n" + options(text);
  if (!text.footer.empty()) out += ".SH NOTES\n" + paragraphs(text.footer.substr(text.footer.find_first_not_of('\n')));
  return out + exit_codes(command.call == run) + see_also(name);
}

std::string of_crimp() {
  std::string out =
      head("crimp", 1, "compressed reductions by interposing MPI") + ".SH SYNOPSIS\n" + bold("crimp") + " " +
      italic("command") + " [" + italic("options") + "]\n.br\n" + bold("crimp run") + " " +
      escaped("-np 4 --codec 3lc -- ./program arguments") + "\n.SH DESCRIPTION\n" +
      escaped(
          "Crimp compresses the gradients that distributed trainings sum with MPI_Allreduce and its kin, preloaded in front of MPI or\n"
          "linked ahead of it. This command starts programs with it, checks that their calls reach it, and says what it does and did.\n") +
      ".SH COMMANDS\n";
  for (const Command& c : commands())
    out += ".TP\n" + bold(c.name) + "\n" + escaped(c.summary) + " (" +
           reference("crimp-" + dashed(c.name), 1).substr(4) + ")\n";
  // A reference within a sentence has no macro.
  return out + exit_codes(true) + see_also("crimp");
}

std::string of_settings() {
  std::string out =
      head("crimp-settings", 7, "the CRIMP_* variables") + ".SH DESCRIPTION\n" +
      escaped(
          "Every setting is an environment variable, or a line NAME=VALUE of the file that CRIMP_CONFIG names. A variable wins over a\n"
          "line of the file, that over what rank 0 says, that over CRIMP_PROFILE, and that over the default. Ranks take from rank 0\n"
          "what all must have alike and they were not told. An unknown name is reported with the nearest legal one; an illegal value\n"
          "switches Crimp off for the whole job, which a message says.\n") +
      ".SH SETTINGS\n";
  for (const crimp::Option& o : option_table()) {
    const std::string otherwise = o.default_value();
    out += ".TP\n" + bold(o.name) + (otherwise.empty() ? "" : escaped("=" + otherwise)) + "\n";
    out += escaped(std::string(o.help)) + ".\nLegal: " + escaped(o.legal) + ".\n";
    if (o.agreed) out += "Must be equal on all ranks.\n";
  }
  out += ".SH PROFILES\n";
  for (const Profile& profile : profiles()) {
    out += ".TP\n" + bold(profile.name) + "\n" + escaped(profile.summary) + ".\nSettings:";
    for (const ProfileSetting& s : profile.settings) out += " " + escaped(std::string(s.name) + "=" + s.value);
    out += ".\nAccuracy: " + escaped(profile.accuracy) + ".\n";
  }
  return out + see_also("crimp-settings");
}

std::string of_codecs() {
  std::string out =
      head("crimp-codecs", 7, "the codecs of Crimp") + ".SH DESCRIPTION\n" +
      escaped(
          "A codec is written name, or name:parameter=value,parameter=value, as in CRIMP_CODEC=3lc:s=1.5,entropy=1.\n") +
      ".SH CODECS\n";
  for (const CodecInfo& codec : codecs()) {
    out += ".SS " + escaped(std::string(codec.name)) + "\n" + escaped(std::string(codec.summary)) +
           ".\nBits a value: " + escaped(std::string(codec.bits)) + ". Use: " + escaped(std::string(codec.use)) + "\n";
    for (const CodecParameter& p : codec.parameters)
      out += ".TP\n" + bold(std::string(p.key)) + escaped("=" + value_text(p, p.default_value)) + "\n" +
             escaped(std::string(p.help)) + ".\nLegal: " + escaped(legal_text(p)) + ".\n";
  }
  return out + see_also("crimp-codecs");
}

}  // namespace

std::vector<ManualPage> manual_pages() {
  std::vector<ManualPage> all{{"crimp", 1}};
  for (const Command& c : commands()) all.push_back({"crimp-" + dashed(c.name), 1});
  all.push_back({"crimp-settings", 7});
  all.push_back({"crimp-codecs", 7});
  return all;
}

std::string ManualPage::text() const {
  if (name == "crimp") return of_crimp();
  if (name == "crimp-settings") return of_settings();
  if (name == "crimp-codecs") return of_codecs();
  for (const Command& c : commands())
    if (name == "crimp-" + dashed(c.name)) return of_command(c);
  return {};
}

std::string manual_of_header(const std::string& header) {
  std::string out = head("crimp", 3, "name tensors and choose codecs from within a program") + ".SH SYNOPSIS\n.nf\n" +
                    bold("#include <crimp/crimp.h>") +
                    "\n.PP\nLink ahead of MPI: \\-Wl,\\-\\-no\\-as\\-needed \\-lcrimp \\-lmpi\n.fi\n.SH DESCRIPTION\n";
  // A comment, and what follows it up to the next one or an empty line that ends a statement.
  std::istringstream lines(header);
  std::string comment, code;
  bool within = false;
  const auto flush = [&] {
    if (!comment.empty()) out += std::string(out.ends_with(".SH DESCRIPTION\n") ? "" : ".PP\n") + comment;
    comment.clear();
  };
  const auto end_code = [&] {
    std::string shown = code;
    for (auto at = shown.find("CRIMP_API "); at != shown.npos; at = shown.find("CRIMP_API ")) shown.erase(at, 10);
    code.clear();
    if (shown.find_first_not_of(" \n") == shown.npos) return;
    if (shown.find('#') != shown.npos || shown.find("extern") != shown.npos) {
      flush();  // the comment was of the file
      return;
    }
    out += ".PP\n.nf\n" + bold(shown.substr(0, shown.find_last_not_of('\n') + 1)) + "\n.fi\n";
    if (!comment.empty()) out += ".RS\n.PP\n" + comment + ".RE\n";
    comment.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!within && line.starts_with("/*")) {
      end_code();
      flush();  // of the declarations behind it, and not of one
      within = true;
      line.erase(0, 2);
    } else if (!within) {
      if (line.empty()) end_code();
      else code += line + "\n";
      continue;
    }
    if (const auto end = line.find("*/"); end != line.npos) within = false, line.erase(end);
    const auto first = line.find_first_not_of(" *");
    if (first == line.npos) comment += within && !comment.empty() ? ".PP\n" : "";
    else comment += escaped(line.substr(first, line.find_last_not_of(' ') + 1 - first)) + "\n";
  }
  end_code();
  return out + see_also("");
}

}  // namespace crimp::tools
