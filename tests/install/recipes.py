#!/usr/bin/env python3
"""recipes.py ROOT VERSION CRIMP: the recipes in packaging/ are readable, and name options, files and settings that exist.

What only their own tools can say is not said here: EasyBuild's style and Spack's concretizer run where they are installed.
Exit 77: no PyYAML here.
"""
import ast
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("skipped: no PyYAML")
    sys.exit(77)

root, version, crimp = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
packaging = root / "packaging"
bad = []


def expect(holds, what):
    if not holds:
        bad.append(what)


# The options of our CMake files, and what they look for.
cmake = "\n".join(path.read_text() for path in [root / "CMakeLists.txt", *root.glob("cmake/*.cmake"), *root.glob("src/CMakeLists.txt"),
                                                *root.glob("mpi_shim/*.cmake"), *root.glob("mpi_shim/CMakeLists.txt"), *root.glob("src/tools/CMakeLists.txt")])
options = set(re.findall(r"set\((CRIMP_\w+) [^)]*CACHE", cmake)) | set(re.findall(r"find_program\((\w+)", cmake)) | {"MPI_C_COMPILER", "MPI_CXX_COMPILER"}
# What is needed for building, by the names that Spack and EasyBuild give them.
needed = {"hwy": "highway", "spdlog": "spdlog", "nlohmann_json": "nlohmann-json", "CLI11": "cli11", "flatbuffers": "flatbuffers"}
for package in re.findall(r"find_package\((\w+)", cmake):
    expect(package in needed or package in ("MPI", "Threads", "CUDAToolkit"), f"find_package({package}): the recipes do not know it")


def check_dependencies(where, named):
    named = {name.lower().replace("_", "-") for name in named}
    for name in [*needed.values(), "random123", "xxhash", "cmake", "ninja"]:
        expect(name in named, f"{where} does not depend on {name}: {sorted(named)}")


def check_options(where, named):
    for name in named:
        expect(name in options, f"{where} gives CMake {name}, which is no option: {sorted(options)}")


# Spack: run with stand-ins for its directives.
class Recorder:
    def __init__(self):
        self.calls = {}

    def directive(self, name):
        def record(*arguments, **named):
            self.calls.setdefault(name, []).append((arguments, named))
            return lambda function: function
        return record


class Spec(dict):
    """As much of a spec as cmake_args() asks for."""
    class Package:
        mpicc, mpicxx = "/mpi/mpicc", "/mpi/mpicxx"
        class prefix:
            bin = "/cuda/bin"
    class Variant:
        value = ("80", "90")

    def __init__(self, cuda):
        super().__init__(mpi=self.Package, cuda=self.Package)
        self.cuda, self.variants = cuda, {"cuda_arch": self.Variant}

    def satisfies(self, text):
        assert text == "+cuda", text
        return self.cuda


class Base:
    def define(self, name, value):
        return f"-D{name}={';'.join(value) if isinstance(value, (list, tuple)) else value}"


source = (packaging / "spack/package.py").read_text()
recorder = Recorder()
space = {name: recorder.directive(name) for name in ("version", "variant", "depends_on", "conflicts", "license", "generator", "run_after", "on_package_attributes")}
space.update(CMakePackage=Base, CudaPackage=type("CudaPackage", (), {}), join_path=lambda *parts: "/".join(parts), Executable=None)
tree = ast.parse(source)
for statement in tree.body:
    if isinstance(statement, ast.ImportFrom):
        expect(statement.module.startswith("spack"), f"package.py imports {statement.module}")
tree.body = [statement for statement in tree.body if not isinstance(statement, ast.ImportFrom)]
exec(compile(tree, "package.py", "exec"), space)
check_dependencies("Spack's recipe", [re.match(r"[\w-]+", arguments[0]).group() for arguments, _ in recorder.calls["depends_on"]])
for cuda in (False, True):
    package = space["Crimp"]()
    package.spec = Spec(cuda)
    arguments = package.cmake_args()
    check_options("Spack's recipe", [re.match(r"-D(\w+)=", argument).group(1) for argument in arguments])
    expect(any("CRIMP_NVCC=/cuda/bin/nvcc" in argument for argument in arguments) == cuda, f"Spack's recipe with cuda={cuda}: {arguments}")
    expect(any("CRIMP_CUDA_ARCHITECTURES=80;90" in argument for argument in arguments) == cuda, f"Spack's recipe with cuda={cuda}: {arguments}")

