#!/usr/bin/env python3
"""Traces and the skew table of a job in which one rank sleeps before its calls: late.py CASE RANKS MPI PRELOADS PROGRAM CRIMP.
Exit status: 0 passed, 77 skipped, 1 failed."""
import collections, json, os, re, shutil, subprocess, sys, tempfile

case, ranks, mpi, library, program, tool = sys.argv[1:]
ranks, LATE, MS, CALLS = int(ranks), int(ranks) - 1, 100, 12
APART_S = 1000  # of clocks, in case `clocks`


def end(status, text):
    print(f"late.py: {text}", flush=True)
    sys.exit(status)


def expect(condition, text):
    if not condition:
        end(1, text)


launcher = next(filter(shutil.which, {"openmpi": ["mpirun.openmpi", "mpirun"], "mpich": ["mpiexec.mpich", "mpiexec.hydra"]}[mpi]), None)
if not launcher:
    end(77, f"skipped: no launcher of {mpi}")
apart = ["unshare", "-T", "--monotonic", str(APART_S)]
if case == "clocks" and subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
    end(77, "skipped: no process may have another clock here (unshare -T)")
scratch = tempfile.TemporaryDirectory(prefix="crimp-late-")
report_file, trace_file = (os.path.join(scratch.name, name) for name in ("report.json", "trace.json"))


