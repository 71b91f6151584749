"""Steps of data-parallel training with Horovod in one of many ways (variations.py runs them all). Knows nothing of Crimp.

Rank 0 ends with one line of JSON: whether the weights are the same on all ranks, and their hash.
"""
import argparse
import hashlib
import json
import os
import sys
import time
from collections import OrderedDict

import torch
import torch.nn.functional as F

from models import chain

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--way", default="optimizer", help="how gradients are reduced, or what else happens; see the functions below")
parser.add_argument("--width", type=int, default=96, help="of the net: 33 layers of its square")
parser.add_argument("--groups", type=int, default=0)
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--predivide", type=float, default=1.0)
args = parser.parse_args()
if args.way == "again":
    from mpi4py import MPI  # initialises MPI, so that Horovod's shutdown leaves it alone
import horovod.torch as hvd


def start(model):
    """A distributed optimizer, and equal weights."""
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.001 if args.way == "adasum" else 0.01, momentum=0.9), named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16 else hvd.Compression.none, groups=args.groups or None,
        gradient_predivide_factor=args.predivide, op=hvd.Adasum if args.way == "adasum" else hvd.Average)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return optimizer


def loss_of(model, step):
    torch.manual_seed(args.seed * 1000003 + step * 101 + hvd.rank())
    return F.cross_entropy(model(torch.randn(4, 1, 28, 28)), torch.randint(10, (4,)))


