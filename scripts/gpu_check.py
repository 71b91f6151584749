#!/usr/bin/env python3
"""Tests and measures Crimp on a machine with an NVIDIA GPU that is there for minutes, by calls that each may be killed.

    gpu_check.py OUT [--presets first,codecs,...] [--bundle FILE] [--built DIR] [--work DIR] [--earlier FILE]... [options]

One process a codec and a figure; each result is a line of OUT/results.jsonl at once. A call that finds results of the same commit, in OUT, in the work
folder or in --earlier, goes on behind them. Needs Python 3.9, and what docs/gpu.md ("On a GPU") says; neither network nor root.

OUT then holds results.jsonl, gpu_check.json (the same, last state of each), summary.txt and gpu_check.tar.gz (logs, reports and all of these).
Ends with the line "gpu_check: ..."; exit status 0: all passed, 1: something failed, 3: nothing failed, but something is left, 77: no GPU answers.
"""
import argparse, csv, ctypes, dataclasses, datetime, fcntl, fnmatch, hashlib, io, json, os, re, shutil, signal, socket, struct, subprocess, sys, tarfile, time

ENDED = ("passed", "failed", "timeout", "lost")
MOST_STARTS = 2  # an item that was killed as often without an end is not tried again
ARCHIVE_BYTES = 15 << 20
NO_GPU = re.compile(r"--device cuda: (there is no NVIDIA driver|cuInit failed|there is no device)|no GPU answers|there is no GPU")
# One for each of the kernels' families.
FAMILIES = ("3lc", "fp16", "bf16", "qsgd", "terngrad", "natural", "8bit", "fp8", "1bit", "signsgd", "inceptionn", "sketchml", "adaq", "topk", "randomk", "dgc", "sidco", "thc")
MIB = 1 << 20


@dataclasses.dataclass
class Item:
    """A process to run. figures: of its log's text, a dictionary; limit: seconds it may take; alone: nothing runs beside it, because it measures."""
    name: str
    command: list
    limit: int = 60
    env: dict = dataclasses.field(default_factory=dict)
    figures: object = None
    alone: bool = True
    least: int = 10  # seconds that must be left for it to be started


def read_lines(file):
    """The JSON objects of a file; what a kill cut off is not one."""
    try:
        with open(file, encoding="utf-8", errors="replace") as text:
            lines = text.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def write_whole(file, data):
    """Complete under its name, or not there."""
    with open(file + ".new", "wb") as to:
        to.write(data)
    os.replace(file + ".new", file)


