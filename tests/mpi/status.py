#!/usr/bin/env python3
"""What CRIMP_STATUS says while a job runs, and when it has ended: status.py CASE LIBCRIMP CRIMP CALLS SLOW.
CALLS makes many calls, SLOW is some seconds late with one. Exit status: 0 passed, 77 skipped, 1 failed."""
import json, os, re, shutil, subprocess, sys, tempfile, time

case, crimp, tool, calls, slow = sys.argv[1:]
if not shutil.which("mpirun"):
    print("status.py: skipped: no mpirun")
    sys.exit(77)


def expect(condition, text):
    if not condition:
        print(f"status.py: {text}")
        sys.exit(1)


def start(settings, program, ranks=2):
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--timeout", "120", "-n", str(ranks)]
    line += ["--allow-run-as-root"] * (os.geteuid() == 0)
    for setting in (f"LD_PRELOAD={crimp}", *settings):
        line += ["-x", setting]
    env = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
    return subprocess.Popen([*line, *program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=scratch)


def ended(job):
    said = job.communicate()[0].decode()  # with the carriage returns that it has
    print(said, flush=True)
    expect(job.returncode == 0, f"the job ended with status {job.returncode}")
    return said


LINE = r"\d+:\d\d, \d+ calls? compressed(, \d+ passed)?(: \d+\.\dx less, [0-9.]+ [GM]B/s(, [0-9.]+ s (saved|lost) \((measured|predicted|measured, partly predicted)\))?)?"
with tempfile.TemporaryDirectory(prefix="crimp-status-") as scratch:
    file, report = (os.path.join(scratch, name) for name in ("job.status", "report.json"))
    if case == "file":  # what it says at the end is what the report says
        for attempt in range(5):  # on a busy machine the chooser may leave all calls to MPI, and then nothing is saved or lost
            said = ended(start(["CRIMP_CODEC=fp16", "CRIMP_QUALITY=any", f"CRIMP_STATUS={file}", f"CRIMP_REPORT={report}"], [calls, "160"]))
            rank = json.load(open(report))["per_rank"][0]
            if rank["calls"]:
                break
        last = open(file).read()
        expect(re.fullmatch(rf"crimp ended: {LINE}\n", last), f"the last status is {last!r}")
        expect(not re.search(LINE, said), "a status was printed, too")
        passed = sum(rank["passed_through"].values())
        expect(f", {rank['calls']} calls compressed, {passed} passed:" in last, f"{last!r} is not what the report has: {rank['calls']}, {passed}")
        known = rank["time"]["without_crimp"]
        known = known["measured" if known["measured"]["calls"] else "predicted"]
        saved = known["plain_s"] - known["own_s"]
        number, which = re.search(r"([0-9.]+) s (saved|lost)", last).groups()
        expect((which == "lost") == (saved < 0) and abs(float(number) - abs(saved)) <= 0.006 + 0.001 * abs(saved), f"{last!r}, and by the report {saved}")
        expect(os.listdir(scratch) and not [f for f in os.listdir(scratch) if f.startswith(".crimp")], "something temporary stays")
        shown = subprocess.run([tool, "status", file], capture_output=True, text=True)
        expect((shown.returncode, shown.stdout) == (0, last), f"crimp status: {shown}")
    elif case == "running":  # while the job waits for a late rank, by a name relative to MPI_Init's directory
        job = start(["CRIMP_CODEC=fp16", "CRIMP_ALGORITHM=allgather", "CRIMP_STATUS=job.status", "CRIMP_STALL_S=0"], [slow, "late", "4"])
        seen, until = set(), time.monotonic() + 60
        while job.poll() is None and time.monotonic() < until:
            if os.path.exists(file):
                seen.add(open(file).read())
            time.sleep(0.05)
        ended(job)
        expect(sum(bool(re.fullmatch(rf"crimp: {LINE}\n", text)) for text in seen) >= 2, f"seen while it ran: {seen}")
        expect(len([text for text in seen if text.startswith("crimp: ")]) <= 60, f"written more than some times a second: {len(seen)}")
        expect(all(re.fullmatch(rf"crimp( ended)?: {LINE}\n", text) for text in seen), f"a status is not whole: {seen}")
    elif case == "lines":  # no terminal: lines, the first one soon; none by default
        said = ended(start(["CRIMP_CODEC=fp16", "CRIMP_STATUS=1", "CRIMP_STALL_S=0"], [slow, "late", "4"]))
        expect(1 <= len(re.findall(rf"(?m)^crimp: {LINE}$", said)) <= 3, "a line or two were expected")
        expect("\x1b" not in said, "what is for terminals was written to a pipe")
        said = ended(start(["CRIMP_CODEC=fp16", "CRIMP_STALL_S=0"], [slow, "late", "4"]))
        expect(not re.search(LINE, said), "a status nobody asked for")
    elif case == "live":  # asked for where rank 0 cannot see the terminal
        said = ended(start(["CRIMP_CODEC=fp16", "CRIMP_STATUS=live", "CRIMP_STALL_S=0"], [slow, "late", "4"]))
        expect(len(re.findall(rf"\r\x1b\[K\x1b\[\?7lcrimp: {LINE}", said)) >= 3, "the line was not renewed")
        expect(re.search(r"\r\x1b\[Kcrimp: (\d+ calls|rank 0) compressed", said), "the last line does not make room for the summary")
    elif case == "refused":  # no failure to say something ends a job
        for name in ("missing/job.status", ".", report):
            said = ended(start(["CRIMP_CODEC=fp16", f"CRIMP_STATUS={name}", f"CRIMP_REPORT={report}"], [calls, "8"]))
            expect("crimp: CRIMP_STATUS: " in said, f"nothing is said of {name}")
        json.load(open(report))
        full = ended(start(["CRIMP_CODEC=fp16", "CRIMP_STATUS=/dev/full"], [slow, "late", "3"]))
        expect(full.count("crimp: CRIMP_STATUS: ") == 1, "a full device is told of once")
    elif case == "passes":  # nothing compressed, one rank, off because of a setting
        for settings, ranks in ((["CRIMP_STATUS=job.status"], 2), (["CRIMP_STATUS=job.status", "CRIMP_CODEC=fp16"], 1),
                                (["CRIMP_STATUS=job.status", "CRIMP_CHUNK=1"], 2)):
            ended(start(settings, [calls, "8"], ranks))
            last = open(file).read()
            expect(re.fullmatch(r"crimp ended: 0:\d\d, 0 calls compressed(, \d+ passed)?\n", last), f"{settings}: {last!r}")
    else:
        expect(False, f"there is no case {case}")
print("status.py: passed")
