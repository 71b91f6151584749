#!/usr/bin/env python3
"""Files that cannot be written, or have odd names, under real jobs: files.py CASE LIBCRIMP PROGRAM. Exit status: 0 passed, 77 skipped, 1 failed."""
import json, os, re, shutil, signal, subprocess, sys, tempfile

case, library, program = sys.argv[1:]
TIMEOUT = 60
environment = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
environment.update(CRIMP_ALGORITHM="allgather", CRIMP_CODEC="fp16", LD_PRELOAD=library)
scratch = tempfile.mkdtemp(prefix="crimp-files-")
at = lambda name: os.path.join(scratch, name)


def fail(text):
    print(f"files.py: {text}")
    sys.exit(1)


def expect(condition, text):
    if not condition:
        fail(text)


def job(settings, ranks=2, arguments=(), kills=False):
    """Runs the program; its standard error, as text with the bytes of odd names in it. kills: the process that says that it compresses, of which the job must die."""
    if ranks > 1 and not shutil.which("mpirun"):
        print("files.py: skipped: no mpirun")
        sys.exit(77)
    environment.update(settings)
    line = [program, *arguments]
    if ranks > 1:
        names = [word for name in environment if name.startswith("CRIMP_") for word in ("-x", name)]
        line = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), "-x", "LD_PRELOAD", *names, *line]
        if os.geteuid() == 0:
            line.insert(1, "--allow-run-as-root")
    own = dict(environment)
    preload = own.pop("LD_PRELOAD") if ranks > 1 else None
    if preload:
        line[line.index("LD_PRELOAD")] = "LD_PRELOAD=" + preload  # for the ranks, not for mpirun
    process = subprocess.Popen(line, env=own, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    before = kill_one(process) if kills else b""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        fail(f"the job hung: ended after {TIMEOUT} s")
    err = (before + err).decode(errors="surrogateescape")
    print(out.decode(errors="replace") + err.encode(errors="replace").decode(), flush=True)
    if kills:
        expect(process.returncode != 0 and re.search(r"rank 0 .*exited on signal 9", err), f"the job ended with status {process.returncode}, not by the signal")
    else:
        expect(process.returncode == 0, f"the job ended with status {process.returncode}")
    return err


def kill_one(process):
    """What was said until then."""
    said = b""
    for line in process.stderr:
        said += line
        if found := re.search(rb"compressed by process (\d+)", line):
            os.kill(int(found[1]), signal.SIGKILL)
            return said
    fail("nothing was compressed before the job ended:\n" + said.decode(errors="replace"))


def refused(why, name, **settings):
    """The program runs to its end; before it begins and at the end a line names the file and says why."""
    said = job({"CRIMP_REPORT": name, **settings})
    parts = said.split("the program begins")
    expect(len(parts) == 2, "the program did not begin")
    expect(all(name in part and why in part for part in parts), f"no line with '{name}' and '{why}' before the program began, or none at its end")


try:
    if case == "bytes":
        odd = {"CRIMP_REPORT": b"r\xff.json", "CRIMP_TRACE": b"t\xff.json", "CRIMP_RULES": b"caf\xe9*=none; x\xff=fp16"}
        job({name: os.fsdecode(value) for name, value in odd.items()}, arguments=["bytes"])
        expect(sorted(os.listdir(scratch)) == sorted(os.fsdecode(n) for n in (b"r\xff.json", b"t\xff.json")), f"there are {os.listdir(scratch)}")
        report = json.load(open(at(os.fsdecode(b"r\xff.json")), encoding="utf-8"))
        expect(report["settings"]["CRIMP_RULES"] == "caf\ufffd*=none; x\ufffd=fp16", "CRIMP_RULES reads otherwise")
        for rank in (0, 1):
            expect([t["name"] for t in report["per_rank"][rank]["excluded"]["tensors"]] == ["caf\ufffd.bias"], f"rank {rank} excluded other tensors")
        expect(json.load(open(at(os.fsdecode(b"t\xff.json"))))["traceEvents"], "the trace has no events")
    elif case == "fifo":
        os.mkfifo(at("fifo"))
        refused("FIFO", at("fifo"), CRIMP_TRACE=at("fifo"))
    elif case == "missing":
        refused("No such file or directory", at("missing/r.json"))
    elif case == "full":
        said = job({"CRIMP_REPORT": "/dev/full"})
        expect("CRIMP_REPORT: '/dev/full' cannot be written: No space left on device" in said, "nothing was said")
    elif case == "chdir":
        job({"CRIMP_REPORT": "r.json"})
        expect(len(json.load(open(at("r.json")))["per_rank"]) == 2, "not both ranks are in the report")
        expect(os.listdir(scratch) == ["r.json"], f"there are {os.listdir(scratch)}")
    elif case == "one":
        os.symlink("r.json", at("link.json"))
        for trace in ("r.json", "../" + os.path.basename(scratch) + "/r.json", "link.json"):
            said = job({"CRIMP_REPORT": "r.json", "CRIMP_TRACE": trace})
            expect(f"CRIMP_TRACE: '{trace}' is the file of CRIMP_REPORT, too" in said.split("the program begins")[0], "nothing was said before the program began")
            expect(len(json.load(open(at("r.json")))["per_rank"]) == 2, "r.json is not the report")
        for trace in ("t.json", "/dev/null"):
            expect("is the file of" not in job({"CRIMP_REPORT": "r.json" if trace == "t.json" else "/dev/null", "CRIMP_TRACE": trace}), "two files are taken for one")
        expect(json.load(open(at("t.json")))["traceEvents"], "the trace has no events")
    elif case == "killed":
        with open(at("r.json"), "w") as file:
            file.write("the last report")
        job({"CRIMP_REPORT": "r.json", "CRIMP_TRACE": "t.json"}, arguments=["killed"], kills=True)
        expect(os.listdir(scratch) == ["r.json"] and open(at("r.json")).read() == "the last report", f"there are {os.listdir(scratch)}")
    elif case == "check":
        os.mkfifo(at("fifo"))
        said = job({"CRIMP_CHECK": at("fifo")}, ranks=1)
        expect("CRIMP_CHECK: '" + at("fifo") + "' cannot be written: it is a FIFO" in said, "nothing was said")
    elif case == "log":
        # Nobody reads what is said on standard error; the program itself says nothing there that would end it.
        read, write = os.pipe()
        os.close(read)
        status = subprocess.run([program, "quiet"], env=environment, stdout=subprocess.PIPE, stderr=write, timeout=TIMEOUT).returncode
        expect(status == 0, f"the job ended with status {status}")
    else:
        fail(f"no such case: {case}")
finally:
    shutil.rmtree(scratch)
print("files.py: passed")