class Journal:
    """All results, in several files alike, each line on the disk before the next item begins."""

    def __init__(self, files, earlier):
        self.files, self.records, seen = files, [], set()
        for file in [*earlier, *files]:
            for record in read_lines(file):
                line = json.dumps(record, sort_keys=True)
                if line not in seen:
                    seen.add(line)
                    self.records.append(record)
        self.records.sort(key=lambda record: record.get("at", ""))
        text = "".join(json.dumps(record) + "\n" for record in self.records).encode()
        for file in files:
            write_whole(file, text)

    def append(self, record):
        record = {**record, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")}
        self.records.append(record)
        for file in self.files:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(descriptor, (json.dumps(record) + "\n").encode())
            os.fsync(descriptor)
            os.close(descriptor)

    def last(self, commit):
        """Of each item the last record, and how often it was started since its last end."""
        state, starts = {}, {}
        for record in self.records:
            name = record.get("item")
            if name is None or record.get("commit") != commit:
                continue
            starts[name] = starts.get(name, 0) + 1 if record["state"] == "started" else 0
            state[name] = record
        return state, starts


# ---- the machine


def said_by(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def commit_of(source, root, built):
    """What the programs are made of: where the bundle has brought them that is its commit, else the sources'."""
    def file_in(place):
        try:
            with open(os.path.join(place, "COMMIT")) as file:
                return file.read().strip()
        except OSError:
            return ""
    commit = (built and file_in(root)) or file_in(source)
    if not commit:
        commit = said_by("git", "-C", source, "rev-parse", "--short=10", "HEAD")
        changes = said_by("git", "-C", source, "diff", "HEAD") if commit else ""
        commit += "+" + hashlib.sha1(changes.encode()).hexdigest()[:6] if changes else ""
    return commit or file_in(root) or "unknown"


def bring_up_loopback():
    """Open MPI finds no network interface where lo is down, and ends. Returns what is so now."""
    get, put, is_up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            now = struct.unpack("16sH", fcntl.ioctl(any_socket, get, struct.pack("16sH14x", b"lo", 0))[:18])[1]
            if now & is_up:
                return "up"
            fcntl.ioctl(any_socket, put, struct.pack("16sH14x", b"lo", now | is_up))
            return "brought up"
    except OSError as error:
        return f"down, and cannot be brought up: {error.strerror}"


def machine(commit, presets):
    card, _, rest = said_by("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader").partition("\n")[0].partition(", ")
    driver, _, capability = rest.partition(", ")
    nvcc = re.search(r"release ([0-9.]+)", said_by("nvcc", "--version"))
    return {"machine": {"card": card or None, "driver": driver or None, "compute_capability": capability or None, "nvcc": nvcc and nvcc[1], "cores": os.cpu_count(),
                        "kernel": os.uname().release, "lo": bring_up_loopback()}, "commit": commit, "presets": presets}


# ---- items


def of_file(file):
    """Figures that a program writes as JSON; from one that was ended those of its last complete codec."""
    def read(_):
        with open(file) as text:
            return json.load(text)
    return read


def of_last_line(text):
    """Figures that are the last line that begins a JSON object."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def of_ncu(text):
    """ncu --csv --page details: {kernel: {section: {metric: value}}}"""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if row.get("Metric Name"):
            unit = f" [{row['Metric Unit']}]" if row.get("Metric Unit") else ""
            kernels.setdefault(row.get("Kernel Name", ""), {}).setdefault(row.get("Section Name", ""), {})[row["Metric Name"] + unit] = row["Metric Value"]
    if not kernels:
        raise ValueError("ncu says nothing of a kernel")
    return kernels


class Items:
    """What there is to do, preset by preset, once the programs are built."""

    def __init__(self, where):
        self.where = where
        with open(os.path.join(where.source, "src/codec/registry.def")) as file:
            self.codecs = re.findall(r'^CRIMP_CODEC\(\w+, "([^"]+)"', file.read(), re.MULTILINE)

    def program(self, name):
        return os.path.join(self.where.built, "bin", name)

    def json(self, name):
        return os.path.join(self.where.work, "json", slug(name) + ".json")

    def bench(self, codec, *counts, name=None):
        name = name or f"bench.{codec}"
        command = [self.program("crimp"), "bench", "codec", "--device", "cuda", "--codec", codec, "--json", self.json(name)]
        return Item(name, command + [word for count in counts for word in ("--count", count)], 60, figures=of_file(self.json(name)))

    def allreduce(self, ranks, size, codec, algorithm, chunk):
        name = f"allreduce.{ranks}.{size}.{codec}.{algorithm}.chunk{chunk}"
        env = {"CRIMP_ALGORITHM": algorithm, "CRIMP_CHUNK": chunk, "CRIMP_NODE_SIZE": "2", "CRIMP_REPORT": self.json(name + ".report")}
        return Item(name, [*self.mpirun(ranks), self.program("crimp"), "bench", "allreduce", "--device", "cuda", "--codec", codec, "--min", size, "--max", size, "--iters", "10", "--json",
                           self.json(name)], 90, env, of_file(self.json(name)))

    def mpirun(self, ranks):
        return ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]

    # 1. Is the model right; what does a chunk cost.
    def first(self):
        items = [self.bench(codec, "16M", name="bench.16M." + codec) for codec in ("3lc:zero_run=0", "3lc", "qsgd")]
        items += [self.allreduce(2, "64M", "3lc", algorithm, chunk) for algorithm in ("allgather", "two_shot") for chunk in ("640k", "2M", "4M", "16M")]
        return items + [self.bench("3lc:zero_run=0", "640k", "2560k", "10M", "40M", name="grid.3lc:zero_run=0")]

    # 2. Every codec, then sizes, calls of more ranks, and small ones.
    def all_codecs(self):
        every = [*self.codecs, "3lc:zero_run=0", "3lc:entropy=1", "maxmin:bits=8,block=1024", "topk:ratio=0.1",
                 *(codec + ":memory=residual" for codec in ("maxmin", "8bit", "natural", "fp8")), *(codec + ":memory=residual,force=1" for codec in ("qsgd", "terngrad"))]
        items = [self.bench(codec, "16M", "64M", "4M") for codec in every]
        items += [self.allreduce(4, size, "3lc", algorithm, "auto") for size in ("4M", "16M", "64M") for algorithm in ("allgather", "two_shot")]
        items.append(self.allreduce(4, "64M", "3lc", "hierarchical", "auto"))  # two nodes on one card, which they share
        for segments in (1, 300):
            command = [*self.mpirun(2), self.program("crimp"), "bench", "call", "--device", "cuda", "--segments", str(segments), "--elements", "1048576", "--calls", "200"]
            items.append(Item(f"call.{segments}", command, 60, figures=lambda text: {"said": text.strip().splitlines()[-1]}))
        return items

    # 3. Whether all of it is right.
    def tests(self):
        unit = [self.program("crimp_gpu_unit"), "--no-intro=true"]
        env = {"CODEC_TREE": os.path.join(self.where.source, "src/codec")}
        items = [Item(f"test.{codec}", unit + ["--test-suite=device_codec", "--test-case-exclude=PowerSGD*"], 240, {**env, "TEST_CODEC": codec}, alone=False)
                 for codec in self.codecs if codec != "powersgd"]
        items += [Item("test.powersgd", unit + ["--test-case=PowerSGD*"], 240, env, alone=False), Item("test.device_sums", unit + ["--test-suite=device_sums"], 240, env, alone=False),
                  Item("test.cuda_backend", unit + ["--test-suite=cuda_backend"], 240, env, alone=False)]
        return items + [Item("test." + name, command, 150, alone=False) for name, command in self.where.rank_tests()]

    # 4. What the sanitizers see.
    def sanitizers(self):
        def item(tool, what, cases, **env):
            sanitize = os.path.join(self.where.source, "tests/gpu/sanitize.sh")
            return Item(f"{tool}.{what}", ["bash", sanitize, tool, self.program("crimp_gpu_unit"), "--test-case=" + cases, "--no-intro=true"], 200, env, alone=False, least=30)
        items = []
        for tool in ("memcheck", "racecheck"):
            items += [item(tool, codec, "several bodies*,memories that*" + (",malformed bodies are*,what a sample*" if tool == "memcheck" else ",many elements between*"), TEST_CODEC=codec)
                      for codec in FAMILIES]
            items += [item(tool, "powersgd", "PowerSGD*"), item(tool, "magnitudes", "magnitudes*")]
        return items

    # 5. What the kernels wait for, one launch each at 64 MiB.
    def ncu(self):
        sections = [word for section in ("SpeedOfLight", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "Occupancy", "LaunchStats", "SchedulerStats", "WarpStateStats")
                    for word in ("--section", section)]
        items = []
        for codec, kernel in (("3lc:zero_run=0", "decode_pieces"), ("3lc", "decode_pieces"), ("thc", "encode_pieces"), ("thc", "decode_pieces"), ("qsgd", "encode_pieces"),
                              ("terngrad", "encode_pieces"), ("topk", "enclose"), ("topk", "settle"), ("topk", "encode_pieces"), ("3lc", "encode_pieces"), ("sidco", "add_moments"), ("", "magnitude_of")):
            name = f"ncu.{codec or 'call'}.{kernel}"
            ncu = ["ncu", "--clock-control", "none", "--csv", "--page", "details", "--kernel-name", "regex:" + kernel, "--launch-skip", "0" if "decode" in kernel else "4",
                   "--launch-count", "1", *sections]  # the first decoding is of all payloads
            bench = [self.program("crimp"), "bench", "codec", "--device", "cuda", "--codec", codec, "--count", "16M", "--repeat", "1"]
            if not codec and not shutil.which("ncu"):
                continue  # mpirun would call it an error
            if not codec:  # which only whole calls run
                bench = [self.program("crimp"), "bench", "allreduce", "--device", "cuda", "--codec", "fp16", "--min", "64M", "--max", "64M", "--iters", "3"]
                ncu = [*self.mpirun(1), *ncu]
                bench += [":", "-np", "1", *bench]
            items.append(Item(name, ncu + bench, 90, figures=of_ncu, least=30))
        return items

    # 6. A training step.
    def torch(self):
        program = [*self.mpirun(2), sys.executable, os.path.join(self.where.source, "scripts/gpu_torch.py")]
        items = [Item("torch.plain", program, 120, figures=of_last_line)]
        for codec, more in ("3lc", {}), ("fp16", {}), ("qsgd", {}), ("fp16", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}):
            name = f"torch.{codec}" + (".expandable" if more else "")
            env = {"CRIMP_CODEC": codec, "CRIMP_ALGORITHM": "allgather", "CRIMP_REPORT": self.json(name + ".report"), **more}
            items.append(Item(name, program + ["--preload", os.path.join(self.where.built, "libcrimp.so")], 120, env, of_last_line))
        return items


# What each preset is, and what has to be built for it.
PRESETS = {
    "first": (Items.first, ["crimp", "crimp_tool", "crimp_cuda"]),
    "codecs": (Items.all_codecs, ["crimp", "crimp_tool", "crimp_cuda"]),
    "tests": (Items.tests, ["crimp", "crimp_cuda", "crimp_gpu_unit", "crimp_gpu_ranks"]),
    "sanitize": (Items.sanitizers, ["crimp_gpu_unit"]),
    "ncu": (Items.ncu, ["crimp", "crimp_tool", "crimp_cuda"]),
    "torch": (Items.torch, ["crimp", "crimp_cuda"]),
}


def slug(name):
    return re.sub(r"[^\w.+=-]", "_", name)


# ---- where things are


class Places:
    """Sources, the bundle's libraries, and the programs, built here or elsewhere."""

    def __init__(self, args):
        self.source = os.path.abspath(args.source)
        self.work = os.path.abspath(args.work)
        self.root = os.path.join(self.work, "crimp_gpu")
        for folder in ("log", "json"):
            os.makedirs(os.path.join(self.work, folder), exist_ok=True)
        if args.bundle:
            self.unpack(args.bundle)
        self.prefix = os.path.join(self.root, "usr")
        self.lib = os.path.join(self.prefix, "lib/x86_64-linux-gnu")
        bundled = os.path.join(self.root, "built")
        self.built = os.path.abspath(args.built) if args.built else bundled if os.path.isdir(bundled) else None
        self.is_built = self.built is not None
        self.built = self.built or os.path.join(self.work, "build")
        self.surroundings()

    def unpack(self, bundle):
        """Once: a later call finds it, by what the file is."""
        stamp = os.path.join(self.work, "unpacked")
        status = os.stat(bundle)
        now = f"{status.st_size} {status.st_mtime_ns}"
        if os.path.exists(stamp) and open(stamp).read() == now:
            return
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run(["tar", "-C", self.work, "-xzf", bundle], check=True)
        write_whole(stamp, now.encode())

    def surroundings(self):
        env = os.environ
        for name in [name for name in env if name.startswith("CRIMP_")]:
            del env[name]
        env["PATH"] += ":" + os.path.join(env.get("CUDA_HOME", "/usr/local/cuda"), "bin")
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")
        if not shutil.which("ssh"):
            env["OMPI_MCA_plm_rsh_agent"] = "true"  # needed for other machines only, but looked for
        if not os.path.isdir(self.prefix):
            return
        # Open MPI and PMIx look for their parts below these.
        parts, pmix = os.path.join(self.lib, "openmpi"), os.path.join(self.lib, "pmix2")
        env.update(OPAL_PREFIX=self.prefix, OPAL_LIBDIR=parts + "/lib", OPAL_PKGLIBDIR=parts + "/lib/openmpi3", OPAL_DATADIR=self.prefix + "/share",
                   OPAL_PKGDATADIR=self.prefix + "/share/openmpi", OPAL_INCLUDEDIR=parts + "/include", HWLOC_HIDE_ERRORS="2", PMIX_PREFIX=pmix, PMIX_LIBDIR=pmix + "/lib",
                   PMIX_PKGLIBDIR=pmix + "/lib/pmix", PMIX_DATADIR=pmix + "/share", PMIX_PKGDATADIR=pmix + "/share/pmix", MPI4PY_LIBMPI=self.lib + "/libmpi.so.40")
        env["PATH"] = self.prefix + "/bin:" + env["PATH"]

    def tool(self, name):
        """This machine's where it serves, else the bundle's."""
        own = shutil.which(name)
        version = re.search(r"(\d+)\.(\d+)", said_by(own, "--version")) if own else None
        if own and (name == "ninja" or version and (int(version[1]), int(version[2])) >= (3, 25)):
            return own
        return os.path.join(self.prefix, "bin", name)

    def build(self, targets, jobs, architecture):
        """Commands; host code for AVX2 and less, kernels for this card, nothing that the targets do not need."""
        configure = [self.tool("cmake"), "-G", "Ninja", "-S", self.source, "-B", self.built, "-DCMAKE_BUILD_TYPE=Release", "-DCRIMP_TESTS=gpu", "-DCMAKE_MAKE_PROGRAM=" + self.tool("ninja"),
                     "-DCMAKE_CXX_FLAGS=-DHWY_DISABLED_TARGETS=464"]
        if architecture:
            configure.append("-DCRIMP_CUDA_ARCHITECTURES=" + architecture)
        if os.path.isdir(self.prefix):
            configure += self.bundled_packages()
        ninja = [self.tool("ninja"), "-C", self.built, "-k", "0", "-j", str(jobs), *targets]
        return ["bash", "-c", '"${@:2:$1}" && "${@:$1+2}"', "build", str(len(configure)), *configure, *ninja]

    def bundled_packages(self):
        options = [f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DFLATBUFFERS_INCLUDE={self.prefix}/include", f"-DFLATC={self.prefix}/bin/flatc", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF",
                   f"-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES={self.prefix}/include", "-DMPI_SKIP_COMPILER_WRAPPER=ON", "-DMPI_CXX_SKIP_MPICXX=ON",
                   f"-DMPIEXEC_EXECUTABLE={self.prefix}/bin/mpirun", f"-DMPI_mpi_LIBRARY={self.lib}/libmpi.so"]
        for language in ("C", "CXX"):
            options += [f"-DMPI_{language}_HEADER_DIR={self.lib}/openmpi/include", f"-DMPI_{language}_LIB_NAMES=mpi"]
        for folder in (self.lib + "/cmake", self.prefix + "/lib/cmake", self.prefix + "/share/cmake"):
            for package in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                options.append(f"-D{package}_DIR={folder}/{package}")
        return options

    def rank_tests(self):
        """Names and commands of the tests of several ranks, as CTest has them; a bundle's programs have brought them along."""
        try:
            with open(os.path.join(self.built, "gpu_tests.json")) as file:
                text = file.read()
        except OSError:
            text = said_by(self.tool("ctest"), "--test-dir", self.built, "--show-only=json-v1")
        for mark, value in ("@BUILT@", self.built), ("@SOURCE@", self.source), ("@PYTHON@", sys.executable):
            text = text.replace(mark, value)
        tests = json.loads(text)["tests"] if text else []
        return [(test["name"], test["command"]) for test in tests if test["name"].startswith("gpu.ranks.")]


# ---- running


def of_this_process():
    """In a group of its own, which can be ended; ends with us, however we end."""
    os.setpgrp()
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Run:
    """One call: items one by one, or several where they measure nothing, until the time is up."""

    def __init__(self, places, journal, commit, jobs, again):
        self.places, self.journal, self.commit, self.jobs = places, journal, commit, jobs
        state, starts = journal.last(commit)
        self.done = {name for name, record in state.items() if record["state"] in ENDED and not fnmatch.fnmatch(name, again)}
        self.starts = {name: 0 if fnmatch.fnmatch(name, again) else n for name, n in starts.items()}
        self.running, self.left = {}, []
        self.after_each = lambda: None

    def items(self, preset, items, until):
        """Runs what is not done and can be begun before `until`; what cannot is left."""
        pending = [item for item in items if item.name not in self.done]
        for item in [item for item in pending if self.starts.get(item.name, 0) >= MOST_STARTS]:
            self.note(preset, item, "lost", said=f"started {MOST_STARTS} times, and killed with everything else each time")
            pending.remove(item)
        while pending or self.running:
            while pending and self.may_start(pending[0], until):
                self.start(preset, pending.pop(0), until)
            if pending and not self.running and not self.may_start(pending[0], until):
                break
            for process in list(self.running):
                self.look_at(process)
            time.sleep(0.02)
        self.left += [(preset, item.name) for item in pending]

    def may_start(self, item, until):
        if time.monotonic() + item.least > until:
            return False
        return not self.running or not item.alone and len(self.running) < self.jobs and not any(other.alone for _, other, *_ in self.running.values())

    def start(self, preset, item, until):
        self.journal.append({"item": item.name, "state": "started", "preset": preset, "commit": self.commit})
        path = os.path.join(self.places.work, "log", slug(item.name) + ".log")
        for stale in (".json", ".report.json"):
            try:
                os.remove(os.path.join(self.places.work, "json", slug(item.name) + stale))
            except OSError:
                pass
        now = time.monotonic()
        with open(path, "wb") as log:
            log.write((" ".join([f"{k}={v}" for k, v in item.env.items()] + item.command) + "\n\n").encode())
            log.flush()
            try:
                process = subprocess.Popen(item.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **item.env}, preexec_fn=of_this_process)
            except OSError as error:
                self.note(preset, item, "skipped" if item.command[0] == "ncu" else "failed", said=f"{item.command[0]}: {error.strerror}")
                return
        self.running[process] = (preset, item, now, min(now + item.limit, until), path)

    def look_at(self, process):
        preset, item, began, end, path = self.running[process]
        status = process.poll()
        if status is None and time.monotonic() < end:
            return
        state = "passed"
        if status is None:
            end_group(process)
            state = "timeout" if time.monotonic() - began >= item.limit else "cut"
        del self.running[process]
        with open(path, errors="replace") as log:
            text = log.read().partition("\n\n")[2]
        if status == 77 or status and NO_GPU.search(text):
            state = "skipped"
        elif status or status == 0 and re.search(r"test cases: *0 ", text):
            state = "failed"
        record = {"status": status, "seconds": round(time.monotonic() - began, 2)}
        if item.figures and state != "skipped":
            try:
                record["figures"] = item.figures(text)
            except (OSError, ValueError, LookupError, csv.Error) as error:
                if state == "passed":
                    state, text = "failed", text + f"\nno figures: {error}"
        if isinstance(record.get("figures"), dict) and record["figures"].get("skipped"):
            state, text = "skipped", record["figures"]["skipped"]
        if state != "passed":
            record["said"] = "\n".join(text.strip().splitlines()[-25:])[-3000:]
        self.note(preset, item, state, **record)

    def note(self, preset, item, state, **more):
        self.journal.append({"item": item.name, "state": state, "preset": preset, "commit": self.commit, **more})
        if state in ENDED or state == "skipped":
            self.done.add(item.name)
        print(f"{state:8} {more.get('seconds', 0):6.1f} s  {item.name}{short(more.get('figures'))}", flush=True)
        if state not in ("passed", "skipped"):
            print("    " + more.get("said", "").replace("\n", "\n    ")[-600:], flush=True)
        self.after_each()

    def stop(self):
        """Ends what runs; it is begun anew by the next call, and this start does not count against it."""
        for process in list(self.running):
            end_group(process)
            preset, item, began, *_ = self.running.pop(process)
            self.journal.append({"item": item.name, "state": "cut", "preset": preset, "commit": self.commit, "seconds": round(time.monotonic() - began, 2)})
            self.left.append((preset, item.name))


def end_group(process):
    for number, wait in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
        except OSError:
            pass
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            continue
    return process.returncode


# ---- what is said


def short(figures):
    """A line of them; figures of another form than these are in the lines alone."""
    try:
        return line_of(figures)
    except (LookupError, TypeError, ValueError):
        return ""


def line_of(figures):
    if not isinstance(figures, dict):
        return ""
    if figures.get("bench") == "codec":
        return "".join(f"; {r['bytes'] / MIB:.0f} MiB: copy {r['copy_GBps']:.0f} GB/s, encode {r['encode_us']:.0f} us = {r['encode_vs_copy']:.2f}, decode {r['decode_add_us']:.0f} us = "
                       f"{r['decode_add_vs_copy']:.2f} of copy speed, {r['bits_per_value']:.2f} bits" for r in figures.get("results", [])) + \
               "".join(f"; {codec} has no kernels" for codec in figures.get("no_kernels", []))
    if figures.get("bench") == "allreduce":
        return "".join(f"; {r['bytes'] / MIB:.0f} MiB: staged by hand and plain MPI {r['plain_us']:.0f} us, Crimp {r['crimp_us']:.0f} us" +
                       (f", WRONG on {r['wrong_ranks']} ranks" if r.get("wrong_ranks") else "") for r in figures.get("sizes", []))
    if "said" in figures:
        return "; " + figures["said"]
    if "torch" in figures:
        return "; " + ", ".join(f"{key} {value}" for key, value in figures.items() if key != "torch")
    return ""


class Report:
    """The files of OUT besides the lines, made anew after an item, but by a twentieth of the time at most."""

    def __init__(self, out, places, journal, commit):
        self.out, self.places, self.journal, self.commit = out, places, journal, commit
        self.next = 0.0
        self.left = []

    def now_and_then(self):
        if time.monotonic() >= self.next:
            began = time.monotonic()
            self.write()
            self.next = time.monotonic() + 20 * (time.monotonic() - began)

    def states(self):
        return {name: record for name, record in self.journal.last(self.commit)[0].items() if record["state"] != "started"}

    def counts(self):
        counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
        for record in self.states().values():
            state = {"timeout": "failed", "lost": "failed"}.get(record["state"], record["state"])
            if state in counts:
                counts[state] += 1
        return counts

    def write(self):
        states = self.states()
        machines = [record for record in self.journal.records if "machine" in record and record.get("commit") == self.commit]
        about = machines[-1] if machines else {}
        text = [f"{about.get('machine', {}).get('card') or 'no card'}, driver {about.get('machine', {}).get('driver') or '-'}, nvcc {about.get('machine', {}).get('nvcc') or '-'}, commit {self.commit}, "
                f"{about.get('at', '')[:19]}"]
        text += [f"{record['state']:8} {record.get('seconds', 0):6.1f} s  {name}{short(record.get('figures'))}" for name, record in states.items()]
        text += [f"left: {preset}: {name}" for preset, name in self.left]
        counts = self.counts()
        text.append(", ".join(f"{n} {state}" for state, n in counts.items()))
        write_whole(self.out + "/summary.txt", ("\n".join(text) + "\n").encode())
        write_whole(self.out + "/gpu_check.json", json.dumps({**about.get("machine", {}), "date": about.get("at"), "commit": self.commit, "counts": counts, "items": states,
                                                              "left": [name for _, name in self.left]}, indent=1).encode())
        self.archive()

    def archive(self):
        """As much as may come back; what is too much are the largest files."""
        files = [(self.out + "/" + name, name) for name in ("results.jsonl", "summary.txt", "gpu_check.json")]
        for folder in ("log", "json"):
            here = os.path.join(self.places.work, folder)
            files += [(os.path.join(here, name), folder + "/" + name) for name in sorted(os.listdir(here))]
        files = sorted(((os.path.getsize(path), path, name) for path, name in files if os.path.exists(path)), key=lambda entry: entry[0])
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=5) as tar:
            for size, path, name in files:
                if memory.tell() + size // 3 < ARCHIVE_BYTES:
                    tar.add(path, name)
        write_whole(self.out + "/gpu_check.tar.gz", memory.getvalue())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder for what is found")
    parser.add_argument("--presets", default=",".join(PRESETS), help=f"some of {','.join(PRESETS)}, in this order (all)")
    parser.add_argument("--bundle", help="what gpu_bundle.sh packed; without: libraries of this machine")
    parser.add_argument("--built", help="folder of built programs, a build of CRIMP_TESTS=gpu; nothing is built then (a bundle of --built has one)")
    parser.add_argument("--work", default=os.path.join(os.environ.get("TMPDIR", "/tmp"), "crimp_gpu"), help="where it is unpacked and built; kept (/tmp/crimp_gpu)")
    parser.add_argument("--source", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), help="Crimp's sources (those around this script)")
    parser.add_argument("--earlier", action="append", default=[], metavar="FILE", help="results.jsonl of an earlier call, whose items are not run again")
    parser.add_argument("--again", default="", metavar="PATTERN", help="items that are run again all the same ('*', 'test.*')")
    parser.add_argument("--budget", type=float, default=440, help="seconds of a preset (440)")
    parser.add_argument("--total", type=float, default=560, help="seconds of this call (560)")
    parser.add_argument("--commit", help="what the sources are called (COMMIT in the bundle, or git)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once, and twice the tests at once")
    args = parser.parse_args()
    args.presets = args.presets.split(",")
    for preset in args.presets:
        if preset not in PRESETS:
            parser.error(f"{preset} is no preset; legal: {', '.join(PRESETS)}")
    return args


