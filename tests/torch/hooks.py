"""Communication hooks of DistributedDataParallel that chain further calls to their futures. Rank 0 makes these before its next bucket's, the others behind it.
  hooks.py chained (in backward there are sums beside the hook's) | unattached (so there are, of a model without names) | powersgd (torch's own, against one bucket after the other)
"""
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import crimp.torch

PAUSE, SIZE, LAYERS = 0.02, 520, 4
hooked = set()  # buckets


class Net(torch.nn.Module):
    """Each of its layers fills a bucket, of a megabyte. Biases, which PowerSGD sums as they are, let ranks wait for each other there."""

    def __init__(self, between=None):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIZE, SIZE, bias=way == "powersgd") for _ in range(LAYERS))
        self.between = between

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if self.between:
                x.register_hook(self.between)
        return x


def gradients(model, step, of_rank):
    model.zero_grad()
    model(torch.randn(8, SIZE, generator=torch.Generator().manual_seed(100 * step + of_rank))).pow(2).mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def pause(here):
    if here:
        time.sleep(PAUSE)


def beside(_):
    """As the backward pass of SyncBatchNorm."""
    pause(rank == 0)
    tensor = torch.full((SIZE * SIZE,), 1.0 + rank)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [sum(1.0 + r for r in range(ranks))] * tensor.numel(), tensor


def chained_hook(_, bucket):
    """Has the sum in the end."""
    mine = bucket.buffer().clone()
    hooked.add(bucket.index())

    def again(total):
        pause(rank != 0)
        twice = 2 * mine
        dist.all_reduce(twice, async_op=True).get_future().wait()
        return twice - total

    pause(rank == 0)
    first = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return first.then(lambda done: again(done.value()[0])).then(lambda done: again(done.value()))


def trained(one_by_one):
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=1)
    before = []

    def hook(state, bucket):
        pause(rank == 0)
        hooked.add(bucket.index())
        if one_by_one and before:
            before.pop().wait()
        before.append(powerSGD_hook.powerSGD_hook(state, bucket))
        return before[-1]

    ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2), hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3)
    for step in range(8):
        before.clear()
        gradients(ddp, step, rank)
        optimizer.step()
    return [p.detach() for p in ddp.parameters()]


def all_reduce_late(*arguments, **options):
    pause(rank != 0 and threading.current_thread() is not threading.main_thread())
    return all_reduce(*arguments, **options)


way = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
if way == "powersgd":
    all_reduce, dist.all_reduce = dist.all_reduce, all_reduce_late
    for got, want in zip(trained(False), trained(True)):
        assert torch.equal(got, want), f"rank {rank}: weights differ by up to {(got - want).abs().max().item()}"
else:
    crimp.torch.automatic(way == "chained")
    alone, ddp = Net(), DistributedDataParallel(Net(beside), bucket_cap_mb=1)
    ddp.register_comm_hook(None, chained_hook)
    assert (ddp in crimp.torch._attached) == (way == "chained")
    for step in range(4):  # buckets are made anew behind the first
        wanted = [sum(of) for of in zip(*[gradients(alone, step, r) for r in range(ranks)])]
        for got, want in zip(gradients(ddp, step, rank), wanted):
            assert torch.allclose(got, want, rtol=1e-4, atol=1e-7), f"{got} is not {want}"
assert hooked >= set(range(LAYERS)), hooked
print("the end of rank", rank)
