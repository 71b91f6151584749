"""Tables of a comparison: tables.py RESULTS, the folder of STUDY-NETWORK-KIND.json files that horovod.sh compare leaves."""
import json
import pathlib
import sys

NETWORKS = {"unlimited": "no limit", "1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s"}
KINDS = {"alone": "no exchange", "none": "Compression.none", "fp16": "Compression.fp16", "crimp": "Crimp"}
STUDIES = {"cnn": "CNN", "mlp": "MLP"}


def load(folder):
    """{study: {network: {kind: result of train.py}}}, networks and kinds in the order above."""
    studies = {}
    for path in folder.glob("*.json"):
        if not path.stem.endswith("-report"):
            data = json.loads(path.read_text())
            studies.setdefault(data["study"], {}).setdefault(data["network"], {})[data["kind"]] = data["run"]
    def place(order):
        def key(item):  # trainings are KIND-SEED
            kind, _, seed = item[0].partition("-")
            return int(seed or 0), list(order).index(kind) if kind in order else len(order)
        return key
    return {study: {network: dict(sorted(kinds.items(), key=place(KINDS))) for network, kinds in sorted(networks.items(), key=place(NETWORKS))}
            for study, networks in studies.items()}


def show(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip())


def megabytes(run):
    return f"{run['bytes_per_step'] / 1e6:.1f}" if run["bytes_per_step"] else "-"


def ratio(a, b, digits):
    return f"{a / b:.{digits}f}" if a and b else "-"


def print_steps(networks):
    alone = next(kinds["alone"] for kinds in networks.values() if "alone" in kinds)
    print(f"\nStep time: {alone['params'] / 1e6:.1f} M parameters, {alone['ranks']} ranks, batch {alone['batch']}, median"
          f" (lowest-highest); MB/step: sent by all hosts; scaling: step without exchange / step")
    rows = [["network", "run", "step ms", "range", "MB/step", "ratio", "vs none", "vs fp16", "scaling"]]
    for network, kinds in networks.items():
        for kind, run in kinds.items():
            def against(other, key, run=run, kinds=kinds):
                return ratio(kinds[other][key], run[key], 2 if key == "step_ms" else 1) if other in kinds and run is not alone else "-"
            rows.append([NETWORKS.get(network, network), KINDS[kind], f"{run['step_ms']:.0f}", f"{run['step_ms_low']:.0f}-{run['step_ms_high']:.0f}",
                         "-" if run is alone else megabytes(run), against("none", "bytes_per_step"), against("none", "step_ms"),
                         against("fp16", "step_ms"), f"{alone['step_ms'] / run['step_ms']:.2f}"])
    show(rows)


def print_trainings(study, networks):
    run = next(iter(next(iter(networks.values())).values()))
    print(f"\n{STUDIES[study]}: {run['params'] / 1e6:.1f} M parameters in {run['tensors']} tensors, {run['ranks']} ranks, batch {run['batch']},"
          f" {run['steps']} of {run['schedule_steps']} steps")
    rows = [["network", "run", "seed", "step ms", "MB/step", "ratio", "training s", "loss", "accuracy", "ranks identical"]]
    for network, kinds in networks.items():
        for name, run in kinds.items():
            kind, _, seed = name.partition("-")
            rows.append([NETWORKS.get(network, network), KINDS[kind], seed, f"{run['step_ms']:.0f}", megabytes(run),
                         ratio(kinds["none-" + seed]["bytes_per_step"], run["bytes_per_step"], 1), f"{run['train_s']:.0f}", f"{run['loss']:.4f}",
                         f"{100 * run['accuracy']:.2f} %", "yes" if run["identical"] else "NO"])
    show(rows)


studies = load(pathlib.Path(sys.argv[1]))
if not studies:
    sys.exit(f"tables.py: no results in {sys.argv[1]}; 'horovod.sh compare' makes them")
for study, networks in sorted(studies.items(), key=lambda item: ["steps", "cnn", "mlp"].index(item[0])):
    print_steps(networks) if study == "steps" else print_trainings(study, networks)
