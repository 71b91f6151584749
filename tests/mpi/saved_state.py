#!/usr/bin/env python3
"""Trainings that are interrupted and go on from what was saved: saved_state.py MPI CASE PROGRAM [PRELOAD]. Exit status: 0 passed, 77 skipped, 1 failed."""
import os, re, shutil, signal, subprocess, sys, tempfile, time

mpi, case, program, *preload = sys.argv[1:]
TIMEOUT = 150
launcher = shutil.which("mpirun.openmpi") or shutil.which("mpirun") if mpi == "openmpi" else shutil.which("mpiexec.mpich") or shutil.which("mpiexec.hydra")
clean = {k: v for k, v in os.environ.items() if not k.startswith("CRIMP_")}
scratch = tempfile.mkdtemp(prefix="crimp-state-")
at = lambda *names: os.path.join(scratch, *names)
FIXED = dict(CRIMP_ALGORITHM="allgather", CRIMP_MIN_COUNT="1000", CRIMP_RULES="")
if preload:  # of MPICH, whose ranks would keep their cores while they wait
    FIXED["LD_PRELOAD"] = preload[0]


def fail(text):
    print(f"saved_state.py: {text} (files: {scratch})")
    sys.exit(1)


def expect(condition, text):
    if not condition:
        fail(text)


def start(ranks, settings, *arguments):
    if not launcher:
        print("saved_state.py: skipped: no launcher of this MPI")
        sys.exit(77)
    line = [launcher]
    if mpi == "openmpi":
        line += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--tag-output"] + ["--allow-run-as-root"] * (os.geteuid() == 0)
    line += ["-n", str(ranks)]
    for name, value in {**FIXED, **settings}.items():
        line += ["-x", f"{name}={value}"] if mpi == "openmpi" else ["-env", name, value]
    print("+", " ".join(line), program, *arguments, flush=True)
    return subprocess.Popen(line + [program, *map(str, arguments)], env=clean, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def said(process):
    try:
        out, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        fail(f"the job hung: ended after {TIMEOUT} s")
    print("\n".join(line for line in out.split("\n") if "loss" not in line), flush=True)
    return out


def job(ranks, settings, *arguments):
    process = start(ranks, settings, *arguments)
    out = said(process)
    expect(process.returncode == 0, f"the job ended with status {process.returncode}")
    return out


def curve(out):
    return dict(re.findall(r"loss (\d+) (\S+)", out))


def weights(name):
    os.makedirs(at(name), exist_ok=True)
    return at(name)


def files(directory, name="comm0"):
    """generation: ranks whose files are there"""
    found = {}
    for entry in os.listdir(directory):
        if m := re.fullmatch(rf"{name}\.(\d+)\.(\d+)-of-(\d+)\.state", entry):
            found.setdefault(int(m[1]), set()).add(int(m[2]))
            expect(os.stat(os.path.join(directory, entry)).st_mode & 0o777 == 0o600, f"{entry} is not for its user alone")
        else:
            expect(entry.startswith(".crimp-"), f"{entry} is nobody's file")
    return found


def same_curve(whole, later, first):
    expect(len(later) > 0 and min(map(int, later)) == first, f"the second part begins with step {min(map(int, later), default=None)}, not {first}")
    differ = [s for s in later if later[s] != whole[s]]
    expect(not differ, f"the loss differs from step {min(map(int, differ)) if differ else 0} on")


CODECS = {
    "3lc": {}, "topk": dict(CRIMP_CODEC="topk:ratio=0.01"), "random": dict(CRIMP_CODEC="randomk"), "momentum": dict(CRIMP_CODEC="dgc"),
    "8bit": dict(CRIMP_CODEC="topk:ratio=0.01", CRIMP_RESIDUAL="8bit"), "two_shot": dict(CRIMP_ALGORITHM="two_shot"),
    "powersgd": dict(CRIMP_CODEC="powersgd", CRIMP_ALGORITHM="low_rank"),
    # No codec encodes anything: rules, or how small the calls are, say so.
    "momentum_exact": dict(CRIMP_CODEC="dgc", CRIMP_RULES="*=none"), "momentum_small": dict(CRIMP_CODEC="dgc", CRIMP_MIN_COUNT="1000000"),
}


def restart(name, ranks=3):
    """With the program's calls, and with CRIMP_STATE_DIR: bit for bit the losses of the training that was not interrupted."""
    settings = dict(CRIMP_CODEC="3lc") | CODECS[name]
    whole = curve(job(ranks, settings, "train", 0, 24, weights("whole")))
    expect(len(whole) == 24, "a step said no loss")
    first = curve(job(ranks, settings, "train", 0, 11, weights("api"), "save=" + at("api-state")))
    same_curve(whole, first, 1)
    later = curve(job(ranks, settings, "train", 11, 24, at("api"), "load=" + at("api-state")))
    same_curve(whole, later, 12)
    expect(files(at("api-state"), "saved") == {1: set(range(ranks))}, "crimp_save's files")
    env = settings | dict(CRIMP_STATE_DIR=at("env-state"))
    job(ranks, env, "train", 0, 11, weights("env"))
    out = job(ranks, env, "train", 11, 24, at("env"))
    expect("tensors loaded from CRIMP_STATE_DIR" in out, "nothing was loaded")
    expect(re.search(r"state of \d+ tensors restored, of 0 never asked for", out), "the summary")
    same_curve(whole, curve(out), 12)
    # Jobs that save at their end alone do not pile up.
    for step in range(24, 28):
        job(ranks, env, "train", step, step + 1, at("env"))
    expect(sorted(files(at("env-state"))) == [4, 5, 6], f"generations {sorted(files(at('env-state')))} are there")
    # A control: what was saved does matter.
    shutil.rmtree(at("env-state"))
    without = curve(job(ranks, env, "train", 11, 24, at("env")))
    expect(any(without[s] != whole[s] for s in without), "without the state the losses are the same: this test shows nothing")


def killed(ranks=3):
    """A rank is killed in the middle; what all had saved by then is what the training goes on from."""
    settings = dict(CRIMP_CODEC="3lc", CRIMP_STATE_DIR=at("state"), CRIMP_STATE_INTERVAL="3")
    whole = curve(job(ranks, dict(CRIMP_CODEC="3lc"), "train", 0, 60, weights("whole")))
    process = start(ranks, settings, "train", 0, 10000, weights("again"), "slow")
    deadline = time.time() + TIMEOUT
    while time.time() < deadline and not os.path.exists(at("again", "weights.20")):
        time.sleep(0.01)
    expect(os.path.exists(at("again", "weights.20")), "the training did not begin")
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_rank(p)]
    expect(len(pids) == ranks, f"{len(pids)} ranks run")
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL) if process.poll() is None and mpi == "mpich" else None
    said(process)
    for p in [int(p) for p in os.listdir("/proc") if p.isdigit() and is_rank(p)]:
        os.kill(p, signal.SIGKILL)
    expect(process.returncode != 0, "the job did not end by the signal")
    there = files(at("state"))
    newest = max(g for g, of in there.items() if of == set(range(ranks)))
    expect(len(there) <= 2, f"generations {sorted(there)} are there")
    # Generation g was saved before call 3 g + 1.
    step = 3 * newest
    out = job(ranks, settings, "train", step, 60, at("again"))
    same_curve(whole, curve(out), step + 1)


