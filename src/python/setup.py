"""Builds the PyTorch backend with the PyTorch that is installed, against an installed Crimp.

Crimp is found by CRIMP_ROOT (an installation's prefix, or a build folder of Crimp's CMake), else by pkg-config.
"""
import os
import pathlib
import re
import shlex
import subprocess

import setuptools
import torch
from torch.utils import cpp_extension

HERE = pathlib.Path(__file__).resolve().parent


def output(*command):
    return shlex.split(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def library_in(root):
    for folder in (root, *sorted(root.glob("lib*")), *sorted(root.glob("lib/*"))):
        if (folder / "libcrimp.so").exists():
            return folder.resolve()
    raise SystemExit(f"setup.py: CRIMP_ROOT={root} has no libcrimp.so, neither in it nor in its lib")


def header_for(root):
    """Of an installation, or of the sources that a build folder belongs to."""
    sources = re.findall("^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (root / "CMakeCache.txt").read_text(), re.M) \
        if (root / "CMakeCache.txt").exists() else []
    for folder in (root, *map(pathlib.Path, sources)):
        if (folder / "include" / "crimp" / "crimp.h").exists():
            return (folder / "include").resolve()
    raise SystemExit(f"setup.py: no crimp/crimp.h for CRIMP_ROOT={root}")


def crimp_flags():
    if os.environ.get("CRIMP_ROOT"):
        root = pathlib.Path(os.environ["CRIMP_ROOT"]).resolve()
        library = library_in(root)
        return [f"-I{header_for(root)}"], ["-Wl,--no-as-needed", f"-L{library}", "-lcrimp", f"-Wl,-rpath,{library}"]
    try:
        return output("pkg-config", "--cflags", "crimp"), output("pkg-config", "--libs", "crimp")
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("setup.py: pkg-config knows no crimp. Install Crimp (cmake --install build) and set PKG_CONFIG_PATH, "
                         "or set CRIMP_ROOT to its prefix or to its build folder")


def mpi_flags():
    """Compile and link options, as the compiler wrapper shows them."""
    words = output(os.environ.get("MPICXX", "mpicxx"), "-show")[1:]
    return ([word for word in words if word.startswith(("-I", "-D", "-pthread"))],
            [word for word in words if word.startswith(("-L", "-l", "-Wl")) and word not in ("-lmpi_cxx", "-lmpicxx")])


# From PyTorch 2 on its own builder names the standard that its headers need: C++17, in later ones C++20.
standard = ["-std=c++17"] if torch.__version__.startswith("1.") else []
crimp_compile, crimp_link = crimp_flags()
mpi_compile, mpi_link = mpi_flags()
extension = cpp_extension.CppExtension(
    "crimp._c10d",
    ["c10d/extension.cpp"],
    depends=sorted(str(path.relative_to(HERE)) for path in HERE.glob("c10d/*.?pp")),
    extra_compile_args=[*crimp_compile, *mpi_compile, *standard, "-O2", "-ftree-loop-vectorize", "-g0", "-w", "-fvisibility=hidden", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"],
    extra_link_args=[*crimp_link, *mpi_link])  # Crimp ahead of MPI
setuptools.setup(ext_modules=[extension], cmdclass={"build_ext": cpp_extension.BuildExtension})
