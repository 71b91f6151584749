"""DistributedDataParallel through the rebuild of its buckets: names, and error feedback by parameter.

The reference keeps a residual for each parameter and rank, as Stich et al. write it, and trains the same network with it. Gradients, sums and
updates are the same operations, so that weights are the same bits.
  names.py WAY: automatic, attached, hook (a hook of the program's own), hook_twice (which sums something else of the same size as well), view
  (gradients as views of buckets).
Controls, which must differ: unnamed, and places (tensors named by their places in buckets, which the rebuild changes).
"""
import copy
import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import crimp.torch

RATIO, STEPS, RATE = 0.25, 8, 0.05


class Net(torch.nn.Module):
    """Is not used in the order in which it is made: buckets are made anew after the first step."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(300, 100)
        self.middle = torch.nn.ModuleList(torch.nn.Linear(300, 300) for _ in range(3))  # of one size: hard to tell apart
        self.first = torch.nn.Linear(100, 300)

    def forward(self, x):
        x = self.first(x).relu()
        for layer in (self.middle[1], self.middle[0], self.middle[2]):
            x = layer(x).relu()
        return self.last(x)


def data(step, rank):
    return torch.randn(16, 100, generator=torch.Generator().manual_seed(1000 * step + rank))


def loss(model, step, rank):
    x = data(step, rank)
    return torch.nn.functional.mse_loss(model(x), x)


def largest(values, ratio):
    """The k largest magnitudes, all else 0."""
    keep = torch.zeros(values.numel(), dtype=torch.bool)
    keep[values.abs().flatten().topk(max(1, round(ratio * values.numel()))).indices] = True
    return torch.where(keep.view_as(values), values, torch.zeros(()))


def reference(model, ranks):
    residuals = [{name: torch.zeros_like(p) for name, p in model.named_parameters()} for _ in range(ranks)]
    for step in range(STEPS):
        sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for rank in range(ranks):
            model.zero_grad()
            loss(model, step, rank).backward()
            for name, p in model.named_parameters():
                gradient = p.grad / ranks
                if name.endswith("bias"):  # CRIMP_RULES: summed exactly
                    sums[name] += gradient
                    continue
                whole = gradient + residuals[rank][name]
                sent = largest(whole, RATIO)
                residuals[rank][name] = whole - sent
                sums[name] += sent
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.add_(sums[name], alpha=-RATE)


def own_hook(state, bucket):
    state.append(bucket.index())
    return dist.all_reduce(bucket.buffer().div_(ranks), async_op=True).get_future().then(lambda done: done.value()[0])


def hook_of_squares(state, bucket):
    squares = bucket.buffer() ** 2
    future = own_hook(state, bucket)
    dist.all_reduce(squares)
    return future


def hook_of_places(_, bucket):
    with crimp.torch.named([(f"{bucket.index()}.{i}", p.numel()) for i, p in enumerate(bucket.parameters())]):
        return own_hook(ran, bucket)


way = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = Net()
wanted = copy.deepcopy(model)
crimp.torch.automatic(way in ("automatic", "hook", "hook_twice", "view"))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.5, gradient_as_bucket_view=way == "view")
ran = []
if way == "attached":
    crimp.torch.attach(ddp)
if way in ("hook", "hook_twice"):
    ddp.register_comm_hook(ran, own_hook if way == "hook" else hook_of_squares)
if way == "places":
    ddp.register_comm_hook(None, hook_of_places)
optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE)
for step in range(STEPS):
    optimizer.zero_grad()
    x = data(step, rank)
    torch.nn.functional.mse_loss(ddp(x), x).backward()
    optimizer.step()
reference(wanted, ranks)
facts = ddp._get_ddp_logging_data()
assert facts["has_rebuilt_buckets"] and facts["bucket_sizes"] != facts["rebuilt_bucket_sizes"], facts
assert way not in ("hook", "hook_twice") or len(ran) >= STEPS, ran
same = all(torch.equal(a, b) for a, b in zip(model.parameters(), wanted.parameters()))
apart = max((a - b).abs().max().item() for a, b in zip(model.parameters(), wanted.parameters()))
if way in ("unnamed", "places"):
    assert not same, "with wrong names the reference's weights were met: this test sees nothing"
else:
    assert same, f"rank {rank}: weights differ from the reference's by up to {apart}"
if rank == 0:
    print(json.dumps({"names": sorted(name for name, _ in model.named_parameters()), "buckets": facts["bucket_sizes"],
                      "rebuilt": facts["rebuilt_bucket_sizes"], "steps": STEPS, "apart": apart}))
