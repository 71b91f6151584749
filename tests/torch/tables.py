"""tables.py FOLDER: the tables of scripts/pytorch.sh."""
import collections
import json
import pathlib
import statistics
import sys

runs = {path.stem: json.loads(path.read_text()) for path in pathlib.Path(sys.argv[1]).glob("*.json") if not path.stem.endswith("-report")}
print(f"{'network':8}  {'model':6}  {'exchange':8}  {'step ms':>8}  {'MB/step':>8}  {'over fp32':>9}  {'over bf16':>9}  {'over gloo':>9}")
for rate in ("1gbit", "100mbit"):
    for model in ("mlp25", "cnn"):
        of = {kind: runs.get(f"step.{rate}.{model}.{kind}") for kind in ("gloo", "fp32", "bf16", "crimp")}
        for kind, run in of.items():
            if run:
                over = "  ".join(f"{of[other]['step_ms'] / run['step_ms']:9.2f}" if of[other] else " " * 9 for other in ("fp32", "bf16", "gloo"))
                print(f"{rate:8}  {model:6}  {kind:8}  {run['step_ms']:8.0f}  {run['bytes_per_step'] / 1e6:8.2f}  {over}")
print(f"\n{'training':8}  {'model':6}  {'exchange':8}  {'seeds':>5}  {'accuracy':>8}  {'from':>7}  {'to':>7}  {'loss':>8}")
seeds = collections.defaultdict(list)
for name, run in sorted(runs.items()):
    if not name.startswith("step"):
        way, model, kind, _ = name.split(".")
        seeds[way, model, kind].append(run)
for (way, model, kind), each in seeds.items():
    scores = [100 * run["accuracy"] for run in each]
    print(f"{way:8}  {model:6}  {kind:8}  {len(each):5}  {statistics.mean(scores):7.2f}%  {min(scores):6.2f}%  {max(scores):6.2f}%  "
          f"{statistics.mean(run['loss'] for run in each):8.5f}")
print("\nstep ms: median of rank 0. MB/step: sent by all hosts together. "
      + ("All ranks ended every run with the same weights." if all(run["identical"] for run in runs.values()) else "RANKS ENDED WITH DIFFERENT WEIGHTS."))
