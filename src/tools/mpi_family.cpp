#include "mpi_family.hpp"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/plain_text.hpp"
#include "elf_file.hpp"

namespace crimp::tools {
namespace {

std::string output_of(const std::string& command, std::size_t most) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return text;
  char piece[4096];
  while (const std::size_t n = std::fread(piece, 1, sizeof piece, pipe))
    if (text.size() < most) text.append(piece, n);
  ::pclose(pipe);
  return text;
}

// The dynamic linker that a program names; of a library, this program's own. Empty: no ELF file of this machine, or
// static.
std::string linker_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  ElfW(Ehdr) header;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) ||
      header.e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32))
    return {};
  bool dynamic = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    in.seekg(static_cast<std::streamoff>(header.e_phoff) + i * static_cast<std::streamoff>(sizeof part));
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) return {};
    dynamic = dynamic || part.p_type == PT_DYNAMIC;
    if (part.p_type != PT_INTERP || part.p_filesz == 0 || part.p_filesz > 4096) continue;
    std::string name(part.p_filesz - 1, '\0');
    in.seekg(static_cast<std::streamoff>(part.p_offset));
    return in.read(name.data(), static_cast<std::streamsize>(name.size())) ? name : "";
  }
  return dynamic ? linker_of("/proc/self/exe") : "";
}

// libmpi.so.12, libmpich.so.12, libmpi_cray.so.12 and the like are one binary interface.
MpiFamily family_of(const std::string& soname) {
  if (soname == "libmpi.so.40") return MpiFamily::open_mpi;
  if (soname.starts_with("libmpi_abi.so.")) return MpiFamily::mpi_5;
  if (soname.starts_with("libmpi") && soname.ends_with(".so.12") && !soname.starts_with("libmpifort") &&
      !soname.starts_with("libmpicxx") && !soname.starts_with("libmpichfort") && !soname.starts_with("libmpichcxx"))
    return MpiFamily::mpich;
  return MpiFamily::unknown;
}

}  // namespace

const char* name_of(MpiFamily family) {
  return family == MpiFamily::open_mpi ? "Open MPI"
         : family == MpiFamily::mpich  ? "MPICH"
         : family == MpiFamily::mpi_5  ? "MPI 5's binary interface"
                                       : "an unknown MPI";
}

std::string in_path(const std::string& file) {
  if (file.find('/') != file.npos) return file;
  const char* const path = std::getenv("PATH");
  std::istringstream places(path ? path : "");
  for (std::string place; std::getline(places, place, ':');)
    if (const std::string full = place + "/" + file; ::access(full.c_str(), X_OK) == 0) return full;
  return {};
}

MpiOfFile mpi_of_file(const std::string& file, Linker which) {
  const std::string full = in_path(file),
                    linker = full.empty() ? "" : linker_of(which == Linker::own ? "/proc/self/exe" : full);
  if (linker.empty()) return {};
  // Without preloads, which may need another MPI.
  std::istringstream list(
      output_of("LD_PRELOAD= " + in_shell(linker) + " --list " + in_shell(full) + " 2>/dev/null", 1 << 20));
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string soname, arrow, place;
    words >> soname >> arrow >> place;
    if (const MpiFamily family = family_of(soname); family != MpiFamily::unknown)
      return {family, soname, place.starts_with('/')};
  }
  // It lists nothing where it does not find all.
  const auto calls = read_calls(full);
  for (const std::string& soname : calls ? calls->needed : std::vector<std::string>())
    if (const MpiFamily family = family_of(soname); family != MpiFamily::unknown) return {family, soname, false};
  return {};
}

Launcher ask_launcher(const std::string& command) {
  const std::string text = output_of(in_shell(command) + " --version 2>&1 </dev/null", 4096);
  Launcher launcher;
  launcher.version = text.substr(0, text.find('\n'));
  if (text.find("(Open MPI)") != text.npos || text.find("OpenRTE") != text.npos)
    launcher.kind = LauncherKind::open_mpi, launcher.family = MpiFamily::open_mpi;
  else if (text.find("HYDRA") != text.npos || text.find("Intel(R) MPI") != text.npos)
    launcher.kind = LauncherKind::hydra, launcher.family = MpiFamily::mpich;
  else if (launcher.version.starts_with("slurm")) launcher.kind = LauncherKind::slurm;
  return launcher;
}

}  // namespace crimp::tools
