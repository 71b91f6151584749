#!/usr/bin/python3
"""Table and figure of a demo run.

    figures.py RESULTS FIGURE.png

RESULTS is what demo.sh leaves: NETWORK-KIND.json and .csv per run; kinds are plain and crimp (whole trainings), probe and default
(a few steps of plain training with the ring, and with the algorithm of Open MPI's own choice), alone (a few steps without any exchange).
"""
import argparse
import csv
import json
import math
import pathlib
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("results", type=pathlib.Path)
parser.add_argument("figure", type=pathlib.Path)
arguments = parser.parse_args()

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker

TITLES = {"1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s"}
COLORS = {"plain": "#5f6b7a", "crimp": "#d1495b"}


class Run:
    """One training: `curve` is a list of (training seconds, accuracy)."""

    def __init__(self, path):
        data = json.loads(path.read_text())
        self.network, self.kind, self.codec = data["network"], data["kind"], data["codec"]
        self.run = data["run"]
        self.steps, self.step_ms, self.identical = self.run["steps"], self.run["step_ms"], self.run["identical"]
        self.step_bytes = data["bytes"] / self.steps
        self.accuracy, self.wall_s = self.run["accuracy"], self.run["wall_s"]
        with open(path.with_suffix(".csv")) as file:
            self.rows = [(int(r["step"]), float(r["wall_s"]), float(r["accuracy"])) for r in csv.DictReader(file)]
        self.curve = [(wall, accuracy) for _, wall, accuracy in self.rows]
        self.extrapolated = False

    def seconds_to(self, accuracy):
        """First time at which the curve, joined by straight lines, reaches the accuracy; None where it does not."""
        before = (0.0, 0.0)
        for point in self.curve:
            if point[1] >= accuracy:
                (t0, a0), (t1, a1) = before, point
                return t0 + (t1 - t0) * (accuracy - a0) / (a1 - a0)
            before = point
        return None


def load(folder):
    """{network: {kind: Run}} and the run without exchange; a network with only a probe of plain training gets `plain` by extrapolation."""
    networks, alone = {}, None
    for path in sorted(folder.glob("*-*.json")):
        if "report" not in path.stem:
            run = Run(path)
            if run.kind == "alone":
                alone = run
                continue
            networks.setdefault(run.network, {})[run.kind] = run
    full_network, full = next((n, runs["plain"]) for n, runs in networks.items() if "plain" in runs)
    reference = networks[full_network]["probe"].run["weights_hash"]
    for runs in networks.values():
        if "plain" not in runs:
            plain = runs["plain"] = runs["probe"]
            if plain.run["weights_hash"] != reference:
                sys.exit("figures.py: plain training differs between networks; its accuracy cannot be carried over")
            seconds = plain.step_ms / 1e3
            plain.curve = [(step * seconds, accuracy) for step, _, accuracy in full.rows]
            plain.wall_s, plain.accuracy, plain.extrapolated = full.steps * seconds, full.accuracy, True
    order = [full_network] + [n for n in networks if n != full_network]
    return {name: networks[name] for name in order}, alone


