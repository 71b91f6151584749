"""What programs do with DistributedDataParallel and groups beside the plain training.
  ddp.py complex (complex parameters have the average of all ranks' gradients) | copied (a copy names its buckets, too) | copied_once (on one rank, and then there is another model) | unreduced (one that does not
  reduce all of its parameters by buckets) | detail (TORCH_DISTRIBUTED_DEBUG, which compares the numbers of ranks' calls) | beside (a group of some ranks beside a default group of another backend) | timeout (of a message)
"""
import copy
import datetime
import inspect
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import crimp.torch

way = sys.argv[1]
torch.set_num_threads(1)


def gradients(model, of_rank):
    torch.manual_seed(100 + of_rank)
    first = next(model.parameters())
    model.zero_grad()
    model(torch.randn(5, first.shape[1], dtype=first.dtype)).abs().square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


def averaged(ddp, rank, ranks):
    """By DistributedDataParallel, and by hand from every rank's inputs."""
    alone = copy.deepcopy(ddp.module)
    each = [gradients(alone, r) for r in range(ranks)]
    wanted = [sum(of) / ranks for of in zip(*each)]
    for got, want in zip(gradients(ddp, rank), wanted):
        assert torch.allclose(got, want, rtol=1e-5), f"{got} is not {want}"


if way == "beside":
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    meeting = os.path.join(tempfile.gettempdir(), "meeting")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    if rank < ranks - 1:
        try:
            dist.new_group(list(range(ranks - 1)), backend="crimp")
        except RuntimeError as error:
            assert f"beginning it takes all {ranks} ranks" in str(error), error
        else:
            raise AssertionError("a group that the other ranks do not know of was made")
    print("the end of rank", rank)
    sys.exit()
if way == "timeout":
    dist.init_process_group("crimp", timeout=datetime.timedelta(seconds=2))
    rank = dist.get_rank()
    message = torch.full((3,), float(rank))
    if rank == 1:
        try:
            dist.recv(message, 0)
        except RuntimeError as error:
            assert "not through after 2000 ms" in str(error), error
        else:
            raise AssertionError("a message came that nobody sent")
        lost = message
        message = torch.zeros(3)
    dist.barrier()
    for _ in range(2):  # the first one is what rank 1 no longer waits for
        if rank == 0:
            dist.send(message, 1)
    if rank == 1:
        dist.recv(message, 0)
        assert message.tolist() == [0, 0, 0]
    print("the end of rank", rank)
    sys.exit()

dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
if way == "complex":
    for view in (False, True):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8, dtype=torch.cfloat), torch.nn.Linear(8, 3, dtype=torch.cfloat))
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=view)
        assert ddp in crimp.torch._attached
        for _ in range(3):  # buckets are made anew behind the first
            averaged(ddp, rank, ranks)
if way == "copied_once":
    first = DistributedDataParallel(torch.nn.Linear(200, 200))
    kept = copy.deepcopy(first) if rank == 0 else None
    second = DistributedDataParallel(torch.nn.Linear(200, 300))
    for _ in range(3):
        for model in (first, second):
            averaged(model, rank, ranks)
if way == "copied":
    ddp = DistributedDataParallel(torch.nn.Linear(4, 8))
    averaged(ddp, rank, ranks)
    other = copy.deepcopy(ddp)
    assert other in crimp.torch._attached and crimp.torch._attached[other] is not crimp.torch._attached[ddp]
    averaged(other, rank, ranks)
    averaged(ddp, rank, ranks)
if way == "unreduced":
    if "delay_all_reduce_named_params" not in inspect.signature(DistributedDataParallel).parameters:
        print("skipped: this PyTorch's DistributedDataParallel reduces all parameters itself")
        sys.exit(77)
    model = torch.nn.Linear(4, 8)
    alone = copy.deepcopy(model)
    ddp = DistributedDataParallel(model, delay_all_reduce_named_params=[("weight", model.weight)], param_to_hook_all_reduce=model.weight)
    bias = gradients(ddp, rank)[1]
    assert torch.allclose(bias, sum(gradients(alone, r)[1] for r in range(ranks)) / ranks, rtol=1e-5), bias
if way == "detail":
    calls = dist.group.WORLD._get_sequence_number_for_group
    before = calls()
    dist.all_reduce(torch.ones(3))
    assert calls() == before + 1
    averaged(DistributedDataParallel(torch.nn.Linear(4, 8)), rank, ranks)
    crimp.torch.set_codec("*", None)
print("the end of rank", rank)
