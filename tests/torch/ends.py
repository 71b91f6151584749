"""The end of a process that still has something under way, or that something still asks for.
  ends.py chained (a chained callback waits for a later work, which was queued before the end)
"""
import sys

import torch
import torch.distributed as dist

import crimp.torch

way = sys.argv[1]
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
if way == "chained":
    later = []

    def after(done):
        later[0].wait()
        print("what was chained on rank", rank, "is through", flush=True)
        return done.value()

    dist.all_reduce(torch.ones(4_000_000), async_op=True).get_future().then(after)
    later.append(dist.all_reduce(torch.ones(1000), async_op=True))
print("the end of rank", rank, flush=True)
