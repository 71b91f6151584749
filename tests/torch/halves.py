"""DistributedDataParallel of a network in bfloat16 and float16, and with torch's bf16 hook: compressed, named, the same on all ranks, and it learns."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import crimp.torch  # noqa: F401

torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()


def train(dtype, hook=None, steps=30):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 64)).to(dtype)
    ddp = DistributedDataParallel(model)
    if hook:
        ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.25)
    torch.manual_seed(2 + rank)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(32, 64).to(dtype)
        loss = torch.nn.functional.mse_loss(ddp(x).float(), x.float())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    all = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(all, mine)
    assert all_equal(all), f"{dtype}: ranks have different weights"
    assert losses[-1] < 0.9 * losses[0], f"{dtype}: it does not learn: {losses[0]} to {losses[-1]}"
    return losses


def all_equal(tensors):
    return all(torch.equal(one, tensors[0]) for one in tensors)


for dtype, hook in ((torch.bfloat16, None), (torch.float32, default_hooks.bf16_compress_hook), (torch.float64, None)):
    losses = train(dtype, hook)
    if rank == 0:
        print(dtype, hook and hook.__name__, losses[0], losses[-1])
# The divisor is no bfloat16 itself.
many = torch.linspace(1, 1000, 40000).to(torch.bfloat16)
wanted = ranks * (many.float() / 257).to(torch.bfloat16)
with crimp.torch.named([("many_bias", 40000)], divisor=257):  # CRIMP_RULES: summed exactly
    dist.all_reduce(many)
assert torch.equal(many, wanted), (many - wanted).abs().max()
# float16 arithmetic on CPUs is partial in older PyTorch; its sums are what counts.
half = torch.full((40000,), 1.0 + rank, dtype=torch.float16)
with crimp.torch.named([("half", 40000)]):
    dist.all_reduce(half)
assert torch.equal(half, torch.full((40000,), float(sum(1 + r for r in range(ranks))), dtype=torch.float16)), half
