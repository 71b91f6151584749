"""Ranks with different numbers of batches (Join), two models on one group, gradient accumulation, unused parameters: all calls named alike on all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import crimp.torch  # noqa: F401

torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.always = torch.nn.Linear(64, 64)
        self.sometimes = torch.nn.Linear(64, 64)

    def forward(self, x, both):
        x = self.always(x)
        return self.sometimes(x) if both else x


def same_everywhere(model, what):
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    everywhere = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(everywhere, mine)
    assert all(torch.equal(one, mine) for one in everywhere), f"{what}: ranks have different weights"


torch.manual_seed(1)
joined = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Linear(300, 64)))
optimizer = torch.optim.SGD(joined.parameters(), lr=0.1)
with Join([joined]):
    for step in range(3 + 2 * rank):
        optimizer.zero_grad()
        joined(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()

branches = DistributedDataParallel(Branches(), find_unused_parameters=True)  # its names begin with 2:
for step in range(4):
    branches.zero_grad()
    with branches.no_sync():
        branches(torch.randn(8, 64), step % 2 == 0).square().mean().backward()
    branches(torch.randn(8, 64), step % 2 == 0).square().mean().backward()
    with torch.no_grad():
        for p in branches.parameters():
            if p.grad is not None:
                p -= 0.1 * p.grad
same_everywhere(branches, "unused parameters")
if rank == ranks - 1:  # the last to join has seen all steps, and Join gives its weights to all
    print("all named alike")
