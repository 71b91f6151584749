"""Training on Fashion-MNIST with torch.distributed, by data-parallel buckets or sharded as FSDP does. Rank 0 ends with one line of JSON.

Equal options give equal weights at the start and the same images in the same order; what differs between runs comes from the exchange of gradients.
"""
import argparse
import contextlib
import gzip
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import crimp.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "horovod"))
from models import MODELS  # noqa: E402

WARM_UP_STEPS = 5  # not in the step time: buckets are made anew, buffers grow, the chooser measures

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--backend", default="crimp")
parser.add_argument("--bf16", action="store_true", help="torch's own bf16 hook")
parser.add_argument("--sharded", action="store_true", help="reduce_scatter of gradients, all_gather of weights")
parser.add_argument("--unnamed", action="store_true", help="of sharded: without names of parameters")
parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
parser.add_argument("--epochs", type=int, default=1, help="length of the learning-rate schedule")
parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: all)")
parser.add_argument("--batch", type=int, default=64, help="images per rank and step")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--accuracy", action="store_true", help="test at the end")
parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist", help="folder of the IDX files")
args = parser.parse_args()


def read_idx(name, dimensions):
    with gzip.open(args.data / name) as file:
        data = np.frombuffer(file.read(), np.uint8)
    return data[4 + 4 * dimensions:].reshape(data[4:4 + 4 * dimensions].view(">i4"))


def batch_of(data, indices):
    images, labels = data
    pixels = torch.from_numpy(images[indices].astype(np.float32)).unsqueeze(1)
    return (pixels / 255 - 0.286) / 0.353, torch.from_numpy(labels[indices].astype(np.int64))


def learning_rate(step, steps):
    """Linear warm-up over a twentieth of the steps, then half a cosine down to 0."""
    warm = max(1.0, 0.05 * steps)
    return args.lr * min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0.0, step - warm) / max(1.0, steps - warm))))


class Sharded:
    """Each rank keeps a part of the weights and of the momentum."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.label = crimp.torch.label([(name, p.numel()) for name, p in model.named_parameters()])
        count = sum(p.numel() for p in self.parameters)
        self.flat = torch.zeros(math.ceil(count / ranks) * ranks)
        self.gradient = torch.zeros_like(self.flat)
        at = 0
        for p in self.parameters:
            view = slice(at, at + p.numel())
            self.flat[view] = p.detach().flatten()
            p.data, p.grad = self.flat[view].view_as(p), self.gradient[view].view_as(p)
            at += p.numel()
        self.shard = self.flat.chunk(ranks)[rank].clone().requires_grad_()
        self.shard.grad = torch.zeros_like(self.shard)
        self.optimizer = torch.optim.SGD([self.shard], lr=args.lr, momentum=0.9)
        self.param_groups = self.optimizer.param_groups
        self.scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        self.gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base

    def zero_grad(self):
        self.gradient.zero_()

    def step(self):
        with contextlib.nullcontext() if args.unnamed else crimp.torch.named(self.label):
            self.scatter(self.shard.grad, self.gradient)
        self.shard.grad /= ranks
        self.optimizer.step()
        self.gather(self.flat, self.shard.detach())


def correct_of(model, data):
    correct = 0
    mine = np.arange(len(data[1]))[rank::ranks]
    with torch.no_grad():
        for indices in np.array_split(mine, math.ceil(len(mine) / 250)):
            images, labels = batch_of(data, indices)
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct


def sent_bytes():
    try:
        return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
    except OSError:
        return 0


dist.init_process_group(args.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)  # one rank, one core
torch.manual_seed(args.seed)
training = read_idx("train-images-idx3-ubyte.gz", 3), read_idx("train-labels-idx1-ubyte.gz", 1)
model = MODELS[args.model]()
if args.sharded:
    network, optimizer = model, Sharded(model)
else:
    network = DistributedDataParallel(model)
    if args.bf16:
        network.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9)

epoch_steps = len(training[1]) // (args.batch * ranks)
schedule = args.epochs * epoch_steps
steps = min(args.steps or schedule, schedule)
times, losses, sent = [], [], 0
for step in range(steps):
    if step % epoch_steps == 0:  # the same order on all ranks
        order = np.random.default_rng([args.seed, step // epoch_steps]).permutation(len(training[1]))
    if step == min(WARM_UP_STEPS, steps - 1):
        sent = -sent_bytes()
    start = time.perf_counter()
    first = (step % epoch_steps * ranks + rank) * args.batch
    images, labels = batch_of(training, order[first:first + args.batch])
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, schedule)
    optimizer.zero_grad()
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    times.append(1e3 * (time.perf_counter() - start))
    losses.append(loss.item())
measured = times[WARM_UP_STEPS:] or times[-1:]
facts = torch.tensor([float(sent + sent_bytes()), statistics.mean(losses[-20:]), 0.0], dtype=torch.float64)
if args.accuracy:
    facts[2] = correct_of(model, (read_idx("t10k-images-idx3-ubyte.gz", 3), read_idx("t10k-labels-idx1-ubyte.gz", 1)))
dist.all_reduce(facts)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everywhere = [torch.empty_like(weights) for _ in range(ranks)]
dist.all_gather(everywhere, weights)
if rank == 0:
    print(json.dumps({
        "model": args.model, "params": weights.numel(), "steps": steps, "step_ms": round(statistics.median(measured), 2),
        "bytes_per_step": round(facts[0].item() / len(measured)), "loss": round(facts[1].item() / ranks, 6),
        "accuracy": facts[2].item() / 10000 if args.accuracy else None, "train_s": round(sum(times) / 1e3, 2),
        "identical": all(torch.equal(one, weights) for one in everywhere)}))
