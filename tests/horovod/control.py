#!/usr/bin/python3
"""Table and figure of scripts/control.sh: a training whose network changes, under CRIMP_CONTROL=delay, fixed levels of its ladder, and no Crimp.

    control.py RESULTS FIGURE.png
"""
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PHASES = ["1 Gbit/s", "100 Mbit/s", "20 Mbit/s", "1 Gbit/s again", "one link 100 Mbit/s", "one host 0.3 s late"]
LEVELS = ["fp16", "8bit", "maxmin (4 bits)", "3lc s=0.5", "3lc s=1", "3lc s=1.5", "3lc s=1.9"]
SETTLED = 20  # steps after which a phase has to be settled


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def settled(times, skip):
    """The median of what follows the first steps of a phase; of short phases at least the last half."""
    return statistics.median(times[min(skip, len(times) // 2):])


def main(folder, figure):
    control = load(folder / "control.json")
    phases = [p["times_ms"] for p in control["phases"]]
    fixed = [[settled(p["times_ms"], 4 if i == 0 else 2) for i, p in enumerate(run["phases"])]
             for run in (load(folder / f"level{n}.json") for n in range(len(LEVELS)))]
    plain = [settled(p["times_ms"], 2) for p in load(folder / "plain.json")["phases"]]

    print("| network | " + " | ".join(LEVELS) + " | control, settled | of the best level | without Crimp |")
    print("|---|" + "---|" * (len(LEVELS) + 3))
    for i, name in enumerate(PHASES):
        levels = [f[i] for f in fixed]
        mine = settled(phases[i], SETTLED)
        print(f"| {name} | " + " | ".join(f"**{t:.0f}**" if t == min(levels) else f"{t:.0f}" for t in levels)
              + f" | {mine:.0f} | {mine / min(levels):.2f} | {plain[i]:.0f} |")
    ours = sum(map(sum, phases)) / 1e3
    # Without Crimp: its settled step in each phase, for as many steps.
    others = sum(t * len(p) for t, p in zip(plain, phases)) / 1e3
    print(f"\nThe whole run: {ours:.0f} s with the control, first steps included; without Crimp {others:.0f} s ({others / ours:.1f} times).")
    whole = load(folder / "accuracy.json")
    if whole and control["accuracy"]:
        print(f"Accuracy {100 * control['accuracy']:.2f} % against {100 * whole['accuracy']:.2f} %.")
    for i, name in enumerate(PHASES):
        # The first step from which on the median of five in a row is within a tenth of what the phase ends with.
        end = settled(phases[i], len(phases[i]) // 2)
        at = next((s for s in range(len(phases[i]) - 4) if all(
            statistics.median(phases[i][k:k + 5]) <= 1.1 * end for k in range(s, min(s + 10, len(phases[i]) - 4)))), len(phases[i]))
        print(f"{name}: settled after {at} steps")

    fig, axis = plt.subplots(figsize=(9, 4.2), constrained_layout=True)
    begin = 0
    for i, times in enumerate(phases):
        steps = range(begin, begin + len(times))
        axis.plot(steps, times, color="#d1495b", linewidth=1, label=None if i else "CRIMP_CONTROL=delay")
        best = min(f[i] for f in fixed)
        axis.hlines(best, begin, begin + len(times), color="#2e4057", label=None if i else "best fixed level of the phase")
        axis.hlines(fixed[0][i], begin, begin + len(times), color="#5f9ea0", linestyles="--", label=None if i else "16 bits")
        axis.hlines(plain[i], begin, begin + len(times), color="#9aa5b1", label=None if i else "without Crimp")
        axis.axvline(begin, color="#dddddd", linewidth=0.8, zorder=0)
        axis.text(begin + 1, 1.02, PHASES[i], fontsize=7.5, transform=axis.get_xaxis_transform())
        begin += len(times)
    axis.set_yscale("log")
    axis.set_xlabel("step")
    axis.set_ylabel("ms a step")
    axis.legend(fontsize=8, loc="upper left")
    axis.set_xlim(0, begin)
    fig.savefig(figure, dpi=130)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
