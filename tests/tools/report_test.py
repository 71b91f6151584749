#!/usr/bin/env python3
"""What `crimp report` makes of made reports, by arithmetic: report_test.py CRIMP. Exit status: 0 passed, 1 failed."""
import copy, html.parser, json, os, resource, shlex, subprocess, sys, tempfile

from made_reports import base, bins, control, nasty, nasty_names, rank_part, sums, tensor, trace

crimp = os.path.abspath(sys.argv[1])
scratch = tempfile.TemporaryDirectory(prefix="crimp-report-")
os.chdir(scratch.name)
with open(crimp, "rb") as program:
    sanitized = b"libasan" in (elf := program.read()) or b"libtsan" in elf  # maps terabytes
env = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}


def run(*arguments, code=0):
    # Nothing that is read here needs so much; what reads without end ends.
    done = subprocess.run([crimp, "report", *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                          preexec_fn=None if sanitized else lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    said = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"exit {done.returncode} instead of {code}: crimp report {arguments}\n{said}"
    return said if code else done.stdout.decode()


def write(report, name="made.json"):
    with open(name, "w") as to:
        json.dump(report, to) if not isinstance(report, str) else to.write(report)
    return name


def digest(report):
    return json.loads(run(write(report), "--json"))[0]





def near(a, b):
    assert abs(a - b) <= 1e-9 * max(1.0, abs(b)), (a, b)


def changed(change):
    report = copy.deepcopy(base)
    change(report)
    return report


# Figures
d = digest(base)
assert d["job"]["started"] == "2023-11-14 22:13:20 UTC" and d["job"]["program"] == "train --big", d["job"]
near(d["job"]["elapsed_s"], 10.5)
assert [h["name"] for h in d["job"]["hosts"]] == ["one", "two"] and d["job"]["nodes"] == 2
b, t = d["saved"]["bytes"], d["saved"]["time"]
assert (b["in"], b["sent"], b["saved"], b["ratio"]) == (100_000_000, 10_000_000, 90_000_000, 10), b
near(t["took_s"], 4), near(t["measured"]["calls"], 15), near(t["measured"]["saved_s"], 12), near(t["predicted"]["saved_s"], 1.2)
near(t["unknown_calls"], 1), near(t["best"]["saved_s"], -0.1)
s = d["step"]
assert s["steps"] == 5 and s["wait_s"] is None and s["step_s"] is None, s  # 'big' came five times
near(s["total_s"], 0.8), near(s["encode_s"], 0.2), near(s["wire_s"], 0.4), near(s["decode_s"], 0.1), near(s["other_s"], 0.1), near(s["calls"], 4)
near(s["passed_calls"], 1)
assert t["known"] == "measured", t
assert [(c["from_bytes"], c["calls"], c["ratio"]) for c in d["sizes"]] == [(524288, 10, 10), (2097152, 10, 10)], d["sizes"]
assert [x["name"] for x in d["settings"]["changed"]] == ["CRIMP_CODEC"] and len(d["settings"]["others"]) == 2, d["settings"]
assert [(p["name"], p["calls"], p["share"]) for p in d["passed"]] == [("small", 5, 0.2)], d["passed"]
assert [x["name"] for x in d["tensors"]["listed"]] == ["big", "small"] and d["tensors"]["listed"][0]["ratio"] == 10
heat = d["heat"]
assert heat["width_s"] == 1 / 512 and heat["bins"] == 2 and [r["sent"] for r in heat["rows"]] == [[100, 300], [30, 40]], heat
assert heat["rows"][0]["in_calls"] == [512, 0] and heat["rows"][1]["in_calls"] == [512, 102], heat  # 1 ms of 1.953; 0.2 ms
near(heat["over_time"]["sent_bytes"][0], 65), near(heat["over_time"]["in_calls_s"][1], 0.0001)
assert d["plans"] is None and d["control"] is None and {m["section"] for m in d["missing"]} == {"wait", "plans", "control"}, d["missing"]

# Waiting, where a job separates it (CRIMP_SKEW), is beside a call's time; a 'wait_s' of a job that does not is none.
def waits(report, of_first=0.5, of_second=1.6):
    for rank, wait_s, late_s in zip(report["per_rank"], (of_first, of_second), (3.0, 0.1)):
        rank.update(wait_s=wait_s, skew={"calls": 20, "waited_s": wait_s, "late_s": late_s, "last": 1})
    report["timeline"][0]["bins"]["wait_us"] = [250, 0]
d = digest(changed(waits))
near(d["step"]["wait_s"], 0.21), near(d["step"]["wire_s"], 0.4), near(d["step"]["other_s"], 0.1)
assert d["heat"]["waits"] and d["heat"]["rows"][0]["wait"] == [128, 0] and "wait" not in {m["section"] for m in d["missing"]}
assert digest(changed(lambda r: [rank.update(wait_s=0.0) for rank in r["per_rank"]]))["step"]["wait_s"] is None
write(changed(waits))
assert "waiting for a late rank" in run("made.json") and "not separated" not in run("made.json")

# A report of before: neither timeline nor tensors nor job.
def older(report):
    for key in ("timeline", "job"):
        del report[key]
    del report["per_rank"][0]["tensors"]
d = digest(changed(older))
assert d["heat"] is None and d["tensors"] is None and d["step"] is None and d["job"]["elapsed_s"] is None
assert {m["section"] for m in d["missing"]} == {"heat", "tensors", "job", "step", "plans", "control"}, d["missing"]
assert all(m["why"] for m in d["missing"])
run("made.json", "-o", "old.html")

# Merge plans: the arithmetic is command.sh's. Three tensors of 1, 2 and 3 MB, ready after 1, 2 and 3 ms; a call takes 1 ms and 1 ns a byte.
def merged(cuts, holds=True, settled=False, codecs=()):
    def change(report):
        report["settings"]["CRIMP_MERGE"] = "auto"
        report["per_rank"][0]["horovod"] = {"merge": {"search": {"steps": 9, "trace": trace, "chosen": {"holds": holds, "cuts": cuts, "codecs": list(codecs)},
                                                                  "settled": settled, "tried": []}}}
    return changed(change)
plan = digest(merged([2]))["plans"][0]
assert [(c["tensors"], c["bytes"]) for c in plan["calls"]] == [(2, 3000000), (1, 3000000)] and "cuts=2" in plan["plan"], plan
for call, times in zip(plan["calls"], [(0.002, 0.002, 0.006), (0.003, 0.006, 0.010)]):
    for key, value in zip(("ready_s", "begin_s", "end_s"), times):
        near(call[key], value)
assert [(p["name"], p["groups"]) for p in plan["plans"]] == [("each alone", 3), ("all in one", 1), ("the optimum", 2)]
near(plan["plans"][2]["end_s"], 0.009)
assert plan["plans"][2]["setting"] == "CRIMP_MERGE=cuts=1"
# A program's own calls keep it from computing: 1 ms, call of 2, 1 ms, call of 3, 1 ms, call of 4.
plan = digest(changed(lambda r: r["per_rank"][0].update(steps=[{**trace, "stalls": True}])))["plans"][0]
for call, times in zip(plan["calls"], [(0.001, 0.003), (0.004, 0.007), (0.008, 0.012)]):
    near(call["begin_s"], times[0]), near(call["end_s"], times[1])

# Control
d = digest(changed(lambda r: r["per_rank"][0].update(control=control)))
assert d["control"][0]["classes"][0]["calls_at_level"] == [4, 5] and d["control"][0]["decisions"][0]["to"] == 1
assert "level 0 to 1, the network" in run("made.json")

# Advice: each rule fires on a report, and not on its neighbour.
def ids(report):
    return [a["id"] for a in digest(report)["advice"]]
def set_at(path, value):
    def change(report):
        *way, last = path
        of = report
        for key in way:
            of = of[key]
        of[last] = value
    return change
def both(key, value):
    def change(report):
        for rank in report["per_rank"]:
            rank[key] = value
    return change
def passes(why, calls):
    def change(report):
        for rank in report["per_rank"]:
            rank["passed_through"][why] = calls
    return change
def sizes(short_total, long_total):
    def change(report):
        for rank in report["per_rank"]:
            rank["size_classes"] = {"131072": sums(10, 2_000_000, 1, 0, short_total, 0, 2 * short_total), "2097152": sums(10, 48_000_000, 1, 0, long_total, 0, long_total)}
    return change
def parts(encode, wire, decode):
    def change(report):
        for rank in report["per_rank"]:
            rank.update(encode_s=encode, wire_s=wire, decode_s=decode)
    return change
def wires(of_first, of_second):
    def change(report):
        report["per_rank"][0]["wire_s"], report["per_rank"][1]["wire_s"] = of_first, of_second
    return change
def plain(took, would):
    return set_at(["time", "without_crimp", "measured"], {"calls": 30, "took_s": took, "plain_s": would})
def best(took, would):
    return set_at(["time", "best"], {"calls": 30, "took_s": took, "best_s": would})
def layouts(unknown):
    return both("layouts", {"named": sums(20 - unknown, 1, 1, 0, 0, 0, 1.0), "unknown": sums(unknown, 1, 1, 0, 0, 0, 1.0)})
def residuals(norms):
    return lambda r: r["per_rank"][0]["tensors"]["listed"].append(tensor("conv1", 10, 20, norms))
def ratio(report):
    parts(0.4, 2.2, 0.2)(report)
    for rank in report["per_rank"]:
        rank["sent_bytes"] = rank["bytes_in"] / 16
def strong(change):
    def both_changes(report):
        ratio(report), change(report)
    return both_changes
assert ids(base) == ["wire_bound"], digest(base)["advice"]  # 2 s of 4
assert ids(changed(ratio)) == ["fine"], ids(changed(ratio))
# Where plain MPI was never measured its prediction tells whether Crimp pays.
def predicted(took, would):
    return lambda r: (plain(0, 0)(r), set_at(["time", "without_crimp", "measured", "calls"], 0)(r),
                      set_at(["time", "without_crimp", "predicted"], {"calls": 30, "took_s": took, "plain_s": would})(r))
assert "does_not_pay" in ids(changed(predicted(6.0, 5.1))) and "does_not_pay" not in ids(changed(predicted(6.0, 5.3)))
assert "does_not_pay" not in ids(changed(lambda r: (predicted(6.0, 5.1)(r), wires(0.9, 2.7)(r))))  # calls have waited for a late rank
assert "predicted" in next(a for a in digest(changed(predicted(6.0, 5.1)))["advice"] if a["id"] == "does_not_pay")["figure"]
# Calls that MPI carried itself are measured, too: they say neither that Crimp pays nor that it does not.
def carried(measured_calls, predicted_calls):
    return changed(lambda r: (predicted(6.0, 5.1)(r), set_at(["time", "without_crimp", "measured"], {"calls": measured_calls, "took_s": 1.0, "own_s": 0.5, "plain_s": 0.5})(r),
                              set_at(["time", "without_crimp", "predicted", "calls"], predicted_calls)(r)))
for counts in (10, 30), (30, 10):
    assert digest(carried(*counts))["saved"]["time"]["known"] == "predicted" and "does_not_pay" in ids(carried(*counts)), counts
nothing = changed(lambda r: (set_at(["time", "without_crimp", "measured"], {"calls": 30, "took_s": 1.0, "plain_s": 1.0})(r), set_at(["time", "without_crimp", "predicted"], {"calls": 0})(r)))
assert digest(nothing)["saved"]["time"]["known"] is None
assert "15 calls took 500 ms a rank; MPI carried them itself" in run(write(nothing))
few = changed(lambda r: (predicted(6.0, 5.1)(r), plain(1.0, 3.0)(r), set_at(["time", "without_crimp", "measured", "calls"], 10)(r)))
assert digest(few)["saved"]["time"]["known"] == "predicted" and "does_not_pay" not in ids(few)  # 2 s saved, 0.9 s lost
# Which of the calls that passed came in the steps that are counted is not known where tensors become known late.
assert digest(changed(layouts(4)))["step"]["passed_calls"] is None and digest(changed(layouts(0)))["step"]["passed_calls"] is not None
run("made.json", "-o", "late.html")
# A part is no longer than its whole: 0.8 s in calls, the mean of all steps, of a median of 1 s, and of 12.5 ms.
for step_s, shown in ((1.0, True), (0.0125, False)):
    said = run(write(changed(lambda r: r["per_rank"][0].update(steps=[{**trace, "step_s": step_s, "steps": 5}]))))
    assert "A step (5 of them): " in said and (" in compressed calls of " in said) == shown, said
# Nothing was to be compressed.
none = changed(lambda r: (both("calls", 0)(r), passes("small", 0)(r), passes("off", 5)(r), set_at(["settings", "CRIMP_CODEC"], "none")(r), set_at(["status"], "no lossy codec chosen")(r), parts(0, 0, 0)(r), plain(0, 0)(r)))
fine = digest(none)["advice"][0]
assert fine["id"] == "fine" and fine["figure"].startswith("no call compressed") and "CRIMP_CODEC=none leaves" in fine["try"], fine
cases = {
    "off": (set_at(["status"], "switched off"), set_at(["status"], "on")),
    "failed": (set_at(["per_rank", 1, "errors"], 1), set_at(["per_rank", 1, "errors"], 0)),
    "no_memory": (passes("memory", 1), passes("memory", 0)),
    "does_not_pay": (plain(6.0, 5.1), plain(6.0, 5.3)),  # 0.9 of 8 s, and 0.7
    "tried": (best(6.0, 5.1), best(6.0, 5.3)),
    "wire_bound": (parts(0.4, 2.1, 0.2), parts(0.4, 1.9, 0.2)),
    "codec_bound": (parts(1.0, 1.0, 0.7), parts(1.0, 1.0, 0.5)),  # 1.7 and 1.5 of 4 s
    "late_rank": (wires(0.9, 2.7), wires(1.1, 2.5)),  # the mean is 1.8: 0.9 and 0.7 of 4 s more than the least
    "saving": (both("state", {"saving_s": 0.45}), both("state", {"saving_s": 0.35})),  # of 4 s a rank
    "short_calls": (sizes(0.75, 2.05), sizes(0.65, 2.15)),  # of 2.8 s encoding, on the wire and decoding; what else a call takes is measuring
    "better_plan": (lambda r: r.update(merged([2])), lambda r: r.update(merged([1]))),
    "unknown_tensors": (layouts(4), layouts(3)),
    "growing_residuals": (residuals([1, 5, 10, 15, 20]), residuals([1, 5, 15, 15, 20])),  # 20 is twice 10, and not of 15
    "out_of_range": (passes("range", 1), passes("range", 0.4)),
    "idle_rules": (both("rules", {"idle": ["fc*"], "first_tensor": "allreduce.fc1"}), both("rules", {"idle": [], "first_tensor": "allreduce.fc1"})),
    "no_gradient": (passes("no_gradient", 7), passes("no_gradient", 6)),  # of 32, of 31
    "nonblocking": (passes("nonblocking", 7), passes("nonblocking", 6)),
    "below_min_count": (passes("small", 7), passes("small", 6)),
    "excluded": (passes("rules", 9), passes("rules", 8)),  # of 34, of 33
    "in_device_memory": (both("device", {"passed_staged": 1, "through_host": {}}), both("device", {"passed_staged": 0, "through_host": {}})),
    "not_repeated": (both("replay", {"calls_missing": 1}), both("replay", {"calls_missing": 0})),
    "lost_notes": (set_at(["per_rank", 0, "unrecorded"], 2), set_at(["per_rank", 0, "unrecorded"], 0)),
}
for rule, (fires, does_not) in cases.items():
    keeps_wire = rule in ("wire_bound", "codec_bound", "late_rank")
    yes, no = changed(fires if keeps_wire else strong(fires)), changed(does_not if keeps_wire else strong(does_not))
    assert rule in ids(yes), (rule, ids(yes))
    assert rule not in ids(no), (rule, ids(no))
    advice = next(a for a in digest(yes)["advice"] if a["id"] == rule)
    assert advice["figure"] and advice["text"] and advice["try"] and 0 <= advice["share"] <= 1, advice
advice = next(a for a in digest(base)["advice"] if a["id"] == "wire_bound")  # what it has is not what it is told to try
assert "CRIMP_CODEC=3lc:s=1.9" in advice["try"] and advice["share"] == 0.5, advice
assert "CRIMP_CODEC=3lc " in digest(changed(set_at(["settings", "CRIMP_CODEC"], "fp16")))["advice"][0]["try"]
# What sums that do not block are on the wire for is not known, so that encoding and decoding are all there is of them.
def nonblocking(calls):
    def change(report):
        parts(1.0, 1.0, 0.7)(report)
        for rank in report["per_rank"]:
            rank["algorithms"]["allgather"]["why"] = {"tried": 20 - calls, "nonblocking": calls}
    return change
for calls, bound in ((3, True), (4, False)):
    assert ("codec_bound" in ids(changed(nonblocking(calls)))) == bound, calls
# The network is not what a late rank is waited for by the others; without names no codec that keeps residuals helps, and one that keeps none misses none.
assert "wire_bound" not in ids(changed(wires(0.9, 2.7))), ids(changed(wires(0.9, 2.7)))
assert "crimp_allreduce" in next(a for a in digest(changed(layouts(12)))["advice"] if a["id"] == "unknown_tensors")["try"]
assert "Name the tensors" in next(a for a in digest(changed(layouts(12)))["advice"] if a["id"] == "wire_bound")["try"]
def unknown_of_8bit(report):
    layouts(12)(report), set_at(["settings", "CRIMP_CODEC"], "8bit")(report)
assert "unknown_tensors" not in ids(changed(unknown_of_8bit)), ids(changed(unknown_of_8bit))
# What node_sum added up in memory was neither sent nor encoded: no network bounds it, and no name would change it.
def added(calls, wire, unknown, of_calls=20):
    def change(report):
        layouts(unknown)(report), parts(0.4, 2.1, 0.2)(report)
        for rank in report["per_rank"]:
            rank["algorithms"]["node_sum"] = {**sums(calls, 50_000_000 * calls / of_calls, 0, 0, wire, 0, 2.0), "why": {"tried": calls}}
    return change
assert ids(changed(added(20, 2.1, 20))) == ["fine"], digest(changed(added(20, 2.1, 20)))["advice"]
assert "unknown_tensors" in ids(changed(added(0, 0, 20))) and "wire_bound" in ids(changed(added(0, 0, 20)))
assert "wire_bound" in ids(changed(added(2, 0.1, 0))) and "wire_bound" not in ids(changed(added(2, 0.2, 0)))  # 2 s of 4, and 1.9
assert " at a ratio of 5.0" in next(a for a in digest(changed(added(10, 0.1, 0)))["advice"] if a["id"] == "wire_bound")["figure"]  # 25 MB, sent in 5
def found(rule, report):
    return next((a for a in digest(report)["advice"] if a["id"] == rule), {"figure": "", "try": "", "share": 0})
for calls, unknown, figure in ((8, 20, "12 of 20 "), (8, 18, "at least 10 of 20 "), (8, 12, "at least 4 of 20 "), (9, 12, "up to 11 of 20 "), (9, 4, "up to 4 of 20 "),
                               (9, 3, ""), (16, 12, "up to 4 of 20 "), (17, 12, "")):
    said = found("unknown_tensors", changed(added(calls, 0.1, unknown)))["figure"]
    assert said.startswith(figure) and bool(said) == bool(figure), (calls, unknown, said)
# Ten calls of names in memory, and ten without on the wire: which were which is not told, and all that were sent may be unknown.
def apart(unknown):
    def change(report):
        for rank in report["per_rank"]:
            rank.update(wire_s=2.6, layouts={"named": sums(20 - unknown, 1, 1, 0, 0, 0, 0.4), "unknown": sums(unknown, 1, 1, 0, 0, 0, 3.6)},
                        algorithms={"node_sum": sums(10, 1, 0, 0, 0.3, 0, 0.4), "allgather": sums(10, 1, 1, 1.0, 2.3, 0.5, 3.6)})
    return change
for unknown, names in ((10, True), (5, True), (4, False)):  # of the 10 that were sent
    assert ("Name the tensors" in found("wire_bound", changed(apart(unknown)))["try"]) == names, unknown
said = found("unknown_tensors", changed(apart(10)))
assert said["figure"].startswith("up to 10 of 20 compressed calls (50 %)"), said
near(said["share"], 0.9)
# Each rank has its own bounds: the first one's calls have names and stay in its node, the second's have none and are sent, for all the time that the first takes.
def by_ranks(wire, of_first=20):
    def change(report):
        first, second = report["per_rank"]
        layouts(20)(report), wires(40.0, wire)(report)
        first.update(total_s=44.0, calls=of_first, layouts={"named": sums(of_first, 1, 1, 0, 0, 0, 44.0)}, algorithms={"node_sum": sums(of_first, 1, 0, 0, 40.0, 0, 44.0)})
        second["layouts"]["unknown"]["total_s"] = 4.0
    return change
for of_first, figure in ((20, "10 of 20 "), (0, "10 of 10 "), (100, "")):  # the last: 10 of 60
    assert found("unknown_tensors", changed(by_ranks(2.1, of_first)))["figure"][:9] == figure[:9], of_first
    assert found("wire_bound", changed(by_ranks(2.1, of_first)))["figure"].startswith("2.10 s of 4.00 s "), of_first
    assert "wire_bound" not in ids(changed(by_ranks(1.9, of_first))), of_first
    assert "Name the tensors" in found("wire_bound", changed(by_ranks(2.1, of_first)))["try"], of_first
# One rank's bounds leave a doubt, 0 to 2 calls, the other's none: 12.
def doubt_of_one(report):
    added(0, 0, 12)(report)
    report["per_rank"][0]["algorithms"]["node_sum"] = sums(18, 1, 0, 0, 0.1, 0, 2.0)
assert found("unknown_tensors", changed(doubt_of_one))["figure"].startswith("at least 6 of 20 "), found("unknown_tensors", changed(doubt_of_one))
# Waiting for a late rank is in the time as well, of those alone that send: 2.1 s of 4 and of 4.4.
for wait_s, fires in ((0.1, True), (0.4, False)):
    assert ("wire_bound" in ids(changed(lambda r: (by_ranks(2.1)(r), waits(r, 30.0, wait_s))))) == fires, wait_s
# A rule for a tensor is in front of the job's own, and its pattern matches the name.
def bracketed(report):
    residuals([1, 5, 10, 15, 20])(report)
    report["per_rank"][0]["tensors"]["listed"][-1]["name"] = "layers[0].weight"
assert "CRIMP_RULES='layers?0?.weight=8bit:memory=residual; " in next(a for a in digest(changed(bracketed))["advice"] if a["id"] == "growing_residuals")["try"]
# A line to copy is one that a shell takes for what it says, whatever tensors are called.
def evil(report):
    residuals([1, 5, 10, 15, 20])(report)
    report["per_rank"][0]["tensors"]["listed"][-1]["name"] = "layer'$(touch pwned)'.w"
said = next(a for a in digest(changed(evil))["advice"] if a["id"] == "growing_residuals")["try"]
words = shlex.split(said[said.index("CRIMP_RULES="): said.rindex(", instead of")])
assert len(words) == 1 and words[0].startswith("CRIMP_RULES=layer'$(touch?pwned)'.w=8bit:memory=residual; "), words
def chosen_off(report):
    set_at(["status"], "no lossy codec chosen")(report), set_at(["settings", "CRIMP_CODEC"], "none")(report)
assert "off" not in ids(changed(chosen_off)), ids(changed(chosen_off))
assert "CRIMP_LADDER" in digest(changed(set_at(["settings", "CRIMP_CONTROL"], "delay")))["advice"][0]["try"]
def uncaught(report):
    for rank in report["per_rank"]:
        rank.update(sums(0, 0, 0, 0, 0, 0, 0), passed_through={"small": 0})
assert "nothing_caught" in ids(changed(uncaught))
def all_passed(report):
    uncaught(report)
    for rank in report["per_rank"]:
        rank["passed_through"] = {"type": 50, "small": 2}
assert ids(changed(all_passed))[0] == "nothing_compressed", ids(changed(all_passed))
assert "'type'" in digest(changed(all_passed))["advice"][0]["figure"], digest(changed(all_passed))["advice"]
# With waiting separated the rule is about that, and names who is waited for.
advice = {a["id"]: a for a in digest(changed(waits))["advice"]}
assert "3.00 s for rank 0" in advice["late_rank"]["figure"], advice
near(advice["late_rank"]["share"], 1.05 / 5.05)
assert "late_rank" not in ids(changed(lambda r: waits(r, 0.7, 0.8)))
# Ranked: by level, then by share.
levels = [("low", "medium", "high").index(a["level"]) for a in digest(changed(lambda r: (parts(0.9, 2.1, 0.8)(r), set_at(["per_rank", 1, "errors"], 1)(r), passes("small", 30)(r))))["advice"]]
assert levels == sorted(levels, reverse=True) and len(levels) >= 4, levels

# The page: well formed, whatever tensors, codecs, files and programs are called; nothing from outside.
class Page(html.parser.HTMLParser):
    void = {"meta", "link", "br"}
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.data = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open, self.open
    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.void:
            self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)
    def handle_data(self, text):
        if self.open[-1:] == ["script"] and self.tags[-1][1].get("id") == "data":
            self.data += text
for damaged in ("<p>", "<b><i></b></i>", "</p>"):  # the check can fail
    try:
        Page(damaged)
    except AssertionError:
        continue
    sys.exit(f"not noticed: {damaged}")
write(changed(nasty_names), "<b>&.json")
run("<b>&.json", "-o", "page.html")
with open("page.html") as stream:
    text = stream.read()
page = Page(text)
assert [t for t, _ in page.tags].count("script") == 2 and "alert(1)</script>" not in text
assert "<" not in page.data and "&" not in page.data  # HTML's parser sees nothing in it
inside = json.loads(page.data)
assert inside[0]["tensors"]["listed"][0]["name"] == nasty and inside[0]["job"]["program"] == nasty and inside[0]["file"] == "<b>&.json"
for _, attributes in page.tags:
    assert not attributes.get("src") and attributes.get("href", "data:,").startswith("data:"), attributes
assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", ""), "an address"
# Of what is foreign nothing is the terminal's to obey: neither in what is shown nor in what is said of a damaged report, control characters of eight bits included.
for code in ("\x1b", "\x7f", "\x9b", "\x85"):
    assert code not in run(write(changed(lambda r: r["job"].update(program=f"{code}[31mred"))))
    for change in (lambda r: r["settings"].update({f"CRIMP_{code}[31m": 5}), lambda r: r["per_rank"][0]["size_classes"].update({f"{code}[31m": {}}),
                   lambda r: r["per_rank"][0]["passed_through"].update({f"{code}[31m": "x"})):
        said = run(write(changed(change)), code=2)
        assert code not in said and "?[31m" in said, repr(said)
assert "caf\u00e9" in run(write(changed(lambda r: r["job"].update(program="caf\u00e9"))))
# What is nested without end takes the stack of whoever copies it.
deep = 300_000 * "[" + 300_000 * "]"
for change in (lambda r: r["per_rank"][0].update(steps=["@"]), lambda r: r["per_rank"][0].update(control="@"), lambda r: r.update(timeline=["@"])):
    assert "'made.json' is no report" in run(write(json.dumps(changed(change)).replace('"@"', deep)), code=2)
# What never ends is not read to its end.
if os.path.exists("/dev/zero"):
    assert "'/dev/zero' cannot be read: it is a device" in run("/dev/zero", code=2)
    with open("endless.json", "w") as sparse:
        sparse.truncate((1 << 30) + 1)
    assert "'endless.json' cannot be read: it has more than 1 GiB" in run("endless.json", code=2)
    os.remove("endless.json")

# Side by side
write(base, "a.json"), write(changed(waits), "b.json")
both_digests = json.loads(run("a.json", "b.json", "--json"))
assert [x["file"] for x in both_digests] == ["a.json", "b.json"]
text = run("a.json", "b.json")
assert "Side by side" in text and text.count("What to try next") == 2 and "Side by side" not in run("a.json")
assert run("a.json", "b.json", "-o", "two.html") == ""
with open("two.html") as stream:
    assert len(json.loads(Page(stream.read()).data)) == 2
assert "What to try next" in run("a.json", "-o", "one.html", "--text")

# Large: 1024 ranks, 10000 tensors. A page of at most 3 MB, which says what it leaves out.
def large(report):
    rank, line = copy.deepcopy(report["per_rank"][1]), bins(1 / 1024, in_calls_us=[(7 * i) % 900 for i in range(256)], sent_bytes=[10 ** 6 + i for i in range(256)])
    report["per_rank"] += [rank] * 1022
    report["timeline"] = [line] * 1024
    report["per_rank"][0]["tensors"] = {"unlisted_calls": 17, "listed": [tensor(f"layer.{i}.weight", 10 + i, 5, [1.0] * 30) for i in range(10000)]}
    report["job"]["hosts"] = {f"host{i}": 8 for i in range(128)}
d = digest(changed(large))
assert len(d["tensors"]["listed"]) == 200 and d["tensors"]["left_out"] == 9800 and d["tensors"]["listed"][0]["name"] == "layer.9999.weight"
assert len(d["heat"]["rows"]) == 64 and d["heat"]["rows"][1]["from"] == 16 and d["heat"]["rows"][1]["to"] == 31 and len(d["job"]["hosts"]) == 64
assert d["heat"]["rows"][0]["sent"][5] == 10 ** 6 + 5 and len(d["ranks"]["rows"]) == 64
run("made.json", "-o", "large.html")
assert os.path.getsize("large.html") < 3_000_000, os.path.getsize("large.html")

# A search that is over has measured its plans; the timeline only predicts them.
for settled in (False, True):
    assert ("better_plan" in ids(merged([], holds=False, settled=settled))) != settled

# What is no report, or a damaged one, is an error that names the file.
assert "needs a file" in run(code=2)
assert "'nowhere.json' cannot be read" in run("nowhere.json", code=2)
for text in ("", "[1, 2", "[]", "7", '{"per_rank": 3}', "{}", "\xff\xfe"):
    assert "'made.json' is no report" in run(write(text), code=2), text
for change, what in [(set_at(["per_rank"], []), "no ranks"), (set_at(["per_rank", 0, "calls"], "many"), "'calls' that is no number"),
                     (set_at(["per_rank", 0], 5), "no object"), (set_at(["timeline", 0, "bins", "width_s"], 0.3), "bins are none"),
                     (set_at(["timeline", 0, "bins", "bins"], 1e9), "bins are none"), (set_at(["timeline", 0, "bins", "calls"], [1] * 300), "more values than bins"),
                     (set_at(["timeline", 0, "bins", "calls"], ["x"]), "no number"), (set_at(["per_rank", 0, "size_classes"], {"big": {}}), "'big'"),
                     (set_at(["settings"], []), "'settings' that is no object"), (set_at(["per_rank", 0, "tensors"], {"listed": [3]}), "damaged"),
                     (set_at(["per_rank", 0, "steps"], [{"tensors": []}]), "trace that lacks"), (set_at(["status"], 5), "'status' that is no text")]:
    said = run(write(changed(change)), code=2)
    assert "'made.json' is damaged" in said and what in said, said
for cuts, codecs, what in (([1, 2], [1], "as many codecs as groups"), ([2, 1], [], "cuts do not rise"), ([9], [], "beyond its tensors")):
    said = run(write(merged(cuts, codecs=codecs)), code=2)
    assert "'made.json' is damaged" in said and what in said, said
for path in (["per_rank", 0, "total_s"], ["time", "took_s"], ["per_rank", 0, "wait_s"]):  # NaN is null in JSON
    run(write(changed(set_at(path, None))), "-o", "null.html")
run(write(changed(lambda r: [rank.clear() for rank in r["per_rank"]])), "-o", "empty.html")
run(write(changed(lambda r: r.update(per_rank=[{"error": "this rank could not make its part of the report"}] * 2))))
assert "is the report 'a.json' itself" in run("a.json", "-o", "./a.json", code=2)
assert json.load(open("a.json")) == base
assert "No such file" in run("a.json", "-o", "no/such/folder/page.html", code=1)
assert "1 to 8" in run(*["a.json"] * 9, code=2)
assert "give one of them" in run("a.json", "--json", "--text", code=2)
if os.path.exists("/dev/full"):
    with open("/dev/full", "w") as full:
        assert subprocess.run([crimp, "report", "a.json"], env=env, stdout=full, stderr=subprocess.DEVNULL).returncode == 1
print("report_test.py: passed")