def is_rank(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        return words[0] == program.encode() and at("again").encode() in words
    except OSError:
        return False


def broken(ranks=3):
    """The newest set of files is not whole, in all the ways there are: all ranks take the one before."""
    settings = dict(CRIMP_CODEC="3lc", CRIMP_STATE_DIR=at("state"), CRIMP_STATE_INTERVAL="10")
    whole = curve(job(ranks, settings, "train", 0, 24, weights("whole")))
    # Of steps 10 and 20, and of the end; the first went when the second was whole.
    expect(files(at("state")) == {2: set(range(ranks)), 3: set(range(ranks))}, "generations 2 and 3 are not what is there")
    shutil.copytree(at("state"), at("kept"))
    victim = at("state", f"comm0.3.1-of-{ranks}.state")

    def cut():
        os.truncate(victim, os.path.getsize(victim) - 9)

    def flip():
        with open(victim, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))

    def link():
        os.rename(victim, at("elsewhere"))
        os.symlink(at("elsewhere"), victim)

    def others():
        os.chmod(victim, 0o666)

    def of_another_rank():
        shutil.copyfile(at("state", f"comm0.3.0-of-{ranks}.state"), victim)

    def of_another_job():
        shutil.rmtree(at("state2"), ignore_errors=True)
        job(ranks, settings | dict(CRIMP_STATE_DIR=at("state2")), "train", 0, 24, weights("whole2"))
        shutil.copy(at("state2", os.path.basename(victim)), victim)

    def fifo():
        os.remove(victim)
        os.mkfifo(victim, 0o600)

    for damage in (lambda: os.remove(victim), cut, flip, link, others, of_another_rank, of_another_job, fifo):
        shutil.rmtree(at("state"))
        shutil.copytree(at("kept"), at("state"))
        damage()
        # Weights of step 20, as those of another job: the end was never whole.
        out = job(ranks, settings, "train", 20, 24, at("whole"))
        expect(re.search("generation 3 of .* is not whole: generation 2 is loaded", out), "it was not the generation before that was loaded, with a word about the newest")
        same_curve(whole, curve(out), 21)
    shutil.rmtree(at("state"))
    shutil.copytree(at("kept"), at("state"))
    for entry in os.listdir(at("state")):
        os.truncate(at("state", entry), 100)
    out = job(ranks, settings, "train", 0, 24, at("whole"))
    expect("tensors loaded" not in out, "nothing could be loaded, but it says so")
    same_curve(whole, curve(out), 1)


