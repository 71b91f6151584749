"""Real Horovod in many ways, with Crimp preloaded: are all data calls explained, and the weights the same on all ranks?

Runs steps.py once per variation (and once without Crimp where the weights must be the same to the bit), prints a table. Exit status 1
where a variation fails. To be run by scripts/horovod.sh variations.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
           "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "12"}
MERGE = {"CRIMP_MERGE": "all"}
AUTO = {"CRIMP_MERGE": "auto"}
CONTROL = {"CRIMP_CONTROL": "delay", "CRIMP_DELAY_TARGET": "1us"}
EXACT = {"CRIMP_CODEC": "none"}
STALLED = re.compile("waiting for remainder of ranks")

# name: options of steps.py, environment
VARIATIONS = {
    "default": ("", {}),
    "fp16": ("--fp16", {}),
    "groups": ("--groups 4", {}),
    "groups_apart": ("--groups 4", {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "groups_apart_200k": ("--groups 2", {"HOROVOD_DISABLE_GROUP_FUSION": "1", "HOROVOD_FUSION_THRESHOLD": "200000"}),
    "groups_norm_first": ("--groups 1 --way norm_first", {}),
    "group_beside_apart": ("--way bias", {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "threshold_0": ("", {"HOROVOD_FUSION_THRESHOLD": "0"}),
    "threshold_200k": ("", {"HOROVOD_FUSION_THRESHOLD": "200000"}),
    "cache_0": ("", {"HOROVOD_CACHE_CAPACITY": "0"}),
    "cache_8": ("", {"HOROVOD_CACHE_CAPACITY": "8"}),
    "cache_1024": ("", {"HOROVOD_CACHE_CAPACITY": "1024"}),
    # 30 MB of gradients: tuned thresholds, from 0 to 64 MiB, decide what shares a buffer.
    "autotune": ("--width 480", SAMPLES),
    "autotune_cached": ("--width 480", SAMPLES | {"HOROVOD_CACHE_CAPACITY": "1024"}),
    "timeline": ("", {"HOROVOD_TIMELINE": "{work}/timeline.json"}),
    "process_sets": ("--way process_sets", {}),
    "dynamic_sets": ("--way dynamic_sets", {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
    "join": ("--way join", {}),
    "metrics": ("--way metrics", {}),
    "metrics_dgc": ("--way accuracy", {"CRIMP_CODEC": "dgc", "CRIMP_RULES": "*accuracy=none:memory=none; *bias=none; <1024=none"}),
    "unnamed": ("--way unnamed", {}),
    "averages": ("--way averages", {}),
    "averages_8bit": ("--way averages", {"CRIMP_CODEC": "8bit"}),
    "twins": ("--way twins", {}),
    "gathered": ("--way gathered", {}),
    "beside": ("--way beside", {"CRIMP_CODEC": "8bit"}),
    "small_cache": ("--way small_cache", SAMPLES | {"HOROVOD_CACHE_CAPACITY": "6", "CRIMP_UNKNOWN_LAYOUT": "none", "CRIMP_RULES": "*.t[0-3]=none; <1024=none"}),
    "scaled": ("--way scaled", {}),
    "predivide": ("--predivide 2", {}),
    "initialised_again": ("--way again", {}),
    "merge_all": ("", MERGE),
    "merge_groups_apart": ("--groups 4", MERGE | {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "merge_split_groups": ("--groups 4", {"CRIMP_MERGE": "y=3", "HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "merge_join": ("--way join", MERGE),
    "merge_unnamed": ("--way unnamed", MERGE),
    "merge_again": ("--way again", MERGE),
    "auto_groups_apart": ("--groups 4", AUTO | {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "auto_process_sets": ("--way process_sets", AUTO),
    "auto_join": ("--way join", AUTO),
    "auto_metrics": ("--way metrics", AUTO),
    "auto_unnamed": ("--way unnamed", AUTO),
    "auto_again": ("--way again", AUTO),
    "auto_eviction": ("", AUTO | {"HOROVOD_CACHE_CAPACITY": "8"}),
    "control": ("", CONTROL),
    "control_join": ("--way join", CONTROL | AUTO),
    # The weights of a run without Crimp.
    "exact_auto_join": ("--way join", AUTO | EXACT),
    "exact_auto_shut": ("--way shut", AUTO | EXACT | {"CRIMP_HOLD_MS": "5000"}),
    "exact_merge_join": ("--way join", MERGE | EXACT),
    "exact_merge_bias": ("--way bias", MERGE | EXACT | {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "exact_merge_last_batch": ("--way last_batch", MERGE | EXACT | {"HOROVOD_DISABLE_GROUP_FUSION": "1"}),
    "exact_merge_stall": ("--way stall", MERGE | EXACT | {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}),
    "exact_merge_stall_hold": ("--way stall", MERGE | EXACT | {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "CRIMP_HOLD_MS": "2500"}),
    "exact_merge_shut": ("--way shut", MERGE | EXACT | {"CRIMP_HOLD_MS": "5000"}),
    "exact_adasum": ("--way adasum", {"CRIMP_MIN_COUNT": "1"}),
}

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--library", required=True, help="libcrimp.so")
parser.add_argument("--np", type=int, default=4)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--only", default="", metavar="NAMES", help="of variations, separated by commas: " + ", ".join(VARIATIONS))
parser.add_argument("--timeout", type=int, default=1200, help="seconds for one run")
parser.add_argument("--verbose", action="store_true", help="show what the runs print")
args = parser.parse_args()


def run(options, environment, work):
    """Exit status, what was said on standard error, and the JSON line of one run."""
    line = ["mpirun", "-np", str(args.np), "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "1",  # adds in rank order
            "--timeout", str(args.timeout)] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    for name, value in ({"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "MPI", "OMP_NUM_THREADS": "1"} | environment).items():
        line += ["-x", f"{name}={value.format(work=work)}"]
    line += [sys.executable, "-B", str(HERE / "steps.py"), "--steps", str(args.steps), *options.split()]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if args.verbose or done.returncode:
        print("+", " ".join(line), done.stdout + done.stderr, sep="\n")
    result = re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)
    return done.returncode, done.stderr, json.loads(result[-1]) if result else {}


def check(name):
    """The row of the table, and what is wrong."""
    options, environment = VARIATIONS[name]
    exact = name.startswith("exact_")
    wrong = []
    with tempfile.TemporaryDirectory() as work:
        ours = {"LD_PRELOAD": args.library, "CRIMP_CODEC": "3lc", "CRIMP_ALGORITHM": "allgather", "CRIMP_MIN_COUNT": "1k", "CRIMP_REPORT": f"{work}/report.json"} | environment
        begin = time.time()
        status, out, result = run(options, ours, work)
        took = time.time() - begin
        if status:
            return [name, "-", "-", "-", "-", "-", "-", f"{took:.0f}"], [f"ended with status {status}"]
        with open(f"{work}/report.json") as file:
            ranks = json.load(file)["per_rank"]
        if exact:
            plain_status, plain_out, plain = run(options, {k: v for k, v in environment.items() if k.startswith("HOROVOD")}, work)
            if plain_status or result.get("weights_hash") != plain.get("weights_hash"):
                wrong.append(f"the weights are {result.get('weights_hash')}, without Crimp {plain.get('weights_hash')}")
            if "stall" in name and not STALLED.search(out) or bool(STALLED.search(out)) != bool(STALLED.search(plain_out)):
                wrong.append(f"stall warnings: {bool(STALLED.search(out))}, without Crimp {bool(STALLED.search(plain_out))}")
    horovod = [r["horovod"] for r in ranks]
    explained, unexplained = horovod[0]["explained"], sum(h["unexplained"] for h in horovod)
    followed = "CRIMP_CODEC" not in environment  # with codec none nobody asks what lies in a call
    if followed and ("adasum" not in name and not explained or unexplained):
        wrong.append(f"{unexplained} data calls are not explained: {[h['unexplained_why'] for h in horovod]}")
    if not result.get("identical") or not result.get("finite"):
        wrong.append(f"the ranks' weights: {result}")
    if any(r["errors"] for r in ranks):
        wrong.append(f"errors: {[r['errors'] for r in ranks]}")
    if followed and set(ranks[0].get("layouts", {})) - {"negotiated"}:
        wrong.append(f"calls with layouts {ranks[0]['layouts'].keys()}")
    if "groups" in name and not ranks[0]["calls"]:
        wrong.append(f"no call was compressed: {ranks[0]['passed_through']}")
    if "adasum" in name and (not ranks[0]["passed_through"]["adasum"] or ranks[0]["calls"]):
        wrong.append(f"Adasum: {ranks[0]['passed_through']}, {ranks[0]['calls']} calls compressed")
    merge = horovod[0]["merge"]
    if environment.get("CRIMP_MERGE", "auto") != "auto" and not merge["groups"]:
        wrong.append("nothing was merged")
    if environment.get("CRIMP_MERGE") == "auto" and not any("search" in h["merge"] for h in horovod):
        wrong.append("nothing was searched")
    if "CRIMP_CONTROL" in environment:
        controls = [r["control"] for r in ranks]
        if not controls[0][0]["changes"] or not controls[0][0]["decisions"] or any(decided(c) != decided(controls[0]) for c in controls):
            wrong.append(f"levels: {controls}")
    merged = f"{merge['tensors']}/{merge['calls']}" if merge["groups"] else "-"
    calls = explained + horovod[0]["unexplained"]
    return [name, f"{explained}/{calls}" if followed else "-", str(ranks[0]["calls"]), str(ranks[0]["passed_through"]["adasum"]), merged,
            "yes" if result.get("identical") else "NO", "-" if not exact else "NO" if wrong else "yes", f"{took:.0f}"], wrong


def decided(controls):  # but for the list of decisions, which rank 0 has
    return [{key: value for key, value in of.items() if key != "decisions"} for of in controls]


for name in [name for name in os.environ if name.startswith("CRIMP_")]:
    del os.environ[name]
names = [n for n in args.only.split(",") if n] or list(VARIATIONS)
if unknown := [n for n in names if n not in VARIATIONS]:
    sys.exit(f"variations.py: there is no variation {', '.join(unknown)}; there are {', '.join(VARIATIONS)}")
widths, failed = (22, 14, 10, 7, 13, 9, 5, 4), 0


def show(row):
    print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


print(f"{args.np} ranks, {args.steps} steps, 70 tensors; counts are rank 0's, unexplained calls those of all ranks")
show(("variation", "explained", "compressed", "adasum", "merged", "identical", "exact", "s"))
for name in names:
    row, wrong = check(name)
    show(row)
    for text in wrong:
        print(f"    FAILED: {text}", flush=True)
    failed += bool(wrong)
sys.exit(failed > 0)