def job(arguments=(), **settings):
    """The program's output, the report, the trace."""
    settings = {"CRIMP_CODEC": "fp16", "CRIMP_ALGORITHM": "allgather", "CRIMP_REPORT": report_file, "CRIMP_TRACE": trace_file, "LD_PRELOAD": library, **settings}
    line = [launcher]
    if mpi == "openmpi":
        line += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--timeout", "120", *["--allow-run-as-root"] * (os.geteuid() == 0)]
    for rank in range(ranks):
        line += [":"] * (rank > 0) + ["-n", "1"]
        for name, value in settings.items():
            line += ["-x", f"{name}={value}"] if mpi == "openmpi" else ["-env", name, value]
        line += [*(apart if case == "clocks" and rank == LATE else []), program, str(LATE), str(MS), str(CALLS), *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")} | {"MPIEXEC_TIMEOUT": "120"}
    done = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
    print(done.stdout, flush=True)
    expect(done.returncode == 0, f"the job ended with status {done.returncode}")
    with open(report_file) as report, open(trace_file) as trace:
        return done.stdout, json.load(report), json.load(trace)


def crimp_trace(*arguments):
    done = subprocess.run([tool, "trace", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done.returncode == 0, f"crimp trace ended with {done.returncode}: {done.stdout}")
    return done.stdout


def nested(events):
    """By the format's rules: spans of a track follow one another or lie within one another."""
    begins, open_spans = collections.defaultdict(float), collections.defaultdict(list)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    asynchronous = {}
    for e in events:
        if e["ph"] in "be":
            known = asynchronous.setdefault((e["pid"], e["id2"]["local"]), [])
            known.append(e)
        if e["ph"] != "X":
            continue
        track = e["pid"], e["tid"]
        begin, stop = round(1000 * e["ts"]), round(1000 * e["ts"]) + round(1000 * e["dur"])
        expect(track in names and begin >= begins[track] and stop >= begin, f"out of order or in no track: {e}")
        begins[track] = begin
        spans = open_spans[track]
        while spans and spans[-1] <= begin:
            spans.pop()
        expect(not spans or stop <= spans[-1], f"overlaps another span of {names[track]}: {e}")
        spans.append(stop)
    for pair in asynchronous.values():
        expect([e["ph"] for e in pair] == ["b", "e"] and pair[0]["ts"] <= pair[1]["ts"], f"no begin and end: {pair}")
    return names, asynchronous


def of(events, rank, kind):
    return [e for e in events if e["ph"] == "X" and e["pid"] == rank + 1 and e["cat"] == kind]


def clocks(events):
    found = {e["args"]["rank"]: e["args"]["clock"] for e in events if e["name"] == "crimp_rank"}
    expect(sorted(found) == list(range(ranks)), f"clocks of {sorted(found)}")
    for rank, clock in found.items():
        truth = -1e6 * APART_S if case == "clocks" and rank == LATE else 0  # one host, so one clock
        # Namespaces are set to the microsecond at best, by a program.
        expect(abs(clock["offset_us"] - truth) <= clock["uncertainty_us"] + 1, f"rank {rank}'s clock is {clock}, and truly {truth}")
        expect(clock["uncertainty_us"] < 1e5, f"rank {rank}'s clock is hardly known: {clock}")
    return found


def meetings(events, uncertainty):
    """No rank leaves a meeting before all have come to it."""
    by_call = collections.defaultdict(list)
    for rank in range(ranks):
        for e in of(events, rank, "wait"):
            by_call[e["args"]["communicator"], e["args"]["call"]].append(e)
    expect(len(by_call) == CALLS, f"{len(by_call)} meetings of {CALLS} calls")
    for key, waits in by_call.items():
        expect(len(waits) == ranks, f"{len(waits)} of {ranks} ranks met for {key}")
        left, came = min(e["ts"] + e["dur"] for e in waits), max(e["ts"] for e in waits)
        expect(left >= came - 2 * uncertainty, f"a rank left the meeting for {key} {came - left} us before the last came")


def skew(rows, slept, others):
    expect(max(rows, key=lambda row: row["late_s"])["rank"] == LATE, f"another rank than {LATE} is named: {rows}")
    for row in rows:
        if row["rank"] == LATE:
            expect(row["late_s"] >= 0.5 * others * slept and row["waited_s"] <= 0.5 * slept, f"late by {slept} s: {row}")
            expect(row["last"] >= CALLS // 2, f"the late one was not last: {row}")
        else:
            expect(row["waited_s"] >= 0.5 * slept, f"another slept {slept} s: {row}")


output, report, trace = job(["nonblocking"] if case == "nonblocking" else [], CRIMP_SKEW="1" if case in ("skew", "clocks") else "0",
                            **({"CRIMP_MIN_COUNT": "50000"} if case == "passes" else {}))
slept = float(re.search(rf"slept {LATE} ([0-9.]+)", output)[1])
events = trace["traceEvents"]
names, asynchronous = nested(events)
uncertainty = max(clock["uncertainty_us"] for clock in clocks(events).values())
expect(trace["otherData"]["settings"]["CRIMP_CODEC"] == "fp16" and trace["otherData"]["ranks"] == ranks, f"head {trace['otherData']}")
for rank in range(ranks):
    name = next(e["args"]["name"] for e in events if e["name"] == "process_name" and e["pid"] == rank + 1)
    expect(re.fullmatch(rf"rank {rank} on \S+", name), f"rank {rank} is called {name}")
summary = json.loads(crimp_trace(trace_file, "--json"))
print(crimp_trace(trace_file), flush=True)
expect(summary["ranks"] == ranks and len(summary["per_rank"]) == ranks, f"summary {summary}")

if case in ("skew", "clocks"):
    skew(report["skew"]["per_rank"], slept, ranks - 1)
    skew(summary["skew"]["per_rank"], slept, ranks - 1)
    expect(summary["skew"]["measured"], "the summary takes it for an estimate")
    meetings(events, uncertainty)
    for rank, row in enumerate(report["per_rank"]):
        expect(row["wire_s"] < 0.5 * slept, f"rank {rank} waited {row['wire_s']} s for the network, which has no sleep in it")
        expect(row["calls"] == CALLS and report["skew"]["per_rank"][rank]["calls"] == CALLS, f"rank {rank} has other calls")
        for table in ("codecs", "algorithms", "layouts", "size_classes"):
            total = sum(one["wait_s"] for one in row[table].values())
            expect(abs(total - row["wait_s"]) < 1e-6, f"rank {rank}: {table} wait {total} s of {row['wait_s']}")
        expect(abs(row["wait_s"] - report["skew"]["per_rank"][rank]["waited_s"]) < 1e-6, f"rank {rank} waited otherwise: {row['wait_s']}")
    expect(re.search(r"and before that waiting [0-9.]+ s for ranks that came later", output), "the summary does not say what was waited")
    expect(f"The others waited longest for rank {LATE} " in crimp_trace(trace_file), "crimp trace does not name the late rank")
elif case == "plain":
    # Without the meeting the same time is in the wire's, and the late rank is known by when calls began.
    expect("skew" not in report and not summary["skew"]["measured"], "there was no meeting, and yet it is said")
    for rank, row in enumerate(report["per_rank"]):
        expect(rank == LATE or row["wire_s"] >= 0.5 * slept, f"rank {rank} waited {row['wire_s']} s only")
        expect("wait_s" not in row, f"rank {rank} has waits")
    skew(summary["skew"]["per_rank"], slept, ranks - 1)
    expect("estimated" in crimp_trace(trace_file), "an estimate is not called one")
    for rank in range(ranks):
        calls = of(events, rank, "calls")
        expect(len(calls) == CALLS, f"rank {rank} has {len(calls)} calls")
        expect([c["args"]["call"] for c in calls] == list(range(CALLS)), "calls have other numbers")
        expect({c["name"] for c in calls[:2]} == {"40000 x float32", "60000 x float32"}, f"calls are named {calls[0]['name']}")
        expect(calls[0]["args"]["codec"].startswith("fp16") and calls[0]["args"]["algorithm"] == "allgather" and calls[0]["args"]["ratio"] > 1.9, f"call {calls[0]}")
        for track in ("encode", "wire", "under way", "decode"):
            expect(of(events, rank, track), f"rank {rank} has no {track}")
        sent = [e["args"]["bytes"] for e in events if e["name"] == "bytes sent" and e["pid"] == rank + 1]
        expect(sent == sorted(sent) and sent[-1] == report["per_rank"][rank]["sent_bytes"], f"rank {rank} sent {sent}")
    both = crimp_trace(trace_file, trace_file)
    expect(re.search(r"^encode \[ms\] .* \+0 %$", both, re.MULTILINE), f"compared with itself: {both}")
elif case == "passes":
    for rank in range(ranks):
        passed = of(events, rank, "passed to MPI")
        expect(len(passed) == CALLS // 2 and {e["args"]["elements"] for e in passed} == {40000}, f"rank {rank} passed {passed}")
        expect(passed[0]["name"] == "fewer elements than CRIMP_MIN_COUNT", f"passed for {passed[0]['name']}")
    expect(all(row["passed"] == CALLS // 2 for row in summary["per_rank"]), f"summary {summary['per_rank']}")
elif case == "nonblocking":
    expect(len(asynchronous) == 2 * CALLS * ranks, f"{len(asynchronous)} sums of {2 * CALLS * ranks}")
    for rank in range(ranks):
        expect(len(of(events, rank, "encode")) >= 2 * CALLS and len(of(events, rank, "decode")) >= 2 * CALLS, f"rank {rank} lacks spans")
        # Of the others' waiting for the late one the trace alone knows: two sums wait at a time.
        row, bins = report["per_rank"][rank], report["timeline"][rank]["bins"]
        binned = sum(bins["in_calls_us"]) / 1e6
        expect(row["total_s"] < 0.5 * slept and binned < 0.5 * slept, f"rank {rank} was in calls for {row['total_s']} s, by the timeline {binned} s")
        expect(row["total_s"] >= row["encode_s"] + row["decode_s"] and bins["encode_us"] and bins["decode_us"], f"rank {rank} encodes and decodes elsewhere: {row}")
    _, _, trace = job(["nonblocking"], CRIMP_PROGRESS="thread", CRIMP_SKEW="1")
    names, asynchronous = nested(trace["traceEvents"])
    expect(len(asynchronous) == 2 * CALLS * ranks, f"{len(asynchronous)} sums of {2 * CALLS * ranks} that a thread carries")
    summary = json.loads(crimp_trace(trace_file, "--json"))
    expect(all(row["calls"] == 2 * CALLS for row in summary["per_rank"]), f"counted twice: {summary['per_rank']}")
else:
    end(1, f"no such case: {case}")
end(0, "passed")
