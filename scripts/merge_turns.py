#!/usr/bin/env python3
"""Merge plans in turns within one run, under Horovod: what the machine does meanwhile is the same to all of them.

  merge_turns.py [--library FILE] [--np HOSTS] [--paced MS] [--models "deep mlp25"] [--rates "100mbit 1gbit 10gbit"] [--codecs "3lc topk:ratio=0.01 8bit"] [--rounds N]

For each model, codec and rate a run with CRIMP_MERGE=auto finds a plan; then a second one (CRIMP_REPLAY) takes in turns that one, none, all in one, two groups of equal bytes
and buckets, each for some steps, in an order that is drawn, and the median step of each is printed. Steps in which a plan begins do not count. Results stay in build/merge_turns; what is
there is not measured again. By allgather, so that calls that the first run did not make need no decision.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, BEGIN = 8, 2  # of a turn; those of them that do not count
FIRST = 400          # steps of the first run, which is through with its trials and the windows behind them by then

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--library", help="a libcrimp.so that is built already")
parser.add_argument("--np", default="2")
parser.add_argument("--paced", help="computing takes so many ms and no processor")
parser.add_argument("--models", default="deep mlp25")
parser.add_argument("--rates", default="100mbit 1gbit 10gbit")
parser.add_argument("--codecs", default="3lc topk:ratio=0.01 8bit")
parser.add_argument("--rounds", type=int, default=8)
args = parser.parse_args()


def train(cell, model, rate, codec, steps, environment):
    """The steps' times, and rank 0's plans."""
    line = [str(ROOT / "scripts/horovod.sh"), "train", "--no-setup", "--np", args.np, "--model", model, "--batch", "16", "--rate", rate, "--crimp", codec,
            "--report", f"{cell}-report.json", "--phase", f"{steps}:true"]
    line += ["--library", args.library] if args.library else []
    line += ["--paced", args.paced] if args.paced else []
    for name, value in {"CRIMP_MERGE": "auto", "CRIMP_ALGORITHM": "allgather", **environment}.items():
        line += ["--env", f"{name}={value}"]
    ended = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pathlib.Path(f"{cell}.log").write_text(ended.stdout)
    results = [text for text in ended.stdout.splitlines() if text.startswith('{"model"')]
    if ended.returncode or not results:
        sys.exit("\n".join(ended.stdout.splitlines()[-20:]) + f"\nmerge_turns.py: {cell}: {' '.join(line)} ended with {ended.returncode}")
    report = json.loads(pathlib.Path(f"{cell}-report.json").read_text())
    return json.loads(results[-1])["phases"][0]["times_ms"], report, max(report["per_rank"][0]["horovod"]["merge"]["plans"], key=lambda of: len(of["tensors"]))


def plans_of(report):
    """Cuts of each, None for none."""
    search = report["per_rank"][0]["horovod"]["merge"]["search"]
    sizes = [unit["bytes"] for unit in search["trace"]["units"]]
    firsts = [0]  # the units' first tensors
    for unit in search["trace"]["units"]:
        firsts.append(firsts[-1] + unit["tensors"])
    whole = sum(sizes)

    def buckets(most):
        cuts, filled = [], 0
        for unit, size in enumerate(sizes):
            if filled >= most:
                cuts.append(firsts[unit])
                filled = 0
            filled += size
        return cuts

    plans = {"none": None, "all in one": [], "y=2": buckets(whole / 2)}
    for mib in (2, 8, 32):
        if mib << 20 < whole:
            plans[f"{mib} MiB"] = buckets(mib << 20)
    chosen = search["chosen"]["cuts"] if search["chosen"]["holds"] else None
    same = [name for name in plans if plans[name] == chosen]
    if not same:  # else that one is auto's, and has its turns already
        plans["auto"] = chosen
    return plans, same[0] if same else "auto"


def turns(plans, rounds):
    names, order, draws = list(plans), [], random.Random(1)
    for _ in range(rounds):
        draws.shuffle(names)  # no plan always follows the same one
        order += names
    return order


def measure(folder, model, codec, rate):
    cell = folder / f"{model}-{codec.split(':')[0]}-{rate}"
    kept = pathlib.Path(f"{cell}.json")
    if not kept.exists():
        print(f"== {model}, {codec}, {rate}", file=sys.stderr, flush=True)
        first = pathlib.Path(f"{cell}-first.json")
        if not first.exists():
            _, report, found = train(f"{cell}-auto", model, rate, codec, FIRST, {})
            first.write_text(json.dumps([report, found]))
        report, found = json.loads(first.read_text())
        plans, auto = plans_of(report)
        order = turns(plans, args.rounds)
        found["turns"] = [{"steps": STEPS, "holds": plans[name] is not None, "cuts": plans[name] or []} for name in order]
        replayed = pathlib.Path(f"{cell}-replayed.json")
        replayed.write_text(json.dumps(report))
        steps = len(order) * STEPS
        times, _, ran = train(f"{cell}-turns", model, rate, codec, steps + 10, {"CRIMP_REPLAY": str(replayed)})
        before = len(times) - sum(turn["steps"] for turn in ran["turns"])
        medians = {name: [] for name in plans}
        for turn, name in enumerate(order):
            begin = before + turn * STEPS
            medians[name].append(statistics.median(times[begin + BEGIN:begin + STEPS]))
        kept.write_text(json.dumps({"plans": plans, "auto": auto, "medians": medians}))
    return json.loads(kept.read_text())


folder = ROOT / "build/merge_turns" / f"np{args.np}{f'-paced{args.paced}' if args.paced else ''}"
folder.mkdir(parents=True, exist_ok=True)
columns = ["none", "2 MiB", "8 MiB", "32 MiB", "all in one", "y=2", "auto"]
print("| model, codec, network | " + " | ".join(columns) + " | auto is | auto over the best other |")
print("|---|" + "---|" * (len(columns) + 2))
for model in args.models.split():
    for codec in args.codecs.split():
        for rate in args.rates.split():
            of = measure(folder, model, codec, rate)
            median = {name: statistics.median(each) for name, each in of["medians"].items()}
            auto = of["auto"]
            # Round by round: the machine has two speeds, and a plan's median is of one or the other.
            rounds = {name: sorted(a / b for a, b in zip(of["medians"][auto], each)) for name, each in of["medians"].items() if name != auto}
            ratios = max(rounds.values(), key=statistics.median)
            chosen = auto if auto != "auto" else f"{len(of['plans']['auto']) + 1} groups"
            quarter = len(ratios) // 4
            print(f"| {model}, {codec}, {rate} | " + " | ".join(f"{median[name]:.1f}" if name in median else "-" for name in columns)
                  + f" | {chosen} | {statistics.median(ratios):.2f} ({ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f}) |", flush=True)
