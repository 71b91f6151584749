#!/usr/bin/env python3
"""The times of a job's calls in the report, against those that the program took itself: times.py ALGORITHM RANKS LIBCRIMP PROGRAM.
Exit status: 0 passed, 77 skipped, 1 failed."""
import json, os, re, shutil, subprocess, sys, tempfile

algorithm, ranks, crimp, program = sys.argv[1:]
ranks, CALLS, COUNTS = int(ranks), 160, (40000, 300000)


def fail(text):
    print(f"times.py: {text}")
    sys.exit(1)


def expect(condition, text):
    if not condition:
        fail(text)


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-3)


def consistent(where, of):
    """What holds of a class, a rank and a job alike."""
    best, plain = of["best"], of["without_crimp"]
    expect(near(best["regret_s"], best["own_s"] - best["best_s"]), f"{where}: the regret is not the difference: {best}")
    for what, known in ((best, [best]), (plain, [plain["measured"], plain["predicted"]])):
        calls, took = sum(k["calls"] for k in known), sum(k["took_s"] for k in known)
        expect(calls + what["unknown"]["calls"] == of["calls"], f"{where}: calls that are neither known nor unknown: {of}")
        expect(near(took + what["unknown"]["took_s"], of["took_s"]), f"{where}: seconds that are neither known nor unknown: {of}")
    for known in (best, plain["measured"], plain["predicted"]):
        expect((known["calls"] > 0) == (known["own_s"] > 0), f"{where}: so many calls take no time of their own, or none takes some: {known}")
        seconds = known.get("best_s", known.get("plain_s"))
        expect((known["calls"] > 0) == (seconds > 0), f"{where}: so many calls take no time, or none takes some: {known}")


def numbers(of, path=""):
    for key, value in of.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{path}{key}.")
        elif not isinstance(value, (list, str)) and key != "from_elements":
            yield path + key, value


def added(where, total, parts):
    sums = {}
    for part in parts:
        for path, value in numbers(part):
            sums[path] = sums.get(path, 0) + value
    for path, value in numbers(total):
        expect(near(value, sums.get(path, 0)), f"{where}: {path} is {value}, and its parts are {sums.get(path, 0)}")


if not shutil.which("mpirun"):
    print("times.py: skipped: no mpirun")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="crimp-times-") as scratch:
    file = os.path.join(scratch, "report.json")
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--timeout", "120", "-n", str(ranks)]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    for setting in (f"LD_PRELOAD={crimp}", f"CRIMP_REPORT={file}", f"CRIMP_ALGORITHM={algorithm}", "CRIMP_CODEC=fp16", "CRIMP_QUALITY=any"):
        line += ["-x", setting]
    env = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
    done = subprocess.run([*line, program, str(CALLS)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    expect(done.returncode == 0, f"the job ended with status {done.returncode}")
    with open(file) as stream:
        report = json.load(stream)
said = {(int(r), int(count)): float(s) for r, count, _, s in re.findall(r"took (\d+) (\d+) (\d+) ([0-9.]+)", done.stdout)}
expect(len(said) == 3 * ranks, f"{len(said)} lines of {3 * ranks}")

print(json.dumps(report["time"], indent=1))
consistent("job", report["time"])
added("job", report["time"], [rank["time"] for rank in report["per_rank"]])
for r, rank in enumerate(report["per_rank"]):
    consistent(f"rank {r}", rank["time"])
    added(f"rank {r}", rank["time"], rank["time"]["classes"])
    classes = {of["from_elements"]: of for of in rank["time"]["classes"]}
    expect(sorted(classes) == [1 << (count.bit_length() - 1) for count in COUNTS], f"rank {r} has the classes {sorted(classes)}")
    for count in COUNTS:
        of = classes[1 << (count.bit_length() - 1)]
        where = f"rank {r}, {count} elements"
        consistent(where, of)
        expect(of["codec"] == "fp16", f"{where}: codec {of['codec']}")
        expect(of["calls"] == CALLS and of["elements"] == CALLS * count, f"{where}: {of}")
        # What interception adds before and behind is not in it.
        took = said[r, count]
        expect(0.5 * took <= of["took_s"] <= took, f"{where}: took {of['took_s']} s, and by the program's clock {took}")
        if algorithm != "auto":
            expect(of["best"]["unknown"]["calls"] == of["without_crimp"]["unknown"]["calls"] == CALLS, f"{where}: nothing was tried, and yet {of}")
        else:
            expect(of["without_crimp"]["unknown"]["calls"] == 0, f"{where}: the network was measured, and yet {of}")
print("times.py: passed")