# EasyBuild: assignments, with its constants.
recipes = list((packaging / "easybuild").glob("*.eb"))
expect(len(recipes) == 1, f"{len(recipes)} recipes for EasyBuild")
for recipe in recipes:
    eb = {"SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz", "SHLIB_EXT": "so", "SYSTEM": {"name": "system", "version": "system"}}
    exec(compile(recipe.read_text(), recipe.name, "exec"), eb)
    expect(eb["version"] == version, f"{recipe.name}: version {eb['version']}, and Crimp is {version}")
    expect(recipe.name == f"{eb['name']}-{eb['version']}-{eb['toolchain']['name']}-{eb['toolchain']['version']}.eb", f"{recipe.name}: the name is not what EasyBuild looks for")
    check_dependencies(recipe.name, [entry[0] for entry in eb["builddependencies"] + eb["dependencies"]])
    check_options(recipe.name, re.findall(r"-D(\w+)=", eb["configopts"]))
    expect(max(map(len, recipe.read_text().splitlines())) <= 120, f"{recipe.name}: lines above EasyBuild's 120 columns")

# Containers: what is copied exists and is enough for the preset; both recipes copy the same.
containerfile = (packaging / "container/Containerfile").read_text()
copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", containerfile, re.M) for word in line.split()[:-1]]
for name in copied:
    expect((root / name).exists(), f"Containerfile copies {name}, which is not there")
for folder in re.findall(r"^add_subdirectory\((\w+)", (root / "CMakeLists.txt").read_text(), re.M):
    expect(folder in copied, f"Containerfile does not copy {folder}, which CMakeLists.txt adds")
for name in re.findall(r"\$\{PROJECT_SOURCE_DIR\}/([\w.]+)", (packaging / "CMakeLists.txt").read_text()):
    expect(name in copied, f"Containerfile does not copy {name}, which packaging/CMakeLists.txt installs")
definition = (packaging / "container/crimp.def").read_text()
for name in copied:
    if not name.startswith(("scripts/", "packaging/")):
        expect(re.search(rf"^    {re.escape(name)} /crimp/", definition, re.M), f"crimp.def does not copy {name}")
for text in (containerfile, definition):
    expect("cmake --preset debian" in text and '"debian"' in (root / "CMakePresets.json").read_text(), "the preset debian is gone")
for script in re.findall(r"%post\n(.*?)(?=\n\n|\n%|\Z)", definition, re.S):
    expect(subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0, f"crimp.def: {script}")

# Kubernetes: the job mounts the settings that it names, and these are legal.
documents = list(yaml.safe_load_all((packaging / "kubeflow/mpijob.yaml").read_text()))
settings = next(each for each in documents if each["kind"] == "ConfigMap")
job = next(each for each in documents if each["kind"] == "MPIJob")
expect(job["apiVersion"] == "kubeflow.org/v2beta1", job["apiVersion"])
for role, replica in job["spec"]["mpiReplicaSpecs"].items():
    pod = replica["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for container in pod["containers"]:
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        expect(set(mounts) <= set(volumes), f"{role}: mounts {mounts} of {sorted(volumes)}")
        expect(volumes["settings"]["configMap"]["name"] == settings["metadata"]["name"], f"{role}: another ConfigMap")
        for variable in container.get("env", []):
            expect(variable["name"] == "CRIMP_CONFIG" and pathlib.Path(variable["value"]) == pathlib.Path(mounts["settings"]) / next(iter(settings["data"])), f"{role}: {variable}")
        expect(f"useradd --create-home --uid {container['securityContext']['runAsUser']} " in containerfile, f"{role}: another user than the container's")
expect(job["spec"]["sshAuthMountPath"] + "/id_rsa" in (packaging / "container/sshd_config").read_text(), "sshd looks for the keys elsewhere")
ranks = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]
command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
expect(command[:4] == ["crimp", "run", "-n", str(ranks)], f"the launcher starts {command}, and there are {ranks} slots")
for name, text in settings["data"].items():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        said = subprocess.run([crimp, "run", "--dry-run", "-n", "2", "--", "/bin/true"], env={"PATH": "/usr/bin:/bin", "CRIMP_CONFIG": file.name}, capture_output=True, text=True)
    expect(said.returncode == 0 and not said.stderr, f"{name}: {said.stderr}")

for what in bad:
    print(what)
sys.exit(bool(bad))
