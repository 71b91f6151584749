#!/usr/bin/env python3
"""Runs the commands of a page of documentation, as a reader would type them.

  commands.py run PAGE --root ROOT --build BUILD     every block fenced as ```sh, one after another, each line that fails ends it
  commands.py check --root ROOT                      no page has a command that no test runs; shown to fail on planted ones

A block runs in a folder that looks like the repository (its folders, and build/), with build/bin first on the PATH, a small MPI program `program` (also as `train`
and `program.mpich`), and `train.py` for Horovod or PyTorch. A comment in the line before the fence changes that:

  <!-- test: needs horovod -->     or torch, mpich, root, slurm ...: skipped, visibly, where that is lacking
  <!-- test: fails -->             the block's last command must end with an error
  <!-- test: prints REGEX -->      what was printed must match
  <!-- test: not run, REASON -->   why no test can run it; the reason is printed

Exit status: 0 all blocks ran, 77 some were skipped and the others ran, or none can, 1 one failed.
"""
import argparse, os, pathlib, re, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
MARK = re.compile(r"<!--\s*test:\s*(.*?)\s*-->")
# What begins like this is typed into a shell.
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sudo |export [A-Z_]+=|\./scripts/|build/bin/|crimp |mpirun |mpiexec|srun |sbatch |cmake |ctest |ninja |python3? |pip3? "
                     r"|module |apt|dpkg |spack |eb |docker |podman |apptainer |kubectl |patchelf |git clone|LDFLAGS=|LD_PRELOAD=)")


class Block:
    def __init__(self, line, language, marks):
        self.line, self.language, self.marks, self.text = line, language, marks, []


def blocks_of(text):
    """Fenced blocks, and indented ones (language None). Marks are the comments in the lines before."""
    found, block, marks, blank, lists = [], None, [], True, False
    for number, line in enumerate(text.split("\n"), 1):
        if block and block.language is not None:
            if line.lstrip().startswith("```"):
                block = None
            else:
                block.text.append(line)
            continue
        if line.lstrip().startswith("```"):
            block = Block(number, line.lstrip()[3:].strip(), marks)
            found.append(block)
            marks = []
            continue
        if mark := MARK.search(line):
            marks = marks + [mark.group(1)]
            continue
        if line.startswith("    ") and not lists and (blank or block):
            if not block:
                block = Block(number, None, marks)
                found.append(block)
            block.text.append(line[4:])
        else:
            if line.strip():
                block = None
                lists = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (lists and line.startswith(" "))
        if line.strip():
            marks = []
        blank = not line.strip()
    return found


def unrun_commands(text):
    """(line, command) of what looks like a command and is in no block that runs."""
    out = []
    for block in blocks_of(text):
        if block.language == "sh":
            continue
        for i, line in enumerate(block.text):
            if COMMAND.match(line) and not any(mark.startswith("not run") for mark in block.marks):
                out.append((block.line + i + (block.language is not None), line))
    return out


def lacking(need, build):
    if need == "horovod":
        return not (build / "horovod/venv/bin/python").exists()
    if need == "torch":
        return not (build / "torch_venv/bin/python").exists()
    if need == "root":
        return os.geteuid() != 0
    if need == "network":  # namespaces
        return os.geteuid() != 0 or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0
    if need == "mpich":
        return not shutil.which("mpiexec.mpich") or not list(build.glob("crimp/*/libcrimp.so"))
    return not shutil.which(need)


def folder(root, build, page):
    """A place that looks like the repository. What commands write stays out of it."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="crimp_docs_"))
    for name in ("scripts", "src", "include", "tests", "docs", "cmake", "mpi_shim", "packaging", "CMakeLists.txt", "CMakePresets.json"):
        if (root / name).exists():
            (place / name).symlink_to(root / name)
    (place / "build").symlink_to(build)
    for compiler, name in (("mpicc", "program"), ("mpicc.mpich", "program.mpich")):
        if shutil.which(compiler):
            subprocess.run([compiler, "-O2", "-o", place / name, HERE / "program.c"], check=True)
    (place / "train").symlink_to("program")
    training = "train_torch.py" if page.stem == "pytorch" else "train_horovod.py"
    shutil.copy(HERE / training, place / "train.py")
    return place


def environment(build, block):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CRIMP_", "OMPI_", "PMIX_"))}
    path = [str(build / "bin")]
    for venv in ("horovod/venv", "torch_venv"):
        if f"needs {venv.split('/')[0].split('_')[0]}" in block.marks:
            path.insert(0, str(build / venv / "bin"))
    env.update(PATH=":".join(path + ["/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1", PYTHONNOUSERSITE="1", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1")
    return env


def run(page, root, build):
    place, skipped, ran = folder(root, build, page), 0, 0
    try:
        for block in blocks_of(page.read_text()):
            if block.language != "sh":
                continue
            where = f"{page.name}:{block.line}"
            why = [mark for mark in block.marks if mark.startswith("not run")]
            needs = [mark.split()[1] for mark in block.marks if mark.startswith("needs ")]
            if why:
                print(f"{where}: {why[0]}")
                continue
            if missing := [need for need in needs if lacking(need, build)]:
                print(f"{where}: skipped, no {', '.join(missing)} here")
                skipped += 1
                continue
            script = "set -eu -o pipefail\n" + "\n".join(block.text) + "\n"
            done = subprocess.run(["bash", "-c", script], cwd=place, env=environment(build, block), text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
            problem = ""
            if ("fails" in block.marks) != (done.returncode != 0):
                problem = f"ended with {done.returncode}"
            for mark in block.marks:
                if mark.startswith("prints ") and not re.search(mark[7:], done.stdout):
                    problem = problem or f"did not print '{mark[7:]}'"
            if problem:
                print(f"{where}: {problem}\n{script}---\n{done.stdout[-6000:]}")
                return 1
            ran += 1
            print(f"{where}: ran\n" + "\n".join("  " + line for line in block.text))
    finally:
        shutil.rmtree(place)
    print(f"{page.name}: {ran} blocks ran, {skipped} skipped")
    return 77 if skipped or not ran else 0


def check(root):
    bad = 0
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for line, command in unrun_commands(page.read_text()):
            print(f"{page.relative_to(root)}:{line}: '{command}' is run by no test; fence it as ```sh")
            bad = 1
    for planted in ("Text:\n\n    crimp info\n\nmore", "```\nmpirun -np 4 ./x\n```", "```text\nCRIMP_CODEC=3lc mpirun x\n```"):
        if not unrun_commands(planted):
            print(f"not noticed: {planted!r}")
            bad = 1
    for fine in ("```sh\ncrimp info\n```", "<!-- test: not run, no card -->\n```text\nsrun x\n```", "- a\n    crimp info is prose in a list"):
        if unrun_commands(fine):
            print(f"wrongly noticed: {fine!r}")
            bad = 1
    return bad


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("what", choices=["run", "check"])
parser.add_argument("page", nargs="?", type=pathlib.Path)
parser.add_argument("--root", type=pathlib.Path, required=True)
parser.add_argument("--build", type=pathlib.Path)
args = parser.parse_args()
sys.exit(check(args.root.resolve()) if args.what == "check" else run(args.page.resolve(), args.root.resolve(), args.build.resolve()))
