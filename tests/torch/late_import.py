"""A model that is sharded, or made a DistributedDataParallel, on a group of another backend before crimp.torch is imported trains as it would without it."""
import os

import torch
import torch.distributed as dist

rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.path.join(os.environ["TMPDIR"], "store"), rank=rank, world_size=ranks)
model = torch.nn.Linear(30, 40)
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7):  # 2.6's does not run on CPU tensors
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
import crimp.torch  # noqa: E402,F401

for _ in range(2):
    model(torch.ones(4, 30)).sum().backward()
for parameter in model.parameters():
    assert parameter.grad is not None
print("trained")
