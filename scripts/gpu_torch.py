#!/usr/bin/env python3
"""Trains a small network in PyTorch on several ranks, gradients summed by MPI_Allreduce (mpi4py), with or without Crimp preloaded.

    mpirun -np 2 gpu_torch.py [--preload libcrimp.so] [--device cuda|cpu] [--steps N]

With Crimp gradients are handed to MPI where they are, in the card's memory; without they are copied to the host and back. Rank 0 prints one JSON object. Exit status 1: the
loss did not fall, a value is not finite, or ranks ended with different parameters; 77: there is no torch, no mpi4py or no card here.
"""
import argparse, json, os, statistics, sys, time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--preload", help="Crimp's library")
parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--width", type=int, default=1024, help="of the hidden layers")
args = parser.parse_args()
if args.preload and args.preload not in os.environ.get("LD_PRELOAD", ""):
    before = os.environ.get("LD_PRELOAD")
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": args.preload + (":" + before if before else "")})


def skip(why):
    print(json.dumps({"torch": None, "skipped": "skipped: " + why}))
    sys.exit(77)


try:
    import torch
except ImportError:
    skip("no torch")
if args.device == "cuda" and not torch.cuda.is_available():
    skip("no GPU answers torch")
try:
    from mpi4py import MPI
except ImportError as error:
    skip(f"no mpi4py that finds an MPI library: {error}")

world = MPI.COMM_WORLD
device = torch.device(args.device)
in_place = bool(args.preload)  # plain MPI cannot be trusted to take pointers to a card's memory


def shape(tensor):
    """What mpi4py takes."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def add_up(tensor):
    """The sum over all ranks, in the tensor; the caller's stream is the default one, which Crimp waits for."""
    if in_place or tensor.device.type == "cpu":
        world.Allreduce(MPI.IN_PLACE, shape(tensor))
    else:
        copy = tensor.cpu()
        world.Allreduce(MPI.IN_PLACE, shape(copy))
        tensor.copy_(copy)


def exact_sum(tensor):
    copy = tensor.double().cpu()
    MPI.Pcontrol(0)
    world.Allreduce(MPI.IN_PLACE, copy.numpy())
    MPI.Pcontrol(1)
    return copy


torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, 10)).to(device)
means = torch.randn(10, 784).to(device)  # of ten classes
torch.manual_seed(100 + world.rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses, times, error = [], [], 0.0
for step in range(args.steps):
    labels = torch.randint(10, (128,), device=device)
    values = 0.3 * means[labels] + torch.randn(128, 784, device=device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(values), labels)
    loss.backward()
    last = model[2].weight.grad.clone() if step == args.steps - 1 else None
    exact = exact_sum(last) if last is not None else None
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for parameter in model.parameters():
        add_up(parameter.grad)
    if device.type == "cuda":
        torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
    if exact is not None:
        error = float((model[2].weight.grad.double().cpu() - exact).norm() / exact.norm())
    for parameter in model.parameters():
        parameter.grad /= world.size
    optimizer.step()
    losses.append(float(loss.detach()))

flat = torch.cat([p.detach().flatten().double().cpu() for p in model.parameters()])
sums = world.allgather(float(flat.sum()) + float((flat * flat).sum()))
mean = world.allgather(losses)
first, end = (statistics.mean(statistics.mean(rank[part]) for rank in mean) for part in (slice(0, 5), slice(-5, None)))
good = len(set(sums)) == 1 and bool(torch.isfinite(flat).all()) and end < 0.8 * first
if world.rank == 0:
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "ranks": world.size, "crimp": bool(args.preload),
                      "codec": os.environ.get("CRIMP_CODEC") if args.preload else None, "parameters": flat.numel(), "loss_first": round(first, 4), "loss_last": round(end, 4),
                      "allreduce_ms_median": round(1e3 * statistics.median(times[len(times) // 2:]), 3), "error_of_a_sum": error, "same_on_all_ranks": len(set(sums)) == 1}))
sys.exit(0 if good else 1)