def print_table(networks, alone, target):
    header = ["network", "run", "step ms", "MB/step", "ratio", "accuracy", "training s", f"s to {100 * target:g} %", "speed-up"]
    rows = [header]
    if alone:
        rows.append(["-", "no exchange", f"{alone.step_ms:.0f}"] + ["-"] * (len(header) - 3))
    for name, runs in networks.items():
        plain, plain_to = runs["plain"], runs["plain"].seconds_to(target)
        for kind, label in (("default", "plain, Open MPI's choice"), ("plain", "plain, ring"), ("crimp", "Crimp " + plain.codec)):
            run = runs[kind]
            row = [TITLES.get(name, name), label, f"{run.step_ms:.0f}", f"{run.step_bytes / 1e6:.2f}"]
            row.append(f"{plain.step_bytes / run.step_bytes:.1f}")
            if kind == "default":
                row += ["-"] * 4
            else:
                mark = "*" if run.extrapolated else ""
                to = run.seconds_to(target)
                row += [f"{100 * run.accuracy:.2f} %{mark}", f"{run.wall_s:.0f}{mark}", f"{to:.0f}{mark}" if to else "-"]
                row.append(f"{plain_to / to:.1f}" if to and plain_to else "-")
            rows.append(row)
    widths = [max(len(row[c]) for row in rows) for c in range(len(header))]
    for i, row in enumerate(rows):
        print("  ".join(cell.ljust(w) if c < 2 else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths))).rstrip())
        if i == 0:
            print("  ".join("-" * w for w in widths))
    any_run = next(iter(networks.values()))["plain"].run
    everyone = [run for runs in networks.values() for run in runs.values()]
    print(f"\n{any_run['params']} parameters in fp32 on {any_run['ranks']} ranks. step ms: median of rank 0. MB/step: sent by all ranks "
          "together, read from the\ninterface counters. ratio, speed-up: against plain with the ring. Test runs are not in the times.")
    for name, runs in networks.items():
        if runs["plain"].extrapolated:
            print(f"* not trained to the end at {TITLES.get(name, name)}: extrapolated from the step time of {runs['plain'].steps} measured steps. "
                  "After those its weights are bit\n  for bit the ones of the plain run at the first rate, whose accuracy after each step is therefore taken over.")
    same = all(run.identical for run in everyone)
    print("All ranks ended every run with identical weights." if same else "RANKS ENDED WITH DIFFERENT WEIGHTS.")
    return same


def draw(networks, target, path):
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "font.family": "DejaVu Sans"})
    figure, panels = plt.subplots(1, len(networks), figsize=(5.2 * len(networks), 4.6), sharey=True, squeeze=False)
    floor = min(run.curve[0][1] for runs in networks.values() for run in (runs["plain"], runs["crimp"]))
    for axes, (name, runs) in zip(panels[0], networks.items()):
        reached = {}
        for kind in ("plain", "crimp"):
            run = runs[kind]
            label = "plain MPI, ring" if kind == "plain" else f"Crimp {run.codec}"
            if run.extrapolated:
                label += " (extrapolated from measured step time)"
            axes.plot([t for t, _ in run.curve], [100 * a for _, a in run.curve], "--" if run.extrapolated else "-", marker="o",
                      markersize=3.5, linewidth=1.8, color=COLORS[kind], label=label)
            reached[kind] = run.seconds_to(target)
        axes.axhline(100 * target, color="#b0b7c0", linewidth=0.9, zorder=0)
        if all(reached.values()):
            axes.annotate("", (reached["crimp"], 100 * target), (reached["plain"], 100 * target),
                          arrowprops={"arrowstyle": "->", "color": "#222222", "linewidth": 1.1})
            axes.annotate(f"{100 * target:g} % after {reached['crimp']:.0f} s, not {reached['plain']:.0f} s",
                          (math.sqrt(reached["crimp"] * reached["plain"]), 100 * target), (0, 7), textcoords="offset points", ha="center")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axes.set_title(TITLES.get(name, name), loc="left", fontweight="bold")
        axes.set_xlabel("training time (s)")
        axes.grid(alpha=0.25)
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.14), frameon=False)
    panels[0][0].set_ylabel("test accuracy (%)")
    panels[0][0].set_ylim(max(0, 100 * floor - 3), 100 * target + 4)
    figure.suptitle(f"Fashion-MNIST, {runs['plain'].run['params'] / 1e6:.1f} M parameters, data-parallel on "
                    f"{runs['plain'].run['ranks']} ranks", x=0.01, ha="left", fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\nFigure: {path}")


def main():
    networks, alone = load(arguments.results)
    best = min(max(a for _, a in runs[kind].curve) for runs in networks.values() for kind in ("plain", "crimp"))
    target = math.floor(best * 200) / 200  # the highest half per cent that all runs reach
    same = print_table(networks, alone, target)
    draw(networks, target, arguments.figure)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
