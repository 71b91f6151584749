"""Data-parallel training on Fashion-MNIST with Horovod, as its users write it. Knows nothing of Crimp.

Rank 0 shows progress and ends with one line of JSON. Equal options and ranks give equal weights at the start and the same images in
the same order; what differs between runs comes from the exchange of gradients.
"""
import argparse
import gzip
import hashlib
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import horovod.torch as hvd

from models import MODELS, Paced

WARM_UP_STEPS = 5  # not in the step time: Horovod negotiates names in the first ones, buffers grow

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
parser.add_argument("--compression", choices=("none", "fp16"), default="none", help="Horovod's own")
parser.add_argument("--alone", action="store_true", help="exchange no gradients: the step without network")
parser.add_argument("--groups", type=int, default=0, metavar="N", help="groups of DistributedOptimizer (0: none)")
parser.add_argument("--epochs", type=int, default=1, help="length of the learning-rate schedule")
parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: all)")
parser.add_argument("--batch", type=int, default=64, help="images per rank and step")
parser.add_argument("--lr", type=float, help="peak learning rate (0.05; deep: 0.01)")
parser.add_argument("--seed", type=int, default=1, help="of weights and of the order of the images")
parser.add_argument("--accuracy", action="store_true", help="test after every epoch and at the end")
parser.add_argument("--join", action="store_true", help="the last rank ends after half of the steps with hvd.join()")
parser.add_argument("--phase", action="append", default=[], metavar="STEPS:COMMAND",
                    help="these steps follow once rank 0 has run the shell command, as one that changes the network; repeatable")
parser.add_argument("--late", type=float, default=0, metavar="MS", help="in the last phase the last rank begins each step so much later")
parser.add_argument("--paced", type=float, default=0, metavar="MS",
                    help="computing takes so long, and no processor; gradients are noise: ranks that share this machine's cores do not wait for them")
parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist", help="folder of the IDX files")
args = parser.parse_args()
if args.lr is None:
    args.lr = 0.01 if args.model == "deep" else 0.05


def read_idx(name, dimensions):
    path = args.data / name
    try:
        with gzip.open(path) as file:
            data = np.frombuffer(file.read(), np.uint8)
    except FileNotFoundError:
        sys.exit(f"train.py: {path} is missing (Debian package dataset-fashion-mnist, or --data)")
    shape = data[4:4 + 4 * dimensions].view(">i4")
    return data[4 + 4 * dimensions:].reshape(shape)


def batch_of(data, indices):
    images, labels = data
    pixels = torch.from_numpy(images[indices].astype(np.float32)).unsqueeze(1)
    return (pixels / 255 - 0.286) / 0.353, torch.from_numpy(labels[indices].astype(np.int64))


def learning_rate(step, steps):
    """Linear warm-up over a twentieth of the steps, then half a cosine down to 0."""
    warm = max(1.0, 0.05 * steps)
    return args.lr * min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0.0, step - warm) / max(1.0, steps - warm))))


def sent_bytes():
    """What this host has sent. Ranks have hosts of their own; where they share one there is no such interface."""
    try:
        return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
    except OSError:
        return 0


def total(value, name):
    return hvd.allreduce(torch.tensor(float(value), dtype=torch.float64), op=hvd.Sum, name=name).item()


def accuracy(model, data):
    model.eval()
    correct = 0
    mine = np.arange(len(data[1]))[hvd.rank()::hvd.size()]
    with torch.no_grad():
        for indices in np.array_split(mine, math.ceil(len(mine) / 250)):
            images, labels = batch_of(data, indices)
            correct += (model(images).argmax(1) == labels).sum().item()
    model.train()
    return total(correct, "correct") / len(data[1])


def weights_hash(model):
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


hvd.init()
torch.set_num_threads(1)  # one rank, one core
torch.manual_seed(args.seed)
rank, ranks = hvd.rank(), hvd.size()
training = read_idx("train-images-idx3-ubyte.gz", 3), read_idx("train-labels-idx1-ubyte.gz", 1)
if args.accuracy:
    test = read_idx("t10k-images-idx3-ubyte.gz", 3), read_idx("t10k-labels-idx1-ubyte.gz", 1)

