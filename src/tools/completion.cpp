// crimp completion SHELL: a script that lets a shell complete the words of this command. It asks `crimp complete`, so
// that it never knows other options, codecs and values than the command itself.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "codec/spec.hpp"
#include "commands.hpp"
#include "core/output_file.hpp"
#include "exit_code.hpp"
#include "setting_options.hpp"

namespace crimp::tools {
namespace {

// Readline replaces what stands behind the last : or = only, which are in COMP_WORDBREAKS.
constexpr const char* kBash = R"--(# Completion of crimp for bash: eval "$(crimp completion bash)"
_crimp() {
  local line=${COMP_LINE:0:COMP_POINT} words=() current value rest before=
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=("")
  current=${words[${#words[@]}-1]}
  COMPREPLY=()
  if [[ $COMP_WORDBREAKS == *:* && $current == *:* ]]; then before=${current%"${current##*:}"}; fi
  if [[ $COMP_WORDBREAKS == *=* && ${current#"$before"} == *=* ]]; then before=${current%"${current##*=}"}; fi
  while IFS=$'\t' read -r value rest; do
    case $value in
    :files*) value=${value#:files}
      while read -r rest; do COMPREPLY+=("$value$rest"); done < <(compgen -f -- "${current#"$value"}")
      compopt -o filenames 2>/dev/null ;;
    :directories*) value=${value#:directories}
      while read -r rest; do COMPREPLY+=("$value$rest"); done < <(compgen -d -- "${current#"$value"}")
      compopt -o filenames 2>/dev/null ;;
    :command) while read -r rest; do COMPREPLY+=("$rest"); done < <(compgen -cf -- "$current") ;;
    *) COMPREPLY+=("$value")
      case $value in *[:=,]) compopt -o nospace 2>/dev/null ;; esac ;;
    esac
  done < <("${words[0]/#\~/$HOME}" complete -- "${words[@]:1}" 2>/dev/null)
  [ -z "$before" ] || COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -F _crimp crimp
)--";

constexpr const char* kZsh = R"--(#compdef crimp
# Completion of crimp for zsh: in a directory of fpath as _crimp, or eval "$(crimp completion zsh)" behind compinit.
_crimp() {
  local line value text
  local -a values texts open opentexts
  for line in ${(f)"$(${(Q)words[1]/#\~/$HOME} complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"}; do
    value=${line%%$'\t'*} text=$value
    [[ $line != *$'\t'* ]] || text="$value  -- ${line#*$'\t'}"
    case $value in
    (:files*) compset -P "${(b)value#:files}"; _files ;;
    (:directories*) compset -P "${(b)value#:directories}"; _files -/ ;;
    (:command) _command_names -e || _files ;;
    (*[:=,]) open+=("$value") opentexts+=("$text") ;;
    (*) values+=("$value") texts+=("$text") ;;
    esac
  done
  (( $#values )) && compadd -Q -l -d texts -- "${(@)values}"
  (( $#open )) && compadd -Q -S '' -l -d opentexts -- "${(@)open}"
  return 0
}
if [ "$funcstack[1]" = _crimp ]; then _crimp "$@"; else compdef _crimp crimp; fi
)--";

constexpr const char* kFish = R"--(# Completion of crimp for fish: crimp completion fish | source
function __crimp_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] complete -- $words[2..-1] "$current" 2>/dev/null)
    set -l value (string split -m 1 \t -- $line)[1]
    switch $value
      case ':files*'
        set -l front (string replace ':files' '' -- $value)
        for path in (__fish_complete_path (string replace -- "$front" '' "$current"))
          echo $front$path
        end
      case ':directories*'
        set -l front (string replace ':directories' '' -- $value)
        for path in (__fish_complete_directories (string replace -- "$front" '' "$current") '')
          echo $front$path
        end
      case ':command'
        __fish_complete_command
      case '*'
        echo $line
    end
  end
end
complete -c crimp -f -a '(__crimp_complete)'
)--";

// What a word may become, printed at the end: each once, with what it means.
class Candidates {
 public:
  explicit Candidates(std::string typed) : typed_(std::move(typed)) {}
  // front: what of the typed word stands in front of what `text` would replace.
  void add(const std::string& front, const std::string& text, const std::string& meaning = "") {
    const std::string whole = front + text;
    if (!whole.starts_with(typed_) || !seen_.insert(whole).second) return;
    const std::string first = meaning.substr(0, meaning.find_first_of("\n\t"));
    std::printf("%s%s%s\n", whole.c_str(), first.empty() ? "" : "\t", first.c_str());
  }
  void ask(const char* what, const std::string& front = "") { std::printf(":%s%s\n", what, front.c_str()); }

 private:
  std::string typed_;
  std::set<std::string> seen_;
};

// "3lc", "3lc:s=", "3lc:s=1,entropy=1". typed: the codec's part of the word, behind `front`.
void add_codecs(Candidates& to, const std::string& front, const std::string& typed) {
  const auto colon = typed.find(':');
  if (colon == typed.npos) {
    for (const CodecInfo& codec : codecs()) {
      const std::string name(codec.name);
      to.add(front, name, std::string(codec.summary));
      if (name == typed) to.add(front, name + ":", "parameters");
    }
    return;
  }
  const std::string name = typed.substr(0, colon);
  const auto codec = std::find_if(codecs().begin(), codecs().end(), [&](const auto& c) { return c.name == name; });
  if (codec == codecs().end()) return;
  std::vector<CodecParameter> rows = codec->parameters;
  for (const CodecParameter& row : common_parameters()) rows.push_back(row);
  const auto begin = typed.find_last_of(":,") + 1;
  const std::string ahead = front + typed.substr(0, begin), last = typed.substr(begin);
  const auto equals = last.find('=');
  std::set<std::string_view> offered;  // a codec's own row stands for a common one
  for (const CodecParameter& row : rows) {
    const std::string key(row.key);
    if (!offered.insert(row.key).second) continue;
    if (equals == last.npos) {
      const std::string before = "," + typed.substr(colon + 1, begin - colon - 1);
      if (before.find("," + key + "=") == before.npos)
        to.add(ahead, key + "=", std::string(row.help) + "; legal: " + legal_text(row));
    } else if (last.substr(0, equals) == key) {
      for (const std::string_view word : row.words) to.add(ahead, key + "=" + std::string(word));
      if (!row.words.empty()) continue;
      to.add(ahead, key + "=" + value_text(row, row.default_value), "default; legal: " + legal_text(row));
      if (!row.above_least) to.add(ahead, key + "=" + value_text(row, row.least), "the least");
      if (!row.below_most) to.add(ahead, key + "=" + value_text(row, row.most), "the most");
    }
  }
}

void add_setting(Candidates& to, const crimp::Option& setting, const std::string& front, const std::string& typed) {
  for (const std::string& word : legal_words(setting)) to.add(front, word);
  if (takes_codecs(setting)) {
    // Of a list the last codec: behind a semicolon, in rules behind their pattern.
    auto begin = typed.find_last_of(";|") == typed.npos ? 0 : typed.find_last_of(";|") + 1;
    while (begin < typed.size() && typed[begin] == ' ') ++begin;
    if (std::string_view(setting.legal).starts_with("pattern=") && (begin == 0 || typed[begin - 1] != '|'))
      begin = typed.find('=', begin) == typed.npos ? typed.size() + 1 : typed.find('=', begin) + 1;
    if (begin <= typed.size()) add_codecs(to, front + typed.substr(0, begin), typed.substr(begin));
  }
  if (takes_file(setting)) to.ask("files", front);
}

void add_values(Candidates& to, const OptionText& option, const std::string& front, const std::string& typed) {
  for (const std::string& value : option.values) to.add(front, value);
  if (!option.values.empty()) return;
  if (const crimp::Option* const setting = find_setting(option.completes))
    return add_setting(to, *setting, front, typed);
  const bool codec = option.completes == "codec" ||
                     (option.completes == "file" && !option.names.empty() && option.names.back() == "--codec");
  if (codec) {
    const auto comma = typed.find(':') == typed.npos ? typed.rfind(',') : typed.npos;  // a list of names
    const std::size_t begin = comma == typed.npos ? 0 : comma + 1;
    add_codecs(to, front + typed.substr(0, begin), typed.substr(begin));
  } else if (option.completes == "directory") {
    to.ask("directories", front);
  } else if (option.completes == "file") {
    to.ask("files", front);
  } else if (option.completes == "command") {
    to.ask("command");
  }
}

const OptionText* find(const CommandText& text, const std::string& name) {
  for (const OptionText& option : text.options)
    if (!option.position && std::count(option.names.begin(), option.names.end(), name)) return &option;
  return nullptr;
}

// words: of a command's arguments, the last one being typed.
void complete_arguments(const CommandText& text, const Arguments& words) {
  const std::string& typed = words.back();
  Candidates to(typed);
  const auto mark = std::find(words.begin(), words.end() - 1, "--");
  if (mark != words.end() - 1) return to.ask(mark == words.end() - 2 ? "command" : "files");
  const OptionText* const before = words.size() > 1 ? find(text, words[words.size() - 2]) : nullptr;
  const bool value = before && !before->type.empty();
  if (value && !(before->value_optional && typed.starts_with('-'))) {
    add_values(to, *before, "", typed);
    if (!before->value_optional || !typed.empty()) return;
  }
  if (const auto equals = typed.find('='); typed.starts_with("--") && equals != typed.npos) {
    const std::string front = typed.substr(0, equals + 1);
    if (const OptionText* const option = find(text, typed.substr(0, equals)))
      add_values(to, *option, front, typed.substr(equals + 1));
    return;
  }
  if (!typed.starts_with('-'))
    for (const OptionText& option : text.options)
      if (option.position) add_values(to, option, "", typed);
  if (typed.empty() || typed.starts_with('-')) {
    for (const OptionText& option : text.options)
      if (!option.position)
        for (const std::string& name : option.names)
          if (name.starts_with("--")) to.add("", name, option.help);
    if (text.others) to.add("", "--", "the program follows");
  }
}

}  // namespace

// The words behind `crimp` of a command line that is being typed, the last one as far as it stands there.
int complete(Arguments words) {
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  if (words.empty()) words.emplace_back();
  if (words.size() == 1) {
    Candidates to(words[0]);
    for (const Command& c : commands()) {
      const std::string name = c.name;
      const auto space = name.find(' ');
      to.add("", name.substr(0, space), space == name.npos ? c.summary : "");
    }
    if (words[0].starts_with('-')) to.add("", "--help"), to.add("", "--version");
    return kDone;
  }
  Candidates seconds(words[1]);
  for (const Command& c : commands()) {
    const std::string name = c.name;
    const auto space = name.find(' ');
    if (name == words[0] || (space != name.npos && words.size() > 2 && name == words[0] + " " + words[1])) {
      complete_arguments(text_of(c.call), {words.begin() + (space == name.npos ? 1 : 2), words.end()});
      return kDone;
    }
    if (space != name.npos && words.size() == 2 && name.substr(0, space) == words[0])
      seconds.add("", name.substr(space + 1), c.summary);
  }
  return kDone;
}

int completion(Arguments arguments) {
  std::string shell, file;
  CommandLine app(
      "Prints a script that lets a shell complete commands, options, codecs with their parameters, and values.\n\n"
      "  eval \"$(crimp completion bash)\"        in ~/.bashrc; likewise zsh, behind compinit, in ~/.zshrc\n"
      "  crimp completion fish | source         in ~/.config/fish/config.fish",
      "crimp completion");
  const auto given = app.option("shell", shell, "bash, zsh or fish").one_of({"bash", "zsh", "fish"});
  app.option("--output", file, "Write it to this file");
  if (const auto code = app.parse(std::move(arguments))) return *code;
  if (!given.given())
    throw Error(ErrorCode::argument_invalid, "completion: the shell is missing; legal is: bash, zsh, fish");
  const char* const script = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  if (file.empty()) return std::fputs(script, stdout), kDone;
  if (const std::string why = OutputFile(file).write(script); !why.empty())
    return std::fprintf(stderr, "crimp: completion: %s\n", why.c_str()), kNotSo;
  return kDone;
}

}  // namespace crimp::tools
