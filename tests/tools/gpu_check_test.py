#!/usr/bin/env python3
"""scripts/gpu_check.py without a GPU: programs that only note that they were called stand for the real ones, and are slow, hang, fail or are killed on demand.

    gpu_check_test.py SOURCE [CASE...]
"""
import importlib.util, json, os, shutil, signal, subprocess, sys, tarfile, tempfile, time, unittest

SOURCE = os.path.abspath(sys.argv[1])
SCRIPT = SOURCE + "/scripts/gpu_check.py"
CODECS = ("fp16", "3lc", "powersgd")

# $FAKE/calls has a line of each call; $FAKE/hang, slow, fail, crash and silent hold a pattern of the calls that do so.
PROGRAM = r"""#!/bin/bash
said="$(basename "$0") $*"
echo "${TEST_CODEC:+$TEST_CODEC }${CRIMP_ALGORITHM:+$CRIMP_ALGORITHM }$said" >>"$FAKE/calls"
does() { [ -e "$FAKE/$1" ] && [[ "${TEST_CODEC:-} $said" == *$(cat "$FAKE/$1")* ]]; }
while [ $# -gt 0 ]; do
  [ "$1" != --json ] || json=$2
  [ "$1" != --codec ] || codec=$2
  shift
done
! does silent || { echo "--device cuda: there is no NVIDIA driver here"; exit 2; }
! does slow || sleep 0.6
case $said in
  *"bench codec"*) echo "{\"bench\": \"codec\", \"results\": [{\"codec\": \"$codec\", \"bytes\": 67108864, \"copy_GBps\": 1, \"encode_us\": 2, \"encode_vs_copy\": 3, \"decode_add_us\": 4,
    \"decode_add_vs_copy\": 5, \"bits_per_value\": 6}], \"no_kernels\": []}" >"$json" ;;
  *"bench allreduce"*) [ -z "${json:-}" ] || echo '{"bench": "allreduce", "sizes": [{"bytes": 67108864, "plain_us": 1, "crimp_us": 2, "wrong_ranks": 0}]}' >"$json" ;;
  *gpu_torch*) echo '{"torch": "2", "loss_last": 1}' ;;
  *) echo "[doctest] test cases: 3 | 3 passed" ;;
esac
! does hang || sleep 100
! does fail || { echo "it is wrong"; exit 1; }
! does crash || kill -SEGV $$
"""
MPIRUN = '#!/bin/bash\nwhile [ "$1" != none ]; do shift; done\nexec "${@:2}"\n'
SANITIZER = '#!/bin/bash\nwhile [[ $1 == --* ]]; do case $1 in --report-api-errors | --tool | --error-exitcode) shift ;; esac; shift; done\n"$@"; echo "SUMMARY: 0 errors"\n'
NCU = r"""#!/bin/bash
echo "==PROF== Connected"
echo '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","encode_pieces","Occupancy","Achieved Occupancy","%","71.5"'
echo "ncu $*" >>"$FAKE/calls"
"""
BUILDER = '#!/bin/bash\n[ "$1" != --version ] || { echo "cmake version 3.30"; exit; }\necho "$(basename "$0") $*" >>"$FAKE/calls"\n[ ! -e "$FAKE/broken" ] || exit 1\n'


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def script():
    """Its functions, for what cannot be seen from outside."""
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    return module


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)  # many small files, all flushed
        self.addCleanup(shutil.rmtree, self.root, True)
        self.fake, self.source, self.built, self.out, self.work = (os.path.join(self.root, name) for name in ("fake", "source", "built", "out", "work"))
        write(self.source + "/src/codec/registry.def", "".join(f'CRIMP_CODEC({name}, "{name}", with_kernels)\n' for name in CODECS))
        write(self.source + "/COMMIT", "one\n")
        write(self.source + "/scripts/gpu_torch.py", "import os, sys\nos.execv(os.environ['FAKE'] + '/torch', ['gpu_torch'] + sys.argv)\n")
        os.makedirs(self.source + "/tests/gpu")
        shutil.copy(SOURCE + "/tests/gpu/sanitize.sh", self.source + "/tests/gpu")
        for name in ("crimp", "crimp_gpu_unit", "crimp_gpu_ranks"):
            write(f"{self.built}/bin/{name}", PROGRAM, 0o755)
        write(self.built + "/gpu_tests.json", json.dumps({"tests": [{"name": "gpu.ranks.late", "command": ["@BUILT@/bin/crimp_gpu_ranks", "late"]},
                                                                    {"name": "gpu.device_codec", "command": ["false"]}]}))
        write(self.fake + "/torch", PROGRAM.replace('$(basename "$0")', "gpu_torch"), 0o755)
        for name, text in ("mpirun", MPIRUN), ("compute-sanitizer", SANITIZER), ("ncu", NCU), ("nvcc", BUILDER), ("cmake", BUILDER), ("ninja", BUILDER), ("ctest", "#!/bin/sh\necho '{\"tests\": []}'\n"):
            write(f"{self.fake}/bin/{name}", text, 0o755)
        write(self.fake + "/bin/nvidia-smi", "#!/bin/sh\necho 'A Card, 580.1, 9.0'\n", 0o755)
        write(self.fake + "/calls", "")

    def does(self, what, pattern=None):
        """What the programs do whose call contains the pattern; none: nobody does."""
        path = f"{self.fake}/{what}"
        if pattern is None:
            os.remove(path)
        else:
            write(path, pattern)

    def command(self, *options, built=True):
        return [sys.executable, SCRIPT, self.out, "--source", self.source, "--work", self.work, "--jobs", "4", *(["--built", self.built] if built else []), *options]

    def environment(self):
        return {**os.environ, "FAKE": self.fake, "PATH": self.fake + "/bin:" + os.environ["PATH"]}

    def check(self, *options, built=True):
        """Exit status and what is said."""
        done = subprocess.run(self.command(*options, built=built), env=self.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def lines(self, out=None):
        with open((out or self.out) + "/results.jsonl") as file:
            return [json.loads(line) for line in file]

    def ended(self, state="passed"):
        return [line["item"] for line in self.lines() if line.get("state") == state]

    def calls(self):
        with open(self.fake + "/calls") as file:
            return file.read().splitlines()

    def wait_for(self, what):
        for _ in range(500):
            if what():
                return
            time.sleep(0.02)
        self.fail("it did not come")

    def test_everything_in_order_and_then_nothing(self):
        status, said = self.check()
        self.assertEqual(status, 0, said)
        presets = [line["preset"] for line in self.lines() if line.get("state") == "passed"]
        self.assertEqual(list(dict.fromkeys(presets)), ["first", "codecs", "tests", "sanitize", "ncu", "torch"])
        passed = self.ended()
        self.assertEqual(len(passed), len(set(passed)))
        self.assertEqual(passed[:4], ["bench.16M.3lc:zero_run=0", "bench.16M.3lc", "bench.16M.qsgd", "allreduce.2.64M.3lc.allgather.chunk640k"])
        for name in ("test.fp16", "test.gpu.ranks.late", "racecheck.thc", "ncu.call.magnitude_of", "torch.plain", "torch.3lc", "grid.3lc:zero_run=0", "bench.powersgd"):
            self.assertIn(name, passed)
        self.assertNotIn("test.gpu.device_codec", passed)
        with open(SOURCE + "/tests/golden/kernel_resources.txt") as file:
            kernels = file.read()
        for kernel in [name.rpartition(".")[2] for name in passed if name.startswith("ncu.")]:
            self.assertRegex(kernels, rf"\b{kernel}\b")
        state = {line["item"]: line for line in self.lines() if line.get("state") == "passed"}
        self.assertEqual(state["bench.16M.3lc"]["figures"]["results"][0]["encode_us"], 2)
        self.assertEqual(state["ncu.thc.encode_pieces"]["figures"]["encode_pieces"]["Occupancy"]["Achieved Occupancy [%]"], "71.5")
        self.assertEqual({line["commit"] for line in self.lines()}, {"one"})
        self.assertEqual(self.lines()[0]["machine"]["card"], "A Card")
        self.assertEqual(sorted(os.listdir(self.out)), ["gpu_check.json", "gpu_check.tar.gz", "results.jsonl", "summary.txt"])
        with tarfile.open(self.out + "/gpu_check.tar.gz") as tar:
            names = tar.getnames()
        for name in ("results.jsonl", "log/test.fp16.log", "json/bench.16M.3lc.json"):
            self.assertIn(name, names)
        with open(self.out + "/summary.txt") as file:
            self.assertIn("bench.16M.3lc; 64 MiB: copy 1 GB/s, encode 2 us = 3.00", file.read())
        self.assertTrue(any(call.startswith("two_shot crimp bench allreduce") for call in self.calls()))
        before = self.calls()
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.calls(), before)

    def test_results_of_another_call_and_of_another_commit(self):
        self.check("--presets", "first")
        first, before = self.out, self.calls()
        self.out, self.work = self.root + "/out2", self.root + "/work2"
        self.assertEqual(self.check("--presets", "first", "--earlier", first + "/results.jsonl")[0], 0)
        self.assertEqual(self.calls(), before)
        self.assertIn("bench.16M.3lc", self.ended())  # the newest OUT has all
        self.check("--presets", "first", "--again", "grid.*")
        self.assertEqual(len(self.calls()), len(before) + 1)
        self.check("--presets", "first", "--commit", "two")
        self.assertEqual(len(self.calls()), 2 * len(before) + 1)

    def test_killed_at_any_moment(self):
        self.does("hang", "two_shot.chunk640k")
        run = subprocess.Popen(self.command("--presets", "first"), env=self.environment(), stdout=subprocess.DEVNULL)
        self.wait_for(lambda: any("two_shot" in call and "bench" in call for call in self.calls()))
        time.sleep(0.2)
        run.send_signal(signal.SIGKILL)
        run.wait()
        passed = self.ended()
        self.assertEqual(len(passed), 7)
        self.wait_for(lambda: not subprocess.run(["pgrep", "-f", self.built + "/bin"], capture_output=True).stdout)
        for folder in (self.out, self.work):  # and one whose last line was cut off
            with open(folder + "/results.jsonl", "a") as file:
                file.write('{"item": "bench.16M.3lc", "sta')
        self.does("hang")
        before = len(self.calls())
        status, said = self.check("--presets", "first")
        self.assertEqual(status, 0, said)
        self.assertEqual(len(self.calls()) - before, 5)  # 12 less 7
        self.assertEqual(len(self.ended()), 12)

    def test_killed_often(self):
        self.does("hang", "bench codec --device cuda --codec 3lc --json")
        for _ in range(2):
            run = subprocess.Popen(self.command("--presets", "first"), env=self.environment(), stdout=subprocess.DEVNULL)
            calls = len(self.calls())
            self.wait_for(lambda: any("--codec 3lc --json" in call for call in self.calls()[calls:]))
            run.send_signal(signal.SIGKILL)
            run.wait()
        before = len(self.calls())
        status, said = self.check("--presets", "first")
        self.assertEqual(status, 1, said)
        self.assertEqual(self.ended("lost"), ["bench.16M.3lc"])
        self.assertFalse(any("--codec 3lc --json" in call and "bench codec" in call for call in self.calls()[before:]))
        self.assertEqual(len(self.ended()), 11)

    def test_ended_politely(self):
        self.does("hang", "two_shot.chunk640k")
        run = subprocess.Popen(self.command("--presets", "first"), env=self.environment(), stdout=subprocess.PIPE, text=True)
        self.wait_for(lambda: any("two_shot" in call for call in self.calls()))
        run.send_signal(signal.SIGTERM)
        said = run.communicate()[0]
        self.assertEqual(run.returncode, 3, said)
        self.assertEqual(self.ended("cut"), ["allreduce.2.64M.3lc.two_shot.chunk640k"])
        self.assertTrue(os.path.exists(self.out + "/gpu_check.tar.gz"))

    def test_budget(self):
        self.does("slow", "bench")
        began = time.monotonic()
        status, said = self.check("--presets", "first,torch", "--budget", "13")  # an item is begun while ten seconds are left
        self.assertEqual(status, 3, said)
        self.assertLess(time.monotonic() - began, 30)
        first = [line for line in self.lines() if line.get("state") == "passed" and line["preset"] == "first"]
        self.assertTrue(1 <= len(first) <= 8, said)
        self.assertIn("torch.plain", self.ended())  # which has a budget of its own
        self.assertRegex(said, r"gpu_check: .*\d left: .*grid\.3lc")
        with open(self.out + "/gpu_check.json") as file:
            self.assertIn("grid.3lc:zero_run=0", json.load(file)["left"])
        self.does("slow")
        self.assertEqual(self.check("--presets", "first,torch")[0], 0)
        self.assertEqual(len([name for name in self.ended() if not name.startswith("torch")]), 12)

    def test_limits(self):
        """What takes longer than it may, and what the end of the time cuts off: the first has failed, the second is begun anew."""
        module = script()
        for folder in ("log", "json"):
            os.makedirs(f"{self.work}/{folder}")
        journal = module.Journal([self.work + "/results.jsonl"], [])
        places = type("Places", (), {"work": self.work})
        run = module.Run(places, journal, "one", 2, "")
        seconds = f"51.{os.getpid()}"
        sleep = ["bash", "-c", f"sleep {seconds} & sleep {seconds}"]
        run.items("p", [module.Item("long", sleep, 0.3, least=0), module.Item("zero", ["echo", "test cases:    0 | 0 passed"], least=0), module.Item("none", ["/no/such"], least=0),
                        module.Item("cut", sleep, 60, least=0), module.Item("left", sleep, 60, least=5)], time.monotonic() + 3)
        state = {name: record["state"] for name, record in journal.last("one")[0].items()}
        self.assertEqual(state, {"long": "timeout", "zero": "failed", "none": "failed", "cut": "cut"})
        self.assertEqual(run.left, [("p", "left")])
        self.assertEqual(subprocess.run(["pgrep", "-f", "sleep " + seconds], capture_output=True).stdout, b"")  # nor a child of theirs
        again = module.Run(places, journal, "one", 2, "")
        self.assertEqual(again.done, {"long", "zero", "none"})

    def test_failures(self):
        self.does("fail", "--codec 3lc --json")
        self.does("crash", "fp16 crimp_gpu_unit")
        status, said = self.check("--presets", "first,tests")
        self.assertEqual(status, 1, said)
        self.assertEqual(sorted(self.ended("failed")), ["bench.16M.3lc", "test.fp16"])
        failed = {line["item"]: line for line in self.lines() if line.get("state") == "failed"}
        self.assertEqual(failed["test.fp16"]["status"], -signal.SIGSEGV)
        self.assertIn("it is wrong", failed["bench.16M.3lc"]["said"])
        self.assertEqual(len(failed["bench.16M.3lc"]["figures"]["results"]), 1)  # what it had written before
        self.assertIn("test.3lc", self.ended())
        with open(self.built + "/bin/crimp", "a") as program:  # figures of another form end nothing
            program.write("[ -z \"${json:-}\" ] || echo '{\"bench\": \"codec\", \"results\": [{}]}' >\"$json\"\n")
        self.assertEqual(self.check("--presets", "first", "--again", "grid.*", "--commit", "two")[0], 1)
        self.assertIn("passed", [line["state"] for line in self.lines() if line.get("item") == "grid.3lc:zero_run=0"])
        self.assertIn("failed: bench.16M.3lc, test.fp16", said)

    def test_no_gpu(self):
        self.does("silent", "bench")
        status, said = self.check("--presets", "first")
        self.assertEqual(status, 77, said)
        self.assertIn("no GPU answers", said)
        self.does("silent")
        self.assertEqual(self.check("--presets", "first")[0], 0)
        self.assertEqual(len(self.ended()), 12)

    def test_built_is_what_a_preset_needs(self):
        def ninja():
            return [call.split(" -j 4 ")[1] for call in self.calls() if call.startswith("ninja")]
        self.check("--presets", "first,sanitize,tests", built=False)
        self.assertEqual(ninja(), ["crimp crimp_tool crimp_cuda", "crimp_gpu_unit", "crimp crimp_cuda crimp_gpu_unit crimp_gpu_ranks"])
        self.assertTrue(any("-DCRIMP_CUDA_ARCHITECTURES=90" in call for call in self.calls() if call.startswith("cmake")))
        self.does("broken", "")
        before = len(self.calls())
        status, said = self.check("--presets", "torch", built=False)
        self.assertEqual(status, 1, said)
        self.assertEqual(len(self.calls()), before + 1)  # cmake, and nothing behind it

    @unittest.skipIf(subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0, "no network namespace can be made here")
    def test_loopback_is_brought_up(self):
        done = subprocess.run(["unshare", "-n", *self.command("--presets", "torch"), "--again", "*"], env=self.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.lines()[0]["machine"]["lo"], "brought up")

    @unittest.skipUnless("GPU_CHECK_BUILT" in os.environ, "needs programs built for the stand-in")
    def test_figures_of_the_real_programs(self):
        """What `crimp bench` writes is what the script reads; the stand-in for CUDA is the GPU, $GPU_CHECK_SETTINGS how it is found."""
        module = script()
        for name in [name for name in os.environ if name.startswith("OMPI_MCA")]:
            del os.environ[name]
        places = module.Places(type("Arguments", (), {"source": SOURCE, "work": self.work, "bundle": None, "built": os.environ["GPU_CHECK_BUILT"]}))
        journal = module.Journal([self.work + "/results.jsonl"], [])
        items = module.Items(places)
        specs = [word for item in items.all_codecs() if item.name.startswith("bench.") for word in item.command[item.command.index("--codec"):item.command.index("--codec") + 2]]
        legal = subprocess.run([items.program("crimp"), "bench", "codec", "--count", "1k", "--repeat", "1", *specs], capture_output=True, text=True)
        self.assertEqual(legal.returncode, 0, legal.stderr)
        items = [items.bench("fp16", "12k", "1k"), items.bench("powersgd", "12k"), items.allreduce(2, "80000", "fp16", "two_shot", "10240")]
        for item in items:
            item.env.update(setting.split("=", 1) for setting in os.environ["GPU_CHECK_SETTINGS"].split())
            item.command += ["--ranks", "2", "--repeat", "1"] if item.name.startswith("bench") else []
        module.Run(places, journal, "one", 1, "").items("p", items, time.monotonic() + 200)
        state = journal.last("one")[0]
        self.assertEqual([state[item.name]["state"] for item in items], ["passed"] * 3, state)
        said = [module.short(state[item.name]["figures"]) for item in items]
        self.assertRegex(said[0], "^; 0 MiB: copy [0-9]+ GB/s, encode .* 16[.]04 bits; 0 MiB: .* 16[.]50 bits$")
        self.assertRegex(said[1], "^; 0 MiB: copy .* bits$")
        self.assertRegex(said[2], "^; 0 MiB: staged by hand and plain MPI [0-9]+ us, Crimp [0-9]+ us$")
        with open(items.pop().env["CRIMP_REPORT"]) as file:
            self.assertIn("two_shot", json.load(file)["per_rank"][0]["algorithms"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
