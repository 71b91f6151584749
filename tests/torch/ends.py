"""The end of a process that still has something under way, or that something still asks for.
  ends.py chained (a chained callback waits for a later work, which was queued before the end) |
  late (calls come behind the end: all_reduce, send, recv, wait, a new group) | daemon (a thread waits for a message that never comes) |
  destroyed (so it does, and the group is destroyed) | timed_out (later messages go to later receives) | dropped (so they do where nobody has waited) |
  serialized (MPI takes one call at a time: a message is asked for while a sum waits for another rank) |
  forgets (what is kept of the tensors of groups that are destroyed takes no memory) |
  destroys, destroys_other (while the process waits for it, a chained callback destroys its group, or the one that is waited for next)
"""
import atexit
import ctypes
import datetime
import gc
import os
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist


def raises(what, call):
    try:
        call()
    except RuntimeError as error:
        assert "MPI has ended" in str(error), f"{what}: {error}"
    else:
        raise AssertionError(f"{what} raised nothing")


def behind_the_end():
    """Registered ahead of crimp.torch's own end, and so called behind it."""
    try:
        other = 1 - dist.get_rank()
        raises("a sum", lambda: dist.all_reduce(torch.ones(3)))
        raises("a send", lambda: dist.isend(torch.ones(3), other))
        raises("a receive", lambda: dist.irecv(torch.ones(3), other))
        raises("a wait", under_way.wait)
        raises("a question", under_way.is_completed)
        dist.destroy_process_group()
        raises("a new group", lambda: dist.init_process_group("crimp"))
    except Exception:  # an exception of such a function does not change the exit status
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


way = sys.argv[1]
if way == "late":
    atexit.register(behind_the_end)
import crimp.torch

if way == "serialized":
    mpi, serialized, level = ctypes.CDLL("libmpi.so.40"), 2, ctypes.c_int()  # by Open MPI's numbers
    mpi.MPI_Init_thread(None, None, serialized, ctypes.byref(level))
    atexit.register(mpi.MPI_Finalize)
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
if way in ("destroys", "destroys_other"):
    groups = {"destroys": None, "destroys_other": dist.new_group([0, 1])}
    at_the_end = threading.Event()
    atexit.register(at_the_end.set)  # behind crimp.torch's own, and so called ahead of it

    def destroy(done):
        assert at_the_end.wait(100)
        time.sleep(0.5)  # the end waits for this by then, or nothing is tested
        dist.destroy_process_group(groups[way])
        groups.clear()
        gc.collect()
        print("a group is destroyed on rank", rank, flush=True)
        return done.value()

    dist.all_reduce(torch.ones(1000), group=groups["destroys_other"])
    dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(destroy)
if way == "late":
    under_way = dist.irecv(torch.ones(3), 1 - rank)
if way in ("daemon", "destroyed"):
    got = threading.Event()

    def listen():
        tensor = torch.zeros(3)
        while True:
            dist.recv(tensor, 1 - rank, tag=7)
            got.set()

    for _ in range(2):
        threading.Thread(target=listen, daemon=True).start()
    dist.send(torch.ones(3), 1 - rank, tag=7)
    assert got.wait(100)
    dist.barrier()
    time.sleep(0.5)  # both threads wait again by then, or one is told in vain that MPI has ended
    if way == "destroyed":
        dist.destroy_process_group()
if way in ("timed_out", "dropped"):
    if rank == 1:
        try:
            work = dist.irecv(torch.zeros(3), 0)
            if way == "timed_out":
                work.wait(datetime.timedelta(milliseconds=50))
        except RuntimeError as error:
            assert "not through" in str(error), error
        del work
    dist.barrier()
    for number in range(3):
        tensor = torch.full((3,), float(number))
        if rank == 0:
            dist.send(tensor, 1)
        else:
            tensor.fill_(-1)
            dist.recv(tensor, 0)
            assert tensor[0].item() == number, f"message {number} is {tensor}"
    dist.barrier()
if way == "serialized":
    assert level.value == serialized
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        message = dist.irecv(torch.zeros(3), 1)
        total = dist.all_reduce(torch.ones(3), async_op=True)
        time.sleep(0.3)  # by then it waits in MPI, or nothing is tested
        assert not message.is_completed()
        store.set("asked", "1")
        total.wait()
        message.wait()
    else:
        store.wait(["asked"])
        dist.all_reduce(torch.ones(3))
        dist.send(torch.ones(3), 0)
    dist.barrier()
if way == "forgets":
    COUNT, CYCLES = 4_000_000, 10

    def resident():
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def use(group):
        with crimp.torch.named([("w", COUNT)]):
            dist.all_reduce(torch.linspace(-1, 1, COUNT), group=group)

    after = []
    for cycle in range(CYCLES):
        if cycle:
            dist.init_process_group("crimp")
        part = dist.new_group([0, 1])
        use(None)
        use(part)
        dist.destroy_process_group(part)
        del part
        dist.destroy_process_group()
        gc.collect()
        after.append(resident())
    kept = 2 * 4 * COUNT * (CYCLES - 3)  # of two groups, if all of it were, without the cycles in which buffers grow
    assert after[-1] - after[2] < kept / 3, f"{after} bytes, of which {kept} might be residuals"
print("the end of rank", rank, flush=True)
