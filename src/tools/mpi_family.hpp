// Which MPI a program, a library or a launcher belongs to. Nothing is linked or loaded for that, and no program is run.
#pragma once
#include <string>
#include <vector>

namespace crimp::tools {

// mpi_5: the binary interface of MPI 5, which programs of any MPI may be built for.
enum class MpiFamily { unknown, open_mpi, mpich, mpi_5 };
const char* name_of(MpiFamily);  // "Open MPI", "MPICH"

struct MpiOfFile {
  MpiFamily family = MpiFamily::unknown;
  std::string soname;  // of the MPI library, as libmpi.so.40
  bool found = false;  // the dynamic linker finds that library
};

// Of an ELF file, through what it needs and what that needs in turn, as the dynamic linker lists it. Unknown: a script,
// an interpreter, a static program, one that opens MPI while it runs. A name without a slash is looked up in the PATH.
// Linker::own: by the linker of this program, so that nothing is run that the file names.
enum class Linker { of_file, own };
MpiOfFile mpi_of_file(const std::string& file, Linker = Linker::of_file);

// Where a program lies: looked up in the PATH, or as it is named where that has a slash. Empty: nowhere.
std::string in_path(const std::string& program);

enum class LauncherKind { unknown, open_mpi, hydra, slurm };
struct Launcher {
  LauncherKind kind = LauncherKind::unknown;
  MpiFamily family = MpiFamily::unknown;  // Slurm starts programs of either
  std::string version;                    // the first line of what `--version` prints
};
Launcher ask_launcher(const std::string& command);

}  // namespace crimp::tools
