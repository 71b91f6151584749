#include "elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace crimp::tools {
namespace {

// A file's bytes; empty where it cannot be read.
class Mapping {
 public:
  explicit Mapping(const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      const auto size = static_cast<std::size_t>(status.st_size);
      void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (bytes != MAP_FAILED) bytes_ = {static_cast<const char*>(bytes), size};
    }
    if (fd >= 0) ::close(fd);
  }
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string_view at(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset ? bytes_.substr(offset, size) : "";
  }
  template <class T>
  std::optional<T> read(std::uint64_t offset) const {
    T value;
    const auto from = at(offset, sizeof value);
    if (from.empty()) return {};
    std::memcpy(&value, from.data(), sizeof value);
    return value;
  }

 private:
  std::string_view bytes_;
};

std::string_view text_at(std::string_view strings, std::uint64_t offset) {
  if (offset >= strings.size()) return "";
  strings.remove_prefix(offset);
  return strings.substr(0, strings.find('\0'));
}

void add(std::vector<const MpiFunction*>& to, const MpiFunction* function) {
  if (function && !std::count(to.begin(), to.end(), function)) to.push_back(function);
}

void read_symbols(const Mapping& file, const ElfW(Shdr) & section, const ElfW(Shdr) & strings_section,
                  ElfCalls& calls) {
  const auto strings = file.at(strings_section.sh_offset, strings_section.sh_size);
  for (std::uint64_t at = 0; at + sizeof(ElfW(Sym)) <= section.sh_size; at += sizeof(ElfW(Sym))) {
    const auto symbol = file.read<ElfW(Sym)>(section.sh_offset + at);
    if (!symbol) return;
    const std::string_view name = text_at(strings, symbol->st_name);
    if (symbol->st_shndx == SHN_UNDEF && calls.named_sum.empty() &&
        (name == "crimp_allreduce" || name == "crimp_reduce_scatter_block"))
      calls.named_sum = name;
    calls.is_crimp = calls.is_crimp || (symbol->st_shndx != SHN_UNDEF && name == "crimp_version");
    const MpiFunction* const function = reduction(name);
    if (!function) continue;
    if (symbol->st_shndx == SHN_UNDEF) add(calls.called, function);
    else add(calls.defined, function);
  }
}

void read_needed(const Mapping& file, const ElfW(Shdr) & section, const ElfW(Shdr) & strings_section, ElfCalls& calls) {
  const auto strings = file.at(strings_section.sh_offset, strings_section.sh_size);
  for (std::uint64_t at = 0; at + sizeof(ElfW(Dyn)) <= section.sh_size; at += sizeof(ElfW(Dyn)))
    if (const auto entry = file.read<ElfW(Dyn)>(section.sh_offset + at); entry && entry->d_tag == DT_NEEDED)
      calls.needed.emplace_back(text_at(strings, entry->d_un.d_val));
}

// Whether a symbol table of a program's own says that MPI is a part of it. A program may define MPI_x to look at its
// calls, but hands them on to the library's PMPI_x.
bool defines_pmpi(const Mapping& file, const ElfW(Shdr) & section, const ElfW(Shdr) & strings_section) {
  const auto strings = file.at(strings_section.sh_offset, strings_section.sh_size);
  for (std::uint64_t at = 0; at + sizeof(ElfW(Sym)) <= section.sh_size; at += sizeof(ElfW(Sym))) {
    const auto symbol = file.read<ElfW(Sym)>(section.sh_offset + at);
    if (!symbol) return false;
    const std::string_view name = text_at(strings, symbol->st_name);
    if (symbol->st_shndx != SHN_UNDEF && (name == "PMPI_Init" || name == "PMPI_Allreduce")) return true;
  }
  return false;
}

// Whole strings only: messages name functions, too.
void read_strings(std::string_view data, ElfCalls& calls) {
  for (auto at = data.find("MPI"); at != data.npos; at = data.find("MPI", at + 3)) {
    const auto begin = at > 0 && data[at - 1] == 'P' ? at - 1 : at;
    if (begin == 0 || data[begin - 1] == '\0') add(calls.named, reduction(text_at(data.substr(0, begin + 40), begin)));
  }
}

std::string own_interpreter() {
  const auto own = read_calls("/proc/self/exe");
  return own ? own->interpreter : "";
}

}  // namespace

std::optional<ElfCalls> read_calls(const std::string& name) {
  const Mapping file(name);
  const auto header = file.read<ElfW(Ehdr)>(0);
  constexpr unsigned char kClass = __WORDSIZE == 64 ? ELFCLASS64 : ELFCLASS32;
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != kClass ||
      header->e_shentsize != sizeof(ElfW(Shdr)) || header->e_shnum == 0)
    return {};
  const auto section = [&](std::uint64_t i) { return file.read<ElfW(Shdr)>(header->e_shoff + i * sizeof(ElfW(Shdr))); };
  ElfCalls calls;
  bool pmpi = false;
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto s = section(i);
    if (!s) return {};
    if (s->sh_type == SHT_DYNSYM) {
      if (const auto strings = section(s->sh_link)) read_symbols(file, *s, *strings, calls);
    } else if (s->sh_type == SHT_DYNAMIC) {
      if (const auto strings = section(s->sh_link)) read_needed(file, *s, *strings, calls);
    } else if (s->sh_type == SHT_SYMTAB) {
      if (const auto strings = section(s->sh_link)) pmpi = pmpi || defines_pmpi(file, *s, *strings);
    } else if (s->sh_type == SHT_PROGBITS && (s->sh_flags & SHF_ALLOC) && !(s->sh_flags & SHF_EXECINSTR)) {
      const auto data = file.at(s->sh_offset, s->sh_size);
      if (data.starts_with("/lib") && calls.interpreter.empty() && s->sh_size < 256)
        calls.interpreter = text_at(data, 0);
      read_strings(data, calls);
    }
  }
  calls.is_mpi = std::count(calls.defined.begin(), calls.defined.end(), &kReductions[0]) != 0;
  calls.has_own_mpi = pmpi && (header->e_type == ET_EXEC || !calls.interpreter.empty());
  std::erase_if(calls.named, [&](auto f) { return std::count(calls.called.begin(), calls.called.end(), f); });
  for (auto* list : {&calls.called, &calls.named}) std::sort(list->begin(), list->end());
  return calls;
}

std::vector<std::string> loaded_with(const std::string& file) {
  const std::string linker = own_interpreter();
  int ends[2];
  if (linker.empty() || ::pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl(linker.c_str(), linker.c_str(), "--list", file.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t n; child > 0 && (n = ::read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status;
  if (child > 0) ::waitpid(child, &status, 0);
  // "\tlibm.so.6 => /lib/libm.so.6 (0x...)", "\t/lib/ld.so (0x...)"
  std::vector<std::string> files;
  for (std::size_t at = 0, end; (end = said.find('\n', at)) != said.npos; at = end + 1) {
    std::string line = said.substr(at, end - at);
    if (const auto arrow = line.find(" => "); arrow != line.npos) line.erase(0, arrow + 4);
    line.erase(0, line.find_first_not_of('\t'));
    line.erase(std::min(line.rfind(" ("), line.size()));
    if (line.find('/') != line.npos) files.push_back(line);
  }
  return files;
}

}  // namespace crimp::tools
