"""Every call of torch.distributed that the backend has, against arithmetic. Without a codec sums are exact; the values are small integers."""
import torch
import torch.distributed as dist

import crimp.torch  # noqa: F401

dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
everyone = list(range(ranks))
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def expect(got, wanted, what):
    wanted = torch.as_tensor(wanted)
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), f"rank {rank}: {what}: {got} is not {wanted}"


def of(r, dtype, count=5):
    return (torch.arange(count) + r + 1).to(dtype)


def stacked(dtype, count=5):
    return torch.stack([of(r, torch.int64, count) for r in everyone])


# Reductions of all types.
OPS = {"SUM": lambda all: all.sum(0), "PRODUCT": lambda all: all.prod(0), "MIN": lambda all: all.amin(0), "MAX": lambda all: all.amax(0)}
for dtype in FLOATS + INTEGERS:
    for op, wanted in OPS.items():
        tensor = of(rank, dtype, 3)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        expect(tensor, wanted(stacked(dtype, 3)).to(dtype), f"all_reduce {op} {dtype}")
for dtype in FLOATS:
    tensor = of(rank, dtype) * ranks
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    expect(tensor, stacked(dtype).sum(0).to(dtype), f"all_reduce AVG {dtype}")
for dtype in INTEGERS:
    # One short of 6 times the ranks, so that rounding shows: toward zero, as NCCL's. Sums of bytes have wrapped before.
    signed = dtype != torch.uint8
    mine = torch.tensor([5 + (ranks - 1) * (rank == 0), (-5 - (ranks - 1) * (rank == 0)) if signed else 200]).to(dtype)
    averages = torch.tensor([5, -5 if signed else 200 * ranks % 256 // ranks]).to(dtype)
    tensor = mine.clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    expect(tensor, averages, f"all_reduce AVG {dtype}")
    tensor = mine.clone()
    dist.reduce(tensor, ranks - 1, dist.ReduceOp.AVG)
    expect(tensor, averages if rank == ranks - 1 else mine, f"reduce AVG {dtype}")
    tensor = torch.empty(2, dtype=dtype)
    dist.reduce_scatter(tensor, [mine] * ranks, dist.ReduceOp.AVG)
    expect(tensor, averages, f"reduce_scatter AVG {dtype}")
    tensor = torch.tensor([1 << rank, 7], dtype=dtype)
    dist.all_reduce(tensor, dist.ReduceOp.BOR)
    expect(tensor, torch.tensor([(1 << ranks) - 1, 7], dtype=dtype), f"all_reduce BOR {dtype}")
truth = torch.tensor([rank == 0, False, True])
dist.all_reduce(truth, dist.ReduceOp.SUM)
expect(truth, torch.tensor([True, False, True]), "all_reduce of truth values")
turned = torch.arange(6.0).view(2, 3).t()  # not contiguous
dist.all_reduce(turned)
expect(turned, ranks * torch.arange(6.0).view(2, 3).t(), "all_reduce of a transposed tensor")

# Many at once, waited for in another order; futures.
tensors = [torch.full((1000 + i,), float(rank + i)) for i in range(20)]
works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
for i in reversed(range(20)):
    works[i].wait()
    assert works[i].is_completed() and works[i].is_success()
    expect(tensors[i], torch.full((1000 + i,), float(sum(r + i for r in everyone))), "async all_reduce")
tensor = torch.ones(7)
doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
expect(doubled.wait(), torch.full((7,), 2.0 * ranks), "a chained future")
later = dist.all_reduce(torch.ones(7), async_op=True).get_future().then(
    lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])  # as torch's PowerSGD hook does
expect(later.wait(), torch.full((7,), float(ranks * ranks)), "a call made and waited for in a chained future")

# Other collectives.
for root in everyone:
    tensor = of(rank, torch.float32)
    dist.broadcast(tensor, root)
    expect(tensor, of(root, torch.float32), "broadcast")
    tensor = of(rank, torch.bfloat16)
    dist.reduce(tensor, root)
    expect(tensor, (stacked(torch.bfloat16).sum(0) if rank == root else of(rank, torch.int64)).to(torch.bfloat16), "reduce")
    parts = [torch.empty(2, dtype=torch.float16) for _ in everyone] if rank == root else None
    dist.gather(of(rank, torch.float16, 2), parts, root)
    for r in everyone if rank == root else ():
        expect(parts[r], of(r, torch.float16, 2), "gather")
    mine = torch.empty(3, dtype=torch.int64)
    dist.scatter(mine, [of(10 * r, torch.int64, 3) for r in everyone] if rank == root else None, root)
    expect(mine, of(10 * rank, torch.int64, 3), "scatter")
for dtype in FLOATS + INTEGERS + (torch.bool,):
    parts = [torch.empty(2, 2, dtype=dtype) for _ in everyone]
    dist.all_gather(parts, of(rank, dtype, 4).view(2, 2))
    for r in everyone:
        expect(parts[r], of(r, dtype, 4).view(2, 2), f"all_gather {dtype}")
objects = [None] * ranks
dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
assert objects == [{"rank": r, "text": "x" * r} for r in everyone]
received = [torch.empty(2) for _ in everyone]
dist.all_to_all(received, [torch.full((2,), 10.0 * rank + r) for r in everyone])
for r in everyone:
    expect(received[r], torch.full((2,), 10.0 * r + rank), "all_to_all")
sent = torch.arange(float(ranks)) + 100 * rank
taken = torch.empty(ranks)
dist.all_to_all_single(taken, sent)
expect(taken, torch.tensor([100.0 * r + rank for r in everyone]), "all_to_all_single")
taken = torch.empty(sum(r + 1 for r in everyone))
dist.all_to_all_single(taken, torch.full(((rank + 1) * ranks,), float(rank)), [r + 1 for r in everyone], [rank + 1] * ranks)
expect(taken, torch.cat([torch.full((r + 1,), float(r)) for r in everyone]), "all_to_all_single with parts")
dist.barrier()

# As FSDP and ZeRO do: gradients are scattered, weights gathered.
scatter_base, gather_base = (getattr(dist, new, None) or getattr(dist, old) for new, old in (
    ("reduce_scatter_tensor", "_reduce_scatter_base"), ("all_gather_into_tensor", "_all_gather_base")))
for dtype in FLOATS:
    shard = torch.empty(4, dtype=dtype)
    scatter_base(shard, torch.arange(4 * ranks).to(dtype) * (rank + 1))
    wanted = torch.arange(4 * ranks)[4 * rank:4 * rank + 4] * sum(r + 1 for r in everyone)
    expect(shard, wanted.to(dtype), f"reduce_scatter_tensor {dtype}")
    scatter_base(shard, torch.arange(4 * ranks).to(dtype) * ranks, dist.ReduceOp.AVG)
    expect(shard, (torch.arange(4 * ranks)[4 * rank:4 * rank + 4] * ranks).to(dtype), f"average of reduce_scatter_tensor {dtype}")
    whole = torch.empty(4 * ranks, dtype=dtype)
    gather_base(whole, of(rank, dtype, 4))
    expect(whole, torch.cat([of(r, dtype, 4) for r in everyone]), f"all_gather_into_tensor {dtype}")
    whole[4 * rank:4 * rank + 4] = rank
    gather_base(whole, whole[4 * rank:4 * rank + 4])  # FSDP's own part lies in the whole
    expect(whole, torch.arange(ranks).repeat_interleave(4).to(dtype), f"all_gather_into_tensor in place {dtype}")
shard = torch.empty(2)
dist.reduce_scatter(shard, [torch.full((2,), float(r)) for r in everyone])
expect(shard, torch.full((2,), float(rank * ranks)), "reduce_scatter")

# Messages, also large ones that cross.
right, left = (rank + 1) % ranks, (rank - 1) % ranks
out, into = torch.full((300000,), float(rank)), torch.empty(300000)
works = [dist.isend(out, right, tag=5), dist.irecv(into, left, tag=5)]
for work in works:
    work.wait()
expect(into, torch.full((300000,), float(left)), "isend and irecv")
if rank == 0:
    for _ in range(ranks - 1):
        source = dist.recv(into)
        expect(into, torch.full((300000,), float(source)), "recv from anybody")
else:
    dist.send(out, 0)

# Groups.
alone = dist.new_group([ranks - 1])
first = dist.new_group(sorted({0, ranks - 1}))
second = dist.new_group(everyone[::-1])
tensor = torch.ones(3)
dist.all_reduce(tensor, group=second)
expect(tensor, torch.full((3,), float(ranks)), "all_reduce in a second group of all")
if rank in (0, ranks - 1):
    dist.all_reduce(tensor, group=first)
    expect(tensor, torch.full((3,), float(ranks * len({0, ranks - 1}))), "all_reduce in a group of two")
dist.barrier()
if rank == 0:
    print("all as expected")
