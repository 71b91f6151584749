#!/usr/bin/env python3
"""A job whose decisions go by clocks, and jobs that repeat it under other clocks: replay.py CASE RANKS LIBCRIMP LIBSLOW PROGRAM.
Exit status: 0 passed, 77 skipped, 1 failed."""
import copy, json, os, re, shutil, signal, subprocess, sys, tempfile

case, ranks, crimp, slow, program = sys.argv[1:]
ranks = int(ranks)
TIMEOUT = 90
clean = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
scratch = tempfile.mkdtemp(prefix="crimp-replay-")
at = lambda name: os.path.join(scratch, name)
OF_UNNAMED = "CRIMP_REPLAY: which tensors those calls bring that name none is found by their values, and by which buffers come again: they repeat where buffers do (docs/determinism.md)"
ADAPTIVE = {
    "auto": dict(CRIMP_CODEC="3lc", CRIMP_QUALITY="any"),
    "control": dict(CRIMP_CODEC="fp16:memory=residual", CRIMP_CONTROL="delay", CRIMP_DELAY_TARGET="1us", CRIMP_GAIN_FLOOR="0"),
    "nodes": dict(CRIMP_CODEC="3lc", CRIMP_ALGORITHM="hierarchical", CRIMP_NODE_SIZE="2"),
}


def fail(text):
    print(f"replay.py: {text}")
    sys.exit(1)


def expect(condition, text):
    if not condition:
        fail(text)