def strays(ranks=2):
    """What others, or an accident, have put beside the files is neither loaded nor counted."""
    settings = dict(CRIMP_CODEC="3lc", CRIMP_STATE_DIR=at("state"), CRIMP_STATE_INTERVAL="10")
    whole = curve(job(ranks, dict(CRIMP_CODEC="3lc"), "train", 0, 40, weights("whole")))

    def entry(generation, rank=0):
        return at("state", f"comm0.{generation}.{rank}-of-{ranks}.state")

    # What is no file of this user's.
    os.mkdir(at("state"))
    for generation in range(1, 42):
        for rank in range(ranks):
            os.symlink("nothing", entry(generation, rank))
    os.symlink("nothing", entry(2 ** 60))
    job(ranks, settings, "train", 0, 10, weights("links"))
    saved = [g for g in range(1, 100) if os.path.isfile(entry(g)) and not os.path.islink(entry(g))]
    expect(len(saved) == 1 and 1 <= saved[0] < 2 ** 60, f"generations {saved} are saved")
    expect(all(os.path.islink(entry(generation, rank)) for generation in range(1, 42) for rank in range(ranks)), "links are gone")
    out = job(ranks, settings, "train", 10, 20, at("links"))
    expect("tensors loaded" in out, "beside links nothing was loaded")
    same_curve(whole, curve(out), 11)
    shutil.rmtree(at("state"))
    # Another user's files, in a directory that all may write to.
    if os.geteuid() == 0:
        job(ranks, settings, "train", 0, 20, weights("others"))
        os.chmod(at("state"), 0o1777)
        newest = max(files(at("state")))
        for generation in [*range(newest + 1, newest + 42), 2 ** 60]:
            for rank in range(ranks):
                open(entry(generation, rank), "w").close()
                os.chmod(entry(generation, rank), 0o600)
                os.chown(entry(generation, rank), 12345, 12345)
        out = job(ranks, settings, "train", 20, 30, at("others"))
        expect("tensors loaded" in out and f"generation {newest}:" in out, f"generation {newest} was not loaded beside another user's files")
        expect(re.search(r"another user's|not this user's", out), "nothing is said of another user's files")
        same_curve(whole, curve(out), 21)
        out = job(ranks, settings, "train", 30, 40, at("others"))
        expect("tensors loaded" in out, "what was saved beside another user's files cannot be loaded")
        same_curve(whole, curve(out), 31)
        expect(all(os.stat(entry(generation, rank)).st_uid == 12345 for generation in range(newest + 1, newest + 42) for rank in range(ranks)), "another user's files are gone")
        shutil.rmtree(at("state"))
    # This user's own, with a number behind which there is none: said, and nothing saved is lost.
    job(ranks, settings, "train", 0, 20, weights("own"))
    newest = max(files(at("state")))
    open(entry(2 ** 60), "w").close()
    os.chmod(entry(2 ** 60), 0o600)
    for _ in range(2):
        out = job(ranks, settings, "train", 20, 30, at("whole"))
        expect("tensors loaded" in out and f"generation {newest}:" in out, "what was saved is not loaded")
        expect(re.search(f"generation {2 ** 60} .* nothing is saved .*remove", out), "nothing is said of the number")
        same_curve(whole, curve(out), 21)
    expect(newest in files(at("state")) and max(files(at("state"))) == 2 ** 60, f"generations {sorted(files(at('state')))} are there")