model = MODELS[args.model]()
if args.paced:
    model = Paced(model, args.paced / 1e3, 1000 * args.seed + rank)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
if not args.alone:
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=getattr(hvd.Compression, args.compression),
        groups=args.groups or None)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

params = sum(p.numel() for p in model.parameters())
tensors = sum(1 for _ in model.parameters())
epoch_steps = len(training[1]) // (args.batch * ranks)
schedule = args.epochs * epoch_steps
phases, phase_begin = [], 0  # (first step, end, command)
for phase in args.phase:
    length, _, command = phase.partition(":")
    phases.append((phase_begin, phase_begin + int(length), command))
    phase_begin += int(length)
steps = min(args.steps or phase_begin or schedule, schedule)
my_steps = steps // 2 if args.join and rank == ranks - 1 else steps
say(f"{args.model}: {params} parameters in {tensors} tensors, {ranks} ranks, batch {args.batch * ranks}, {steps} of {schedule} steps")

times, losses, scores = [], [], []
sent = said = 0
for step in range(my_steps):
    if step % epoch_steps == 0:  # the same order on all ranks
        order = np.random.default_rng([args.seed, step // epoch_steps]).permutation(len(training[1]))
    if step == min(WARM_UP_STEPS, my_steps - 1):
        sent -= sent_bytes()
    for begin, _, command in phases:
        if step == begin and rank == 0:
            say(f"step {step:5}/{steps}  {command}")
            subprocess.run(command, shell=True, check=True)
    if phases and step in (begin for begin, _, _ in phases):
        total(0, "phase")  # all see its first step begin
    start = time.perf_counter()
    if args.late and rank == ranks - 1 and step >= phases[-1][0]:
        time.sleep(args.late / 1e3)
    first = (step % epoch_steps * ranks + rank) * args.batch
    images, labels = batch_of(training, order[first:first + args.batch])
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, schedule)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    times.append(1e3 * (time.perf_counter() - start))
    losses.append(loss.item())
    if args.accuracy and not args.join and (step + 1) % epoch_steps == 0 and step + 1 < steps:
        sent += sent_bytes()
        scores.append(accuracy(model, test))
        sent -= sent_bytes()
        say(f"step {step + 1:5}/{steps}  test accuracy {100 * scores[-1]:.2f} %")
    elif step + 1 == my_steps or time.perf_counter() - said > 5:
        said = time.perf_counter()
        say(f"step {step + 1:5}/{steps}  {statistics.median(times[-20:]):6.0f} ms/step  loss {statistics.mean(losses[-20:]):.4f}")
measured = times[WARM_UP_STEPS:] or times[-1:]
sent += sent_bytes()

trained = [True] * ranks  # whose weights have seen every step
if args.join:
    hvd.join()
    trained[-1] = False
mine = weights_hash(model)
hashes = hvd.allgather(torch.tensor([list(bytes.fromhex(mine))], dtype=torch.uint8), name="weights_hash")
identical = all(torch.equal(row, hashes[0]) for row, whole in zip(hashes, trained) if whole)
last_loss = total(statistics.mean(losses[-20:]) if trained[rank] else 0.0, "loss") / sum(trained)
sent = total(sent, "sent")
if args.accuracy:
    if args.join:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    scores.append(accuracy(model, test))
say(json.dumps({
    "model": args.model, "compression": "alone" if args.alone else args.compression, "params": params, "tensors": tensors, "ranks": ranks,
    "batch": args.batch * ranks, "steps": steps, "schedule_steps": schedule,
    "step_ms": round(statistics.median(measured), 2),
    "step_ms_low": round(min(measured), 2), "step_ms_high": round(max(measured), 2), "bytes_per_step": round(sent / len(measured)),
    "loss": round(last_loss, 6), "accuracy": scores[-1] if scores else None, "accuracies": [round(s, 4) for s in scores],
    "phases": [{"command": command, "times_ms": [round(t, 2) for t in times[begin:end]]} for begin, end, command in phases],
    "train_s": round(sum(times) / 1e3, 2), "weights_hash": mine, "identical": identical}))
hvd.shutdown()
