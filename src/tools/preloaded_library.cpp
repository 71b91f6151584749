#include "preloaded_library.hpp"

#include <mpi.h>

#include "core/error.hpp"
#include "elf_file.hpp"

namespace crimp::tools {
namespace {

namespace fs = std::filesystem;

fs::path find_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::string tried;
  for (const char* place : {CRIMP_LIBRARIES, "../lib", "..", "."}) {
    const fs::path candidate = (here / place / "libcrimp.so").lexically_normal();
    if (fs::exists(candidate)) return candidate;
    // Distributions keep the name without a number to those who link.
    if (const fs::path numbered = candidate.parent_path() / CRIMP_SONAME; fs::exists(numbered)) return numbered;
    tried += (tried.empty() ? "" : ", ") + candidate.string();
  }
  throw Error(ErrorCode::argument_invalid,
              "libcrimp.so was not found (tried " + tried + "); give its place with --library");
}

#ifdef OMPI_MAJOR_VERSION
constexpr MpiFamily kFirstFamily = MpiFamily::open_mpi;
#else
constexpr MpiFamily kFirstFamily = MpiFamily::mpich;
#endif

// An MPI library in the installation that a launcher belongs to; empty: it is not there.
fs::path beside_launcher(const std::string& mpirun, const std::string& soname) {
  const fs::path named = in_path(mpirun);
  std::error_code none;
  if (named.empty()) return {};
  for (const fs::path& launcher : {fs::absolute(named, none), fs::canonical(named, none)})
    for (const char* libraries : {"lib", "lib/release"}) {
      const fs::path candidate = launcher.parent_path().parent_path() / libraries / soname;
      if (!launcher.empty() && fs::exists(candidate, none)) return candidate.lexically_normal();
    }
  return {};
}

}  // namespace

fs::path library_for(MpiFamily family, const std::string& soname, const std::string& mpirun) {
  const fs::path first = find_library(), others = first.parent_path() / "crimp";
  if (!soname.empty() && fs::exists(others / soname / "libcrimp.so")) return others / soname / "libcrimp.so";
  if (family == MpiFamily::unknown || family == kFirstFamily) return first;
  fs::path any;
  for (const char* name : {"libmpi.so.12", "libmpich.so.12"}) {
    const fs::path candidate = others / name / "libcrimp.so";
    if (family != MpiFamily::mpich || !fs::exists(candidate)) continue;
    any = candidate;
    if (!beside_launcher(mpirun, name).empty()) return candidate;
    if (mpi_of_file(candidate.string(), Linker::own).found) return candidate;
  }
  if (!any.empty()) return any;
  throw Error(ErrorCode::argument_invalid,
              "run: the program's MPI is " + std::string(name_of(family)) +
                  ", and this Crimp was built without a library for it (CMake's CRIMP_MPICH)");
}

MpiOfFile check_library(const std::string& library, MpiFamily family) {
  if (const auto calls = read_calls(library); !calls || !calls->is_mpi || !calls->is_crimp)
    throw Error(ErrorCode::argument_invalid,
                "run: --library " + library + " is no library of Crimp's; legal is a libcrimp.so");
  const MpiOfFile built = mpi_of_file(library, Linker::own);
  if (built.family != MpiFamily::unknown && family != MpiFamily::unknown && built.family != family)
    throw Error(ErrorCode::argument_invalid, "run: " + library + " is built for " + name_of(built.family) + " (" +
                                                 built.soname + "), and the job is " + name_of(family) +
                                                 "'s; without --library the one that fits is taken");
  return built;
}

std::string mpi_to_preload(const MpiOfFile& built, const MpiOfFile& wanted, const std::string& mpirun) {
  if (built.soname.empty() || built.found || wanted.found) return {};
  const std::string file = beside_launcher(mpirun, built.soname).string();
  return file.find_first_of(": ") == file.npos ? file : "";
}

}  // namespace crimp::tools