class Ended(Exception):
    pass


def ended(number, frame):
    raise Ended


def go(args, places, run, architecture, began):
    for preset in args.presets:
        make, targets = PRESETS[preset]
        until = min(time.monotonic() + args.budget, began + args.total)
        if not places.is_built:
            build = Item(f"build.{preset}", places.build(targets, args.jobs, architecture), int(args.budget), least=20)
            run.done.discard(build.name)
            run.starts[build.name] = 0
            run.items(preset, [build], until)
            if run.journal.last(run.commit)[0].get(build.name, {}).get("state") != "passed":
                run.left.append((preset, "all of it, which is not built"))
                continue
        run.items(preset, make(Items(places)), until)


def main():
    began = time.monotonic()
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    out = os.path.abspath(args.out)
    signal.signal(signal.SIGTERM, ended)
    places = Places(args)
    commit = args.commit or commit_of(places.source, places.root, places.is_built and not args.built)
    journal = Journal([out + "/results.jsonl", places.work + "/results.jsonl"], args.earlier)
    about = machine(commit, args.presets)
    journal.append(about)
    print(f"gpu_check: {about['machine']}, commit {commit}", flush=True)
    report = Report(out, places, journal, commit)
    run = Run(places, journal, commit, max(1, args.jobs // 2), args.again)
    run.after_each = report.now_and_then
    report.left = run.left
    try:
        go(args, places, run, (about["machine"]["compute_capability"] or "").replace(".", ""), began)
    except (Ended, KeyboardInterrupt):
        print("gpu_check: ended from outside", flush=True)
    finally:
        run.stop()
        report.write()
    counts = report.counts()
    bad = [name for name, record in report.states().items() if record["state"] in ("failed", "timeout", "lost")]
    print("gpu_check: " + ", ".join(f"{n} {state}" for state, n in counts.items()) + (f", {len(run.left)} left: " + ", ".join(name for _, name in run.left[:40]) if run.left else "") +
          ("; failed: " + ", ".join(bad) if bad else "; no GPU answers here" if counts["skipped"] and not counts["passed"] else "" if run.left else "; all done"))
    return 1 if bad else 3 if run.left else 77 if counts["skipped"] and not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
