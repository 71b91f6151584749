"""A training script as its users write it: an import and the name of the backend, nothing else of Crimp's."""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import crimp.torch  # noqa: F401

dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(rank)  # DistributedDataParallel takes rank 0's weights
# From the output backwards: buckets are made anew after the first step. Each weight has a bucket of its own or shares one.
model = torch.nn.Sequential(torch.nn.Linear(100, 210), torch.nn.ReLU(), torch.nn.Linear(210, 190), torch.nn.ReLU(), torch.nn.Linear(190, 120))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.2)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
torch.manual_seed(100 + rank)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 6):
    optimizer.zero_grad()
    inputs = torch.randn(16, 100)
    torch.nn.functional.mse_loss(ddp(inputs), inputs.repeat(1, 2)[:, :120]).backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everywhere = [torch.empty_like(weights) for _ in range(ranks)]
dist.all_gather(everywhere, weights)
assert all(torch.equal(one, weights) for one in everywhere), "ranks have different weights"
assert torch.isfinite(weights).all()
if rank == 0:
    print("the same weights on", ranks, "ranks")