def job(seed, settings, steps=60, of_rank={}, arguments=()):
    """Every rank's digest of all its results, and what was said."""
    if not shutil.which("mpirun"):
        print("replay.py: skipped: no mpirun")
        sys.exit(77)
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    for rank in range(ranks):
        own = {"LD_PRELOAD": f"{crimp}:{slow}", "SLOW": str(seed), **settings, **of_rank.get(rank, {})}
        line += [":"] * (rank > 0) + ["-n", "1"] + [word for name, value in own.items() for word in ("-x", f"{name}={value}")] + [program, str(steps), *arguments]
    process = subprocess.Popen(line, env=clean, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        fail(f"the job hung: ended after {TIMEOUT} s")
    print(said, flush=True)
    expect(process.returncode == 0, f"the job ended with status {process.returncode}")
    digests = dict(re.findall(r"digest (\d+) ([0-9a-f]{16})", said))
    expect(len(digests) == ranks, f"{len(digests)} of {ranks} ranks said their digest")
    return digests, said


def report(name):
    with open(at(name)) as file:
        return json.load(file)


def write(name, what):
    with open(at(name), "w") as file:
        file.write(what if isinstance(what, str) else json.dumps(what))
    return name


def decisions(of):
    return [rank["decisions"] for rank in of["per_rank"]]


def runs(of):
    """All changes of all kinds of calls, and of all classes."""
    return [run for rank in decisions(of) for one in rank for kind in one["kinds"] + one["levels"] for run in kind["from"]]


def other_algorithm(of):
    """The same decisions, but for one call in the middle of the job."""
    changed = copy.deepcopy(of)
    of_world = [one for one in changed["per_rank"][0]["decisions"] if one["ranks"] == f"0-{ranks - 1}" and one["number"] == 0][0]
    kind = max(of_world["kinds"], key=lambda k: (k["calls"], k["kind"]))
    run = [run for run in kind["from"] if "parts" in run][0]
    part = run["parts"][0]
    part["nodes"] = False
    part["algorithm"] = "allgather" if part["algorithm"] == "two_shot" else "two_shot"
    return changed


def other_levels(of, level=6):
    changed = copy.deepcopy(of)
    for one in changed["per_rank"][0]["decisions"]:
        for levels in one["levels"]:
            levels["from"] = [{"call": 1, "level": level}]
    return changed


def repeats(settings):
    first, _ = job(1, {**settings, "CRIMP_REPORT": "first.json"})
    of = report("first.json")
    kinds = {run.get("passes") or str(run.get("level", [part["algorithm"] for part in run.get("parts", [])])) for run in runs(of)}
    print(f"replay.py: {len(runs(of))} changes, of {sorted(kinds)}")
    expect(len(kinds) > 1 or case == "nodes", "nothing was decided that could differ")
    if case == "control":
        expect(any(len(levels["from"]) > 2 for one in decisions(of)[0] for levels in one["levels"]), "levels did not change")
    if case == "nodes":
        expect(any(part["nodes"] for run in runs(of) for part in run.get("parts", [])), "there were no nodes")
        settings = {**settings, "CRIMP_ALGORITHM": "auto"}
    for seed, file, own in ((2, "first.json", "second.json"), (3, "second.json", "third.json")):
        again, said = job(seed, {**settings, "CRIMP_REPLAY": file, "CRIMP_REPORT": own})
        expect(again == first, f"with {file} other results: {again}, not {first}")
        expect(decisions(report(own)) == decisions(of), f"{own} has other decisions than {file}")
        expect(said.count(OF_UNNAMED) >= 1, "nothing was said of calls that name no tensors")
        expect("CRIMP_REPLAY" not in said.replace(OF_UNNAMED, ""), "something else was said of CRIMP_REPLAY")
        for rank in report(own)["per_rank"]:
            expect(rank["replay"]["calls"] > 200 and rank["replay"]["calls_missing"] + rank["replay"]["calls_beyond"] == 0, f"a rank counts {rank['replay']}")
    # What shows that the comparison can fail.
    changed, _ = job(4, {**settings, "CRIMP_REPLAY": write("changed.json", (other_levels if case == "control" else other_algorithm)(of))})
    expect(all(changed[rank] != first[rank] for rank in first), "other decisions, and the same results")
    if case == "control":
        _, said = job(4, {**settings, "CRIMP_REPLAY": write("beyond.json", other_levels(of, 60000)), "CRIMP_REPORT": "fourth.json"})
        expect(said.count("of which the record has no level of CRIMP_LADDER") == 1, "it was not said once that there is no such level")
        for rank in report("fourth.json")["per_rank"]:
            expect(rank["replay"]["calls_missing"] > 100, f"calls of no level count as repeated: {rank['replay']}")
    free, _ = job(5, {**settings})
    print(f"replay.py: without a replay the results are {'the same' if free == first else 'others'}")


def passes_unseen(settings):
    """Calls of an unnamed tensor that pass without a look at their values stay in step with those that do not."""
    job(1, {**settings, "CRIMP_REPORT": "first.json"})
    of = report("first.json")
    edited = 0
    for kind in of["per_rank"][0]["decisions"][0]["kinds"]:
        if re.match("float32 x (30000: 3lc|60000)", kind["kind"]):
            edited += 1
            slower = [{"call": call, "passes": "slower", "unseen": unseen} for call, unseen in ((10, False), (12, True), (20, False), (21, True), (31, False))]
            taken = [run for run in kind["from"] if "parts" in run][0]["parts"]
            runs = [run for run in kind["from"] if run["call"] < 10] + slower + [{"call": 32, "parts": taken}]
            # As a job writes it: MPI may have been tried in the ninth call, and the tenth is then no change.
            same = lambda a, b: {**a, "call": 0} == {**b, "call": 0}
            kind["from"] = runs[:1] + [run for before, run in zip(runs, runs[1:]) if not same(before, run)]
    expect(edited == 2, f"{edited} kinds of calls, not a named and an unnamed one")
    write("passing.json", of)
    second, said = job(2, {**settings, "CRIMP_REPLAY": "passing.json", "CRIMP_REPORT": "second.json"})
    expect(decisions(report("second.json")) == decisions(of), "second.json has other decisions than passing.json")
    # Of all kinds, as MPI may have been tried in calls before the tenth; 22 of either edited kind.
    passed = 0
    for one in of["per_rank"][0]["decisions"]:
        for kind in one["kinds"]:
            ends = [run["call"] for run in kind["from"][1:]] + [kind["calls"] + 1]
            passing = sum(end - run["call"] for run, end in zip(kind["from"], ends) if run.get("passes") == "slower")
            expect(passing >= 22 or not re.match("float32 x (30000: 3lc|60000)", kind["kind"]), f"{passing} calls pass of {kind['kind']}")
            passed += passing
    expect(f"passed through: {passed} plain MPI faster, or tried" in said, f"not {passed} calls passed")
    third, _ = job(3, {**settings, "CRIMP_REPLAY": "second.json"})
    expect(second == third, f"other results: {third}, not {second}")


def in_halves(settings):
    """Calls that go in 16 bits in place of their codec, and back: near the sum, no residual is lost, and repeated to the bit."""
    job(1, {**settings, "CRIMP_REPORT": "first.json"})
    of = report("first.json")
    edited = {}
    for rank in of["per_rank"]:
        for one in rank["decisions"]:
            for kind in one["kinds"]:
                if not re.match(r"float32 x (60000|30000|20000|25000): 3lc[^+]*$", kind["kind"]):  # of 130000 a tenth is summed exactly
                    continue
                edited[kind["kind"]] = kind["calls"]
                part = {"algorithm": "two_shot", "nodes": False, "chunk": 0, "radix": 1}
                kind["from"] = [{"call": call, "parts": [{**part, "halves": True} if halves else part]} for call, halves in ((1, False), (5, True), (20, False), (30, True))]
                kind["from"] = [run for run in kind["from"] if run["call"] <= kind["calls"]]
    expect(len(edited) >= 4, f"edited are {edited}")
    write("halves.json", of)
    second, _ = job(2, {**settings, "CRIMP_REPLAY": "halves.json", "CRIMP_REPORT": "second.json"})
    expect(decisions(report("second.json")) == decisions(of), "second.json has other decisions than halves.json")
    codecs = report("second.json")["per_rank"][0]["codecs"]
    in_16_bits = [codec for codec in codecs if codec.startswith("fp16:memory=residual")]
    expect(len(in_16_bits) == 1 and codecs[in_16_bits[0]]["calls"] > 150, f"{codecs}")
    third, _ = job(3, {**settings, "CRIMP_REPLAY": "second.json"})
    expect(second == third, f"other results: {third}, not {second}")
    # From where 16 bits carry the calls on nothing is missing but what they round away, nor of what the codec left before.
    for first_call in (1, 5):
        always = copy.deepcopy(of)
        for kind in (kind for rank in always["per_rank"] for one in rank["decisions"] for kind in one["kinds"] if kind["kind"] in edited):
            part = kind["from"][0]["parts"][0]
            kind["from"] = [{"call": 1, "parts": [part]}] * (first_call > 1) + [{"call": first_call, "parts": [{**part, "halves": True}]}] * (kind["calls"] >= first_call)
        job(5, {**settings, "NEAR": str(first_call), "CRIMP_REPLAY": write("always.json", always)}, steps=12)
    without = json.loads(json.dumps(of).replace('"halves": true', '"halves": false'))
    fourth, _ = job(4, {**settings, "CRIMP_REPLAY": write("without.json", without)})
    expect(all(second[rank] != fourth[rank] for rank in second), "without 16 bits the results are the same")


def after_declined(_):
    """What follows on declined calls takes what it took, whatever the replay's own settings would choose for it."""
    settings = dict(CRIMP_CODEC="3lc", CRIMP_ALGORITHM="one_shot")
    recorded, _ = job(1, {**settings, "CRIMP_REPORT": "recorded.json"})
    repeated, _ = job(1, {**settings, "CRIMP_ALGORITHM": "two_shot", "CRIMP_REPLAY": "recorded.json"})
    expect(repeated == recorded, "the replay has other bits than the recorded job")


def begun_sums(_):
    """Sums that do not block: whether they are compressed follows the recorded CRIMP_ALGORITHM, also where a replay is repeated."""
    begun = lambda settings: job(1, {"CRIMP_CODEC": "fp16", **settings}, steps=3, arguments=["begun"])[0]
    named, free = (begun({"CRIMP_ALGORITHM": algorithm, "CRIMP_REPORT": f"{algorithm}.json"}) for algorithm in ("allgather", "auto"))
    expect(all(named[rank] != free[rank] for rank in named), "CRIMP_ALGORITHM decides nothing: this test shows nothing")
    for recorded, first, other in (("allgather", named, "auto"), ("auto", free, "allgather")):
        for file, own in ((recorded, "second"), ("second", "third")):
            again = begun({"CRIMP_ALGORITHM": other, "CRIMP_REPLAY": f"{file}.json", "CRIMP_REPORT": f"{own}.json"})
            expect(again == first, f"with CRIMP_ALGORITHM={other} and CRIMP_REPLAY={file}.json, of {recorded}, other results: {again}, not {first}")


def first_calls(_):
    """CRIMP_PROGRESS=thread: communicators are counted as the program comes to them, not as their threads do."""
    settings = dict(CRIMP_CODEC="3lc", CRIMP_ALGORITHM="two_shot", CRIMP_PROGRESS="thread", CRIMP_MIN_COUNT="1000")
    both = lambda others, more: job(1, {**settings, "OTHERS": others, **more}, steps=6, arguments=["both"])
    first, _ = both("late", {"CRIMP_REPORT": "first.json", "CRIMP_STATE_DIR": at("state")})
    counts = {one["number"]: {re.search(r"x (\d+)", kind["kind"])[1] for kind in one["kinds"]} for one in decisions(report("first.json"))[0]}
    expect(counts == {0: {"30000"}, 1: {"50000"}}, f"the calls of communicators, by their numbers: {counts}")
    of_state = [name for name in os.listdir(at("state")) if b"named.weight" in open(os.path.join(at("state"), name), "rb").read()]
    expect(of_state and all(name.startswith("comm1.") for name in of_state), f"the tensor was saved in {of_state}")
    for others in ("late", "early"):
        again, _ = both(others, {"CRIMP_REPLAY": "first.json", "CRIMP_REPORT": "second.json"})
        expect(again == first, f"where the other ranks are {others}, other results: {again}, not {first}")
        expect(all(rank["replay"]["calls_missing"] == 0 for rank in report("second.json")["per_rank"]), "calls are missing")
    _, said = both("early", {"CRIMP_STATE_DIR": at("state")})
    expect("state of 1 tensors loaded" in said, "the named tensor was not found again")


def leaves_the_record(settings):
    """More calls than the record has, calls that it does not have, a record that ends."""
    job(1, {**settings, "CRIMP_REPORT": "first.json"}, steps=20)
    of = report("first.json")
    _, said = job(2, {**settings, "CRIMP_REPLAY": "first.json", "CRIMP_REPORT": "more.json"}, steps=30)
    counted = report("more.json")["per_rank"][ranks - 1]["replay"]
    expect(counted["calls_beyond"] > 20 and counted["calls"] >= 90, f"counted are {counted}")
    expect("calls beyond the record of CRIMP_REPLAY" in said, "the summary does not say it")
    _, said = job(3, {**settings, "CRIMP_CODEC": "3lc:s=1.5", "CRIMP_REPLAY": "first.json", "CRIMP_REPORT": "other.json"}, steps=20)
    expect(report("other.json")["per_rank"][0]["replay"]["calls_missing"] > 60, "calls of another codec are in the record")
    expect(said.count("does not have all calls of this job") == 1, "it was not said once that calls are missing")
    expect("CRIMP_CODEC was '3lc', and is '3lc:s=1.5'" in said, "nothing was said of the other codec")
    short = copy.deepcopy(of)
    for kind in short["per_rank"][0]["decisions"][0]["kinds"]:
        kind["from"] = kind["from"][:1]
        kind.update(truncated=True, ends=kind["from"][0]["call"])
    _, said = job(4, {**settings, "CRIMP_REPLAY": write("short.json", short)}, steps=20)
    expect(re.search(r"the record in 'short.json' of the calls 'float32 x .* ends with call 1\b", said), "nothing was said of the record's end")


def refuses(settings):
    """Every call passes through, on all ranks; what is wrong is said."""
    job(1, {**settings, "CRIMP_REPORT": "first.json"}, steps=6)
    of = report("first.json")
    plain, _ = job(1, {"CRIMP_ENABLE": "0"}, steps=6)
    text = json.dumps(of)
    os.mkfifo(at("fifo"))
    for name, why in {
        "nowhere.json": "which cannot be read: No such file or directory",
        ".": "which is no regular file",
        "fifo": "which is no regular file",
        "/proc/self/mem": "which cannot be read: Input/output error",
        write("half.json", text[: len(text) // 2]): "no JSON, or ends too early",
        write("other.json", '{"loss": 1}'): "no report of Crimp's",
        write("old.json", {**of, "per_rank": [{"calls": 3}] * ranks}): "a report without decisions",
        write("wrong.json", text.replace('"allgather"', '"telepathy"').replace('"passes"', '"passed"')): "not as Crimp writes them",
        write("larger.json", {**of, "ranks": ranks + 1}): f"job of {ranks + 1} ranks, and this job has {ranks}",
    }.items():
        results, said = job(2, {**settings, "CRIMP_REPLAY": name}, steps=6)
        expect(f"CRIMP_REPLAY is '{name}'" in said and why in said and "every call passes through" in said, f"{name}: nothing says '{why}'")
        expect(results == plain, f"{name}: calls were compressed")
    for own in ({"CRIMP_REPLAY": write("changed.json", of)}, {"CRIMP_REPLAY": ""}):
        results, said = job(2, {**settings, "CRIMP_REPLAY": "first.json"}, steps=6, of_rank={1: own})
        expect("the content of CRIMP_REPLAY is '" in said and "settings differ" in said, "ranks with different records were not noticed")
        expect(results == plain, "calls were compressed")
    # The same content under another name is the same.
    shutil.copy(at("first.json"), at("copy.json"))
    results, said = job(2, {**settings, "CRIMP_REPLAY": "first.json"}, steps=6, of_rank={1: {"CRIMP_REPLAY": "copy.json"}})
    expect("differ" not in said and results != plain, "a copy is taken for another record")


try:
    if case in ADAPTIVE:
        repeats(ADAPTIVE[case])
    else:
        {"unseen": passes_unseen, "halves": in_halves, "leaves": leaves_the_record, "declined": after_declined, "begun": begun_sums, "first_calls": first_calls, "refuses": refuses}[case](ADAPTIVE["auto"])
finally:
    shutil.rmtree(scratch)
print("replay.py: passed")
