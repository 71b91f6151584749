"""Gradients summed by reduce_scatter under the names of their parameters, as a sharded optimizer has them in one flat buffer with padding.

The reference keeps a residual for each parameter and rank, sends the largest quarter of what each has in each share and sums biases exactly; weights are the
same bits.
  named_shares.py named | unnamed (the control, which must differ)
"""
import sys

import torch
import torch.distributed as dist

import crimp.torch

RATIO, STEPS, RATE = 0.25, 8, 0.05
SHAPES = {"first.weight": (150, 100), "first.bias": (150,), "last.weight": (100, 150), "last.bias": (101,)}
COUNT = sum(torch.Size(shape).numel() for shape in SHAPES.values())


def gradient(weights, step, rank):
    """Of a loss in which every weight has a part: biases whole numbers, whose sums have one value."""
    noise = torch.Generator().manual_seed(1000 * step + rank)
    return {name: torch.randint(-9, 9, shape, generator=noise).float() if name.endswith("bias") else weights[name] - torch.randn(shape, generator=noise)
            for name, shape in SHAPES.items()}


def largest(values, begin):
    """The largest quarter of each share's part of a parameter that begins here in the buffer, all else 0."""
    flat, sent = values.flatten(), torch.zeros(values.numel())
    share = -(-COUNT // ranks)
    borders = [0, *(b - begin for b in range(share, share * ranks, share) if begin < b < begin + flat.numel()), flat.numel()]
    for first, last in zip(borders, borders[1:]):
        kept = flat[first:last].abs().topk(max(1, int(RATIO * (last - first) + 0.5))).indices + first
        sent[kept] = flat[kept]
    return sent.view_as(values)


def reference(weights, ranks):
    residuals = [{name: torch.zeros(shape) for name, shape in SHAPES.items()} for _ in range(ranks)]
    for step in range(STEPS):
        sums = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
        for rank in range(ranks):
            begin = 0
            for name, whole in gradient(weights, step, rank).items():
                whole = whole / 2  # the label's divisor
                if name.endswith("weight"):
                    whole += residuals[rank][name]
                    sent = largest(whole, begin)
                    residuals[rank][name], whole = whole - sent, sent
                sums[name] += whole
                begin += whole.numel()
        for name in SHAPES:
            weights[name] -= RATE * sums[name]


def views(flat):
    at, of = 0, {}
    for name, shape in SHAPES.items():
        of[name] = flat[at:at + torch.Size(shape).numel()].view(shape)
        at += of[name].numel()
    return of


torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
flat = torch.zeros(-(-COUNT // ranks) * ranks)
torch.manual_seed(1)
flat[:COUNT] = torch.randn(COUNT)
weights, wanted = views(flat), {name: w.clone() for name, w in views(flat).items()}
shard = flat.chunk(ranks)[rank].clone()
label = crimp.torch.label([(name, torch.Size(shape).numel()) for name, shape in SHAPES.items()], divisor=2)
for step in range(STEPS):
    whole = torch.zeros_like(flat)
    for name, view in views(whole).items():
        view.copy_(gradient(weights, step, rank)[name])
    before = whole.clone()
    mine = torch.empty_like(shard)
    if sys.argv[1] == "named":
        with crimp.torch.named(label):
            scatter(mine, whole)
    else:
        scatter(mine, whole / 2)
    assert torch.equal(whole, before), "the input was changed"
    shard -= RATE * mine
    gather(flat, shard)
reference(wanted, ranks)
apart = max((weights[name] - wanted[name]).abs().max().item() for name in SHAPES)
if sys.argv[1] == "named":
    assert apart == 0, f"rank {rank}: weights differ from the reference's by up to {apart}"
else:
    assert apart > 0, "without names the reference's weights were met: this test sees nothing"
if rank == 0:
    print(f"weights are {apart} apart")
