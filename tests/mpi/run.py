#!/usr/bin/env python3
"""Runs one MPI test: composes the command line of Open MPI's or MPICH's launcher, ends what hangs, compares what was said with what was expected.

A program prints "expect RANK entry=value ..." lines; with --report every rank's part of the CRIMP_REPORT file must say the same.
Exit status: 0 passed, 77 skipped, 1 failed. A hang is a failure.
"""
import argparse, ctypes, json, os, re, shutil, signal, subprocess, sys, tempfile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-n", type=int, default=2, help="ranks")
parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi", help="whose launcher starts it")
parser.add_argument("--launcher", help="this one, instead of the first of that MPI on the PATH")
parser.add_argument("--preload", action="append", default=[], metavar="LIB", help="LD_PRELOAD, in load order")
parser.add_argument("--giving-way", metavar="LIB", help="preloaded behind these, where ranks that wait would keep their cores")
parser.add_argument("--env", action="append", default=[], metavar="A=B", help="environment of all ranks")
parser.add_argument("--rank-env", action="append", default=[], metavar="R:A=B", help="environment of one rank")
parser.add_argument("--report", action="store_true", help="compare the report with the program's expectations")
parser.add_argument("--says", action="append", default=[], metavar="REGEX", help="must be found in what was printed")
parser.add_argument("--silent-on", action="append", default=[], metavar="REGEX", help="must not be found there")
parser.add_argument("--fails", action="store_true", help="the program must end with an error, and not by hanging")
parser.add_argument("--hangs", action="store_true", help="the program must still run when the time is up")
parser.add_argument("--until", metavar="REGEX", help="the job, which may hang, is ended when this has been printed; it must be")
parser.add_argument("--nodes", type=int, metavar="N", help="... and the job's nodes must be so many")
parser.add_argument("--report-fails", action="store_true", help="the comparison of --report must fail: a control")
parser.add_argument("--same-without", action="store_true", help="standard output must be that of a run without the preloads")
parser.add_argument("--differs", action="store_true", help="... must not be: a control")
parser.add_argument("--small-shm", metavar="SIZE", help="/dev/shm has no more than this (48m); skipped where nothing can be mounted")
parser.add_argument("--needs", default="", metavar="MODULES", help="Python modules of a .py program; skipped without")
parser.add_argument("--alone", action="store_true", help="no other test runs beside this one")
parser.add_argument("--timeout", type=int, default=120, help="seconds")
parser.add_argument("--gpu", action="store_true", help="skipped where no GPU answers")
parser.add_argument("--skip", metavar="REASON", help="only say why this cannot run here")
parser.add_argument("program", nargs="*", help="program and arguments")
args = parser.parse_args()


def end(status, text):
    print(f"run.py: {text}", flush=True)
    sys.exit(status)


def interpreter():
    for python in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {args.needs}"], capture_output=True).returncode == 0:
            return [python]
    end(77, f"skipped: no Python here has {args.needs}")


def gpu_answers():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def with_small_shm():
    """A mount of its own, gone with the last process."""
    inside = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={args.small_shm} tmpfs /dev/shm && exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        end(77, "skipped: nothing can be mounted over /dev/shm here")
    return inside


class OpenMpi:
    names = ["mpirun.openmpi", "mpirun"]
    hung = "time limit for job execution"

    @staticmethod
    def options():
        line = ["--oversubscribe", "--bind-to", "none", "--timeout", str(args.timeout)]
        if not args.alone:  # other tests' ranks need the cores of those that wait
            line += ["--mca", "mpi_yield_when_idle", "1"]
        return line + ["--allow-run-as-root"] * (os.geteuid() == 0)

    @staticmethod
    def setting(text):
        return ["-x", text]


class Mpich:
    names = ["mpiexec.mpich", "mpiexec.hydra"]
    hung = "APPLICATION TIMED OUT"

    @staticmethod
    def options():
        os.environ["MPIEXEC_TIMEOUT"] = str(args.timeout)
        return []

    @staticmethod
    def setting(text):
        return ["-env", *text.split("=", 1)]


mpi = {"openmpi": OpenMpi, "mpich": Mpich}[args.mpi]