def unwritable(ranks=2):
    """Nothing can be written: a warning for each rank, and the training is the same."""
    whole = curve(job(ranks, dict(CRIMP_CODEC="3lc"), "train", 0, 12, weights("whole")))
    open(at("file"), "w").close()
    for directory in (at("no", "parent"), at("file"), "/proc/nothing"):
        out = job(ranks, dict(CRIMP_CODEC="3lc", CRIMP_STATE_DIR=directory, CRIMP_STATE_INTERVAL="2"), "train", 0, 12, at("whole"))
        same_curve(whole, curve(out), 1)
        warnings = len(re.findall("nothing is saved", out))
        expect(warnings == ranks or "no state is loaded" in out, f"{warnings} warnings, not one for each of {ranks} ranks")
        # In the first call, while there is still time.
        expect(directory == at("file") or "no state is loaded from it, nor saved in it" in out, "nothing was said of it before something was to be saved")
    # A disk that is full in the middle of the job.
    inside = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=600k tmpfs "{at("full")}" && exec "$@"', "sh"]
    os.mkdir(at("full"))
    if not shutil.which("unshare") or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        print("saved_state.py: nothing can be mounted here: no full disk")
        return
    global launcher
    before, launcher = launcher, inside[0]
    outer = subprocess.Popen
    subprocess.Popen = lambda line, **rest: outer([*inside, before, *line[1:]], **rest)
    out = job(ranks, dict(CRIMP_CODEC="3lc", CRIMP_STATE_DIR=at("full", "state"), CRIMP_STATE_INTERVAL="2"), "train", 0, 12, at("whole"))
    expect("No space left" in out, "the disk was not full")
    same_curve(whole, curve(out), 1)
    expect("state could not be saved" in out, "the summary does not say that nothing was saved")


def other_ranks(algorithm):
    """What is owed to the sum is the same on any number of ranks."""
    settings = dict(CRIMP_CODEC="topk:ratio=0.1", CRIMP_ALGORITHM=algorithm.replace("8bit", "two_shot"))
    part = "part=0"
    if algorithm == "8bit":  # an element waits for some ten roundings to a 127th of its neighbours' largest
        settings["CRIMP_RESIDUAL"] = "8bit"
        part = "part=0.1"
    job(4, settings, "owe", 7, at("owed"), "save=" + at("state"))
    expect(files(at("state"), "saved") == {1: {0, 1, 2, 3}}, "crimp_save's files")
    for ranks in (4, 2, 3, 5):
        job(ranks, settings, "drain", at("owed"), "load=" + at("state"), part)
    # One rank's missing file would be missing.
    os.rename(at("state", "saved.1.3-of-4.state"), at("gone"))
    process = start(3, settings, "drain", at("owed"), "load=" + at("state"))
    out = said(process)
    expect(process.returncode != 0 and "failed: crimp_load" in out, "a rank's file is missing, and nobody noticed")
    expect("nothing is loaded, what is kept stays" in out and "from zeros" not in out, "it is not said what becomes of what there is")


def other_algorithm(ranks=3):
    """What owners of sums hold is given as well by an algorithm that has none."""
    settings = dict(CRIMP_CODEC="topk:ratio=0.1")
    job(ranks, settings | dict(CRIMP_ALGORITHM="two_shot"), "owe", 7, at("owed"), "save=" + at("state"))
    job(ranks, settings | dict(CRIMP_ALGORITHM="allgather"), "drain", at("owed"), "load=" + at("state"), "part=0")


def rollback(ranks=2):
    """A running job that loads goes on from there, whatever it has kept since."""
    of_bytes = dict(CRIMP_RESIDUAL="8bit")
    for settings in (CODECS["two_shot"] | dict(CRIMP_CODEC="3lc"), CODECS["powersgd"] | of_bytes, CODECS["momentum"], CODECS["two_shot"] | of_bytes | dict(CRIMP_CODEC="topk:ratio=0.01,reuse=4")):
        shutil.rmtree(at("state"), ignore_errors=True)
        job(ranks, settings, "rollback", at("state"))


if case.startswith("restart."):
    restart(case[8:])
elif case.startswith("other_ranks."):
    other_ranks(case[12:])
elif case == "extents":
    job(2, dict(CRIMP_CODEC="powersgd:r=2,memory=none", CRIMP_ALGORITHM="low_rank"), "extents", at("state"))
elif case == "refused":
    os.mkdir(at("there"))
    out = job(3, dict(CRIMP_CODEC="3lc"), "refused", at("there"))
    expect("is saved again, in '" + at("there", "some") + "', after 4 attempts that failed" in out, "nothing is said of saving that goes again")
    expect("state could not be saved 4 of 5 times" in out, "the summary does not say what could not be saved")
    expect(len(re.findall("nothing is saved", out)) == 3, "not one warning for each rank")
else:
    {"killed": killed, "broken": broken, "strays": strays, "unwritable": unwritable, "other_algorithm": other_algorithm, "rollback": rollback}[case]()
shutil.rmtree(scratch, ignore_errors=True)
print("saved_state.py: passed")
