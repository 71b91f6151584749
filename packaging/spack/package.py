# Crimp for Spack 1.x, in a repository of one's own: docs/install.md says how. There is no released archive yet, so that versions are branches of `git`, which a user of
# this recipe points at the clone.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Crimp(CMakePackage, CudaPackage):
    """Crimp compresses the gradient reductions of MPI programs: preloaded, or linked ahead of MPI, it turns sums of
    floating-point numbers into an exchange of compressed payloads, with error feedback, bit-identical on all ranks."""

    homepage = "https://crimp.invalid"
    git = "https://crimp.invalid/crimp.git"

    license("Apache-2.0")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi")
    depends_on("highway@1.0.3:")
    depends_on("spdlog@1.10:", type="build")
    depends_on("fmt@9:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("cli11@2.3:", type="build")
    depends_on("flatbuffers@2:", type="build")
    depends_on("random123", type="build")
    depends_on("xxhash@0.8:", type="build")
    depends_on("cuda@12:", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="Crimp's kernels are compiled for named architectures: cuda_arch=80,90")
    conflicts("%gcc@:10", msg="Crimp is C++20")
    generator("ninja")

    def cmake_args(self):
        mpi = self.spec["mpi"]
        arguments = [
            self.define("CRIMP_TESTS", False),
            self.define("CRIMP_MPICH", "off"),  # the library is for the one MPI of the spec; Debian's MPICH is none of Spack's
            self.define("MPI_C_COMPILER", mpi.mpicc),
            self.define("MPI_CXX_COMPILER", mpi.mpicxx),
        ]
        if self.spec.satisfies("+cuda"):
            arguments.append(self.define("CRIMP_NVCC", join_path(self.spec["cuda"].prefix.bin, "nvcc")))
            arguments.append(self.define("CRIMP_CUDA_ARCHITECTURES", list(self.spec.variants["cuda_arch"].value)))
        else:
            arguments.append(self.define("CRIMP_NVCC", ""))
        return arguments

    def setup_run_environment(self, env):
        # LD_PRELOAD is not set: `crimp run` gives it to the ranks alone.
        env.set("CRIMP_ROOT", self.prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_installed(self):
        Executable(self.prefix.bin.crimp)("info")