def mpirun(preload, report):
    line = with_small_shm() if args.small_shm else []
    line += [launcher, *mpi.options()]
    shared = list(args.env)
    if args.giving_way:
        preload = [*preload, args.giving_way]
    if preload:
        shared.append("LD_PRELOAD=" + ":".join(preload))
    if report:
        shared.append("CRIMP_REPORT=" + report)
    program = (interpreter() if args.program[0].endswith(".py") else []) + args.program
    own = dict.fromkeys(range(args.n), ())
    for entry in args.rank_env:
        rank, _, setting = entry.partition(":")
        own[int(rank)] += (setting,)
    groups = [(args.n, ())] if not args.rank_env else [(1, own[r]) for r in range(args.n)]
    for i, (ranks, settings) in enumerate(groups):
        line += [":"] * (i > 0) + ["-n", str(ranks)]
        for setting in [*shared, *settings]:
            line += mpi.setting(setting)
        line += program
    print("+", " ".join(line), flush=True)
    # A folder of its own: one Open MPI removes the folder of all where it is the last, while the next one makes its own in it.
    place = tempfile.TemporaryDirectory(prefix="mpi-", ignore_cleanup_errors=True)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "TMPDIR": place.name})
    try:
        if args.until:
            end_when_said(process)
        out, err = process.communicate(timeout=args.timeout + 15)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=15)
    print(out + err, flush=True)
    hung = mpi.hung in out + err
    return process.returncode, hung, out, err


def end_when_said(process):
    """Reads standard error until it matches, and ends the job then."""
    said = ""
    for line in process.stderr:
        said += line
        if re.search(args.until, said):
            process.send_signal(signal.SIGTERM)
            break
    else:
        end(1, f"nothing printed matches '{args.until}':\n{said}")
    print(said, flush=True)


def look_up(data, path):
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) and int(key) < len(data) else data.get(key, {})
    return data


def compare(out, report):
    """What is wrong with the report, or nothing."""
    if not os.path.getsize(report):
        return "no report was written: Crimp was not there"
    with open(report) as file:
        whole = json.load(file)
    per_rank = whole["per_rank"]
    if args.nodes and whole["job"]["nodes"] != args.nodes:
        return f"the report says {whole['job']['nodes']} nodes in place of {args.nodes}"
    # mpirun may put one rank's line before the end of another's.
    lines = re.findall(r"^expect (.*)$", out.replace("expect ", "\nexpect "), re.MULTILINE)
    if len(lines) != args.n:
        return f"{len(lines)} of {args.n} ranks said what they expect"
    entries = 0
    for line in lines:
        rank, *wanted = line.split()
        if int(rank) >= len(per_rank):
            continue  # loaded after MPI_Init: rank 0 reports alone
        for entry in filter(lambda entry: "=" in entry, wanted):  # behind it may be another rank's line
            path, _, value = entry.partition("=")
            value = re.match(r"-?\d*", value)[0]
            got = look_up(per_rank[int(rank)], path.rstrip(">"))
            entries += 1
            if got == {}:
                return f"the report has no {path} for rank {rank}"
            if got < int(value) or got > int(value) and not path.endswith(">"):
                return f"the report says {path}={got} for rank {rank}, the program expects {value}"
    return "" if entries else "the program expects nothing, so nothing was compared"


if args.skip:
    end(77, "skipped: " + args.skip)
if args.gpu and not gpu_answers():
    end(77, "skipped: no GPU answers here")
launcher = args.launcher or next(filter(shutil.which, mpi.names), None)
if not launcher:
    end(77, f"skipped: no {mpi.names[0]}")
for name in [name for name in os.environ if name.startswith("CRIMP_")]:
    del os.environ[name]
# What all tests shall have that do not set it themselves: TEST_SETTINGS="CRIMP_THREADS=4 CRIMP_SIMD=SSE4".
os.environ.update(setting.split("=", 1) for setting in os.environ.pop("TEST_SETTINGS", "").split())
os.environ["CRIMP_ALGORITHM"] = "allgather"  # on one machine plain MPI is faster, and auto would take it
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    status, hung, out, err = mpirun(args.preload, file.name if args.report else None)
    if args.until:
        end(0, "passed")
    if hung != args.hangs:
        end(1, f"hung: ended after {args.timeout} s" if hung else "did not hang")
    if not hung and status == 77:
        end(77, "skipped by the program")
    if not hung and (status != 0) != args.fails:
        end(1, f"the program ended with status {status}")
    if args.report and not hung:
        wrong = compare(out, file.name)
        if bool(wrong) != args.report_fails:
            end(1, wrong or "the report is as expected, but should not be")
for regex in args.says:
    if not re.search(regex, out + err):
        end(1, f"nothing printed matches '{regex}'")
for regex in args.silent_on:
    if re.search(regex, out + err):
        end(1, f"something printed matches '{regex}'")
if args.same_without:
    _, _, plain, _ = mpirun([], None)
    # Launchers may put one rank's line before the end of another's.
    lines = [sorted(filter(None, text.replace("expect ", "\nexpect ").splitlines())) for text in (plain, out)]
    same = lines[0] == lines[1]
    if not plain.strip() or same == args.differs:
        end(1, "without the preloads the output is " + ("the same" if same else "another one"))
end(0, "passed")