def train(model, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(model, step)
    loss.backward()
    optimizer.step()
    return loss.detach()


def optimizer(model):
    opt = start(model)
    for step in range(args.steps):
        train(model, opt, step)


adasum = optimizer


def metrics(model):
    opt = start(model)
    for step in range(args.steps):
        loss = train(model, opt, step)
        hvd.allreduce(loss, name="loss")
        hvd.allreduce(loss.double(), name="loss64", op=hvd.Sum)
        if step % 5 == 0:
            hvd.allreduce(torch.ones(10), name="classes", op=hvd.Sum)
            hvd.allreduce(torch.tensor([hvd.rank(), 1]), name="numbers", op=hvd.Max)
            hvd.allgather(torch.ones(1 + hvd.rank(), 3), name="rows")
            hvd.broadcast(torch.ones(7), root_rank=0, name="seven")


def accuracy(model):
    """A metric of a fixed name is the ranks' average every time."""
    opt = start(model)
    for step in range(args.steps):
        train(model, opt, step)
        average = hvd.allreduce(torch.tensor(0.5 + hvd.rank()), name="accuracy").item()
        assert abs(average - hvd.size() / 2) < 1e-5, f"step {step}: an average is {average}, not {hvd.size() / 2}"


def norm_first(model):
    """Horovod names a group by its first parameter: here a norm's."""
    model = torch.nn.Sequential(OrderedDict(flat=torch.nn.Flatten(), norm=torch.nn.LayerNorm(784), net=model))
    optimizer(model)
    return model


def unnamed(model):
    opt = start(model)
    for step in range(args.steps):
        handles = [hvd.allreduce_async(torch.full((n,), float(step)), op=hvd.Sum) for n in (3, 20000, 5000)]
        loss_of(model, step).backward()
        sums = [hvd.synchronize(h) for h in handles]
        opt.step()
        opt.zero_grad()
        for s in sums:
            # Sent in 16 or more bits: whole numbers as small as these are exact.
            assert torch.equal(s, torch.full_like(s, float(step * hvd.size()))), f"a sum is {s[:3]}, not {step * hvd.size()}"


def bias(model):
    """A group that Horovod reduces by itself, one of whose tensors has two elements, is ready ahead of the gradients."""
    opt = start(model)
    for step in range(args.steps):
        handles = hvd.grouped_allreduce_async([torch.ones(5000), torch.ones(2)], name="layer")
        loss_of(model, step).backward()
        hvd.synchronize(handles)
        opt.step()
        opt.zero_grad()


def last_batch(model):
    """A group that Horovod reduces by itself, one of whose tensors is longer now and then; the last rank is late."""
    opt = start(model)
    for step in range(args.steps):
        if hvd.rank() == hvd.size() - 1:
            time.sleep(0.02)
        length = 5001 if step >= 8 and step % 3 == 0 else 5000
        handles = hvd.grouped_allreduce_async([torch.full((4000,), float(step)), torch.full((length,), 1.0)], name="layer", op=hvd.Sum)
        loss_of(model, step).backward()
        for total, each in zip(hvd.synchronize(handles), (float(step), 1.0)):
            assert torch.equal(total, torch.full_like(total, each * hvd.size())), f"step {step}: a sum is {total[:3]}"
        opt.step()
        opt.zero_grad()


def scaled(model):
    """Gradients reduced by hand with factors, others for every third tensor: those do not fuse with the rest."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(args.steps):
        model.zero_grad()
        loss_of(model, step).backward()
        handles = []
        for i, (name, p) in enumerate(model.named_parameters()):
            before, after = (0.25, 4.0) if i % 3 == 0 else (1.0, 0.5)
            handles.append(hvd.allreduce_async_(p.grad, name="scaled." + name, op=hvd.Sum, prescale_factor=before, postscale_factor=after))
        for h in handles:
            hvd.synchronize(h)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.002 * p.grad


def average(model, round):
    """Of the ranks' weights, by names, held against what an allgather has of them."""
    named = list(model.named_parameters())
    handles = [hvd.allreduce_async(p.data, name=round + name, op=hvd.Sum) for name, p in named]
    sums = [hvd.synchronize(h) for h in handles]
    for (name, p), total in zip(named, sums):
        rows = hvd.allgather(p.data.reshape(1, -1), name="rows." + name).double()
        wrong = (total.reshape(-1).double() - rows.sum(0)).abs().max()
        assert wrong <= 1e-6 * rows.abs().sum(0).max(), f"the sum of {round}{name} is off by {wrong}"
        p.data.copy_(total / hvd.size())


def averages(model):
    """Ranks train by themselves and average their weights now and then, and others once."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(args.steps):
        train(model, opt, step)
        if step % 4 == 3:
            average(model, "weights.")
    average(model, "last.")


def twins(model):
    """Two nets whose parameters have the same names, by turns; what the second one's loss is larger by its learning rate is smaller by."""
    other = copy_of(model)
    opts = [start(model), start(other)]
    for group in opts[1].param_groups:
        group["lr"] /= 100
    for step in range(args.steps):
        for net, opt, scale in ((model, opts[0], 1.0), (other, opts[1], 100.0)):
            opt.zero_grad()
            loss = loss_of(net, step)
            (scale * loss).backward()
            opt.step()
            assert loss < 4, f"step {step}: the loss is {loss}"  # of the first step 2.3


def exactly(x, total):
    """Whether `total` begins with what MPI makes of all ranks' x."""
    rows = hvd.allgather(x[:256].reshape(1, -1), name="rows")
    summed = rows[0].clone()
    for row in rows[1:]:
        summed += row
    return torch.equal(summed, total[:256])


def gathered(model):
    """mpi4py gathers objects, and sums counts, on the world."""
    from mpi4py import MPI
    import numpy as np
    optimizer(model)
    world = MPI.COMM_WORLD
    for step in range(6):
        counts = np.random.default_rng(7 * step + hvd.rank()).integers(0, 20000, 40000)
        summed, right = counts.astype(np.float32), counts.copy()
        world.Allreduce(MPI.IN_PLACE, summed)
        world.Allreduce(MPI.IN_PLACE, right)
        assert (summed == right).all(), f"{(summed != right).sum()} of the counts are wrong"
        world.gather(("anything", hvd.rank()), root=0)


def beside(model):
    """A gradient with little noise, which may look like an average of parameters, beside a much larger one that is all noise."""
    optimizer(model)
    first = torch.Generator().manual_seed(3)
    own = torch.Generator().manual_seed(10 + hvd.rank())
    value, exact = torch.randn(20000, generator=first), 0
    for step in range(60):
        tensors = [torch.randn(1 << 19, generator=own), value + 0.01 * torch.randn(20000, generator=own)]
        sums = hvd.grouped_allreduce(tensors, name="beside", op=hvd.Sum)
        exact += exactly(tensors[0], sums[0])
    assert exact <= 12, f"{exact} of 60 calls were summed exactly"


def small_cache(model):
    """More tensors than the cache is asked to hold; the first four are summed exactly, because rules say so."""
    optimizer(model)
    own = torch.Generator().manual_seed(5 + hvd.rank())
    for step in range(20):
        for t in range(8):
            x = torch.randn(20000, generator=own)
            exact = exactly(x, hvd.allreduce(x, name=f"t{t}", op=hvd.Sum))
            assert exact or t >= 4, f"step {step}: t{t} was not summed exactly"


def join(model):
    """The last rank has fewer images."""
    opt = start(model)
    for step in range(args.steps // 2 if hvd.rank() == hvd.size() - 1 else args.steps):
        train(model, opt, step)
    hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)


def with_sets(model, sets):
    opt = start(model)
    mine = [s for s in sets if s.included()]
    seen = [torch.zeros(20000) for _ in mine]
    for step in range(args.steps):
        handles = []
        for s in mine:
            torch.manual_seed(step * 31 + hvd.rank())
            handles += [hvd.allreduce_async(torch.randn(n), name=f"own.{i}", op=hvd.Sum, process_set=s) for i, n in enumerate((20000, 300, 3000))]
        train(model, opt, step)
        sums = [hvd.synchronize(h) for h in handles]
        for total, own in zip(seen, sums[::3]):
            total += own
    for s, total in zip(mine, seen):
        rows = hvd.allgather(total.unsqueeze(0), name="seen", process_set=s)
        assert all(torch.equal(row, rows[0]) for row in rows), "the ranks of a process set have different sums"


def sets_of(n):
    return [hvd.ProcessSet(range(0, n, 2)), hvd.ProcessSet(range(1, n, 2)), hvd.ProcessSet(range(max(2, n - 1)))]


def process_sets(model):
    with_sets(model, SETS)


def dynamic_sets(model):
    """Process sets that come and go."""
    steps, args.steps = args.steps, max(1, args.steps // 4)
    for _ in range(4):
        sets = sets_of(hvd.size())
        for s in sets:
            hvd.add_process_set(s)
        model = copy_of(model)
        with_sets(model, sets)
        for s in sets:
            hvd.remove_process_set(s)
    args.steps = steps
    return model


def copy_of(model):
    """Without the hooks of an optimizer that is done with."""
    other = chain(args.width)
    other.load_state_dict(model.state_dict())
    return other


def again(model):
    """Horovod shut down and initialised again, as after a loss of workers."""
    part = max(10, args.steps // 5)
    for first in range(0, args.steps, part):
        if first:
            hvd.shutdown()
            hvd.init()
        model = copy_of(model)
        opt = start(model)
        for step in range(first, min(first + part, args.steps)):
            train(model, opt, step)
    return model


def stall(model):
    """A rank that is late by more than a stall warning, and one tensor that is late there by more than any hold."""
    opt = start(model)
    for step in range(args.steps):
        last = hvd.rank() == hvd.size() - 1
        if step == args.steps // 2 and last:
            time.sleep(5)
        late = torch.full((3000,), float(step))
        if not (step % 4 == 3 and last):
            handle = hvd.allreduce_async(late, name="late", op=hvd.Sum)
        train(model, opt, step)
        if step % 4 == 3 and last:
            time.sleep(0.3)
            handle = hvd.allreduce_async(late, name="late", op=hvd.Sum)
        assert torch.equal(hvd.synchronize(handle), late * hvd.size())


def shut(model):
    """Ends while tensors wait for the rest of their step: what becomes of those is Horovod's to say."""
    opt = start(model)
    for step in range(args.steps):
        train(model, opt, step)
    report(model)
    try:
        for name, p in list(model.named_parameters())[:9]:
            hvd.allreduce_async(p.grad, name="allreduce." + name)
    except hvd.mpi_ops.HorovodInternalError:
        pass  # another rank was faster
    hvd.shutdown()
    sys.exit()


def report(model):
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    mine = digest.hexdigest()[:16]
    hashes = hvd.allgather(torch.tensor([list(bytes.fromhex(mine))], dtype=torch.uint8), name="weights_hash")
    finite = all(torch.isfinite(v).all() for v in model.state_dict().values())
    if hvd.rank() == 0:
        print(json.dumps({"weights_hash": mine, "identical": all(torch.equal(row, hashes[0]) for row in hashes), "finite": bool(finite)}), flush=True)


torch.set_num_threads(1)
torch.manual_seed(args.seed)
if args.way == "process_sets":
    SETS = sets_of(int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    hvd.init(process_sets=SETS)
else:
    hvd.init()
model = chain(args.width)
model = globals()[args.way](model) or model
report(model)
hvd.shutdown()
