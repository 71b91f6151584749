#!/usr/bin/env python3
"""check.py VENV RANKS TEST [NAME=VALUE ...] -- PROGRAM ...: runs a program of tests/torch under mpirun, and looks at what it leaves behind.

TEST: passes, fails (with an error, and not by hanging), or names (the report has the module's parameter names, before and after the rebuild).
Exit status: 0 passed, 77 skipped (no installation in VENV), 1 failed.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LIMIT = 240  # seconds, on a busy machine

split = sys.argv.index("--")
venv, ranks, test, *settings = sys.argv[1:split]
program = sys.argv[split + 1:]
python = pathlib.Path(venv) / "bin" / "python"
if not (pathlib.Path(venv) / "state").exists():
    print("skipped: crimp.torch is not installed here (torch.install says why)")
    sys.exit(77)
work = tempfile.TemporaryDirectory()
report = pathlib.Path(work.name) / "report.json"
line = ["mpirun", "-np", ranks, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--timeout", str(LIMIT)]
line += ["--allow-run-as-root"] * (os.geteuid() == 0)
for setting in [*settings, f"CRIMP_REPORT={report}", "OMP_NUM_THREADS=1"]:
    line += ["-x", setting]
os.environ["TMPDIR"] = work.name  # as in tests/mpi/run.py: no other job removes what this one's Open MPI makes there
environment = {name: value for name, value in os.environ.items() if not name.startswith("CRIMP_") and name not in ("PYTHONPATH", "PYTHONHOME")}
ended = subprocess.run([*line, str(python), str(pathlib.Path(__file__).with_name(program[0])), *program[1:]], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, env=environment, timeout=LIMIT + 60)
print(ended.stdout)


def check(condition, text):
    if not condition:
        sys.exit(f"check.py: {text}")


check("ORTE_ERROR" not in ended.stdout and "time limit" not in ended.stdout, "the job hung")
if ended.returncode == 77:
    sys.exit(77)
if test == "fails":
    check(ended.returncode != 0, "the job should have failed")
    check("SystemError" in ended.stdout, "the exception was not shown")
    check(not re.search("Segmentation|SIGABRT|terminate called", ended.stdout), "the job ended in disorder")
    sys.exit()
check(ended.returncode == 0, f"the job ended with {ended.returncode}")
read = lambda text: json.JSONDecoder().raw_decode(text)[0]  # mpirun may put other lines behind a line that has not ended
sharded = [read(text)["sharded"] for text in ended.stdout.splitlines() if text.startswith('{"sharded"')]
if sharded:
    rank = json.loads(report.read_text())["per_rank"][0]
    check(set(rank["layouts"]) == {"named"}, f"calls without names: {rank['layouts']}")
    listed = {re.sub("^[0-9]+/", "", tensor["name"]) for tensor in rank["tensors"]["listed"]}  # fully_shard's pieces
    weights = {name for name in sharded[0] if name.endswith("weight")}
    check(weights <= listed, f"{sorted(weights - listed)} are not among {sorted(listed)}")
    check(all(name in sharded[0] or "(padding" in name for name in listed), f"{sorted(listed)} are not {sharded[0]}")
if test == "names":
    said = read(next(text for text in ended.stdout.splitlines() if text.startswith('{"names"')))
    per_rank = json.loads(report.read_text())["per_rank"]
    for rank in per_rank:
        check(set(rank["layouts"]) == {"named"}, f"calls without names: {rank['layouts']}")
        check(rank["errors"] == 0, f"errors: {rank['errors']}")
        for step in rank["steps"]:
            check(sorted(step["tensors"]) == said["names"], f"{step['tensors']} are not {said['names']}")
    check(any(rank["steps"] for rank in per_rank), "no step is recorded")
    # The first step's buckets and the later ones, as calls of so many floats. Rank 0 writes them for all.
    kinds = per_rank[0]["decisions"][0]["kinds"]
    counts = {re.match("float32 x ([0-9]+)", kind["kind"])[1]: kind["calls"] for kind in kinds}
    for buckets, calls in ((said["buckets"], 1), (said["rebuilt"], said["steps"] - 1)):
        for size in buckets.split(","):
            check(counts.get(str(int(size) // 4), 0) >= calls, f"no {calls} calls of {size} bytes: {counts}")
