"""What goes wrong becomes an exception that can be caught, and does not keep other ranks waiting.
  errors.py caught | place (what is told of ranks is not MPI's) | early (a rank raises before init_process_group) | begun (so it does, and mpi4py, imported behind crimp.torch, has begun MPI) | late (while others wait for it) | hooked (so it does, and the program has an excepthook around the one before) | mpi4py (so it does, and mpi4py, imported behind crimp.torch, has begun MPI and is to end it) | alone (without mpirun) |
  survived (exceptions are printed and the program goes on) | cell, file (an exception in a cell of IPython's, which is played here, and a good cell behind it; one that ends the file that IPython runs) | model (the ranks' models differ) |
  hasty (rank 0 leaves its group while another is still in the barrier of the group's making)
"""
import ctypes
import sys
import threading
import time
import types
import warnings

import torch
import torch.distributed as dist

way = sys.argv[1]
on_cell = {}  # what IPython's shell, played here, is to call
if way in ("cell", "file"):
    sys.modules["IPython"] = types.ModuleType("IPython")
    shell = types.SimpleNamespace(events=types.SimpleNamespace(register=on_cell.__setitem__))
    sys.modules["IPython"].get_ipython = lambda: shell

import crimp.torch  # noqa: E402


def raises(what, call, text, kind=(RuntimeError, ValueError)):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{what}: {error}"
    else:
        raise AssertionError(f"{what}: no exception")


def fails_in_a_block():
    with crimp.torch.named([("w", 20000)]):
        dist.all_reduce(torch.ones(50000))
        raise RuntimeError("of its own")


import os  # noqa: E402
if way in ("begun", "mpi4py"):
    try:
        from mpi4py import MPI  # noqa: F401
    except ImportError:
        print("skipped: no mpi4py here")
        sys.exit(77)
if way in ("early", "begun") and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    raise SystemError("before the group is made")
if way == "hasty" and os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    class Slow:
        """A store whose calls take time."""

        def __init__(self, store):
            self.store = store

        def __getattr__(self, name):
            def call(*arguments, **options):
                result = getattr(self.store, name)(*arguments, **options)
                time.sleep(0.5)
                return result
            return call

    barrier = dist.distributed_c10d._store_based_barrier
    dist.distributed_c10d._store_based_barrier = lambda rank, store, *others, **options: barrier(rank, Slow(store), *others, **options)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
if way == "place":
    dist.destroy_process_group()
    raises("a rank", lambda: dist.init_process_group("crimp", rank=ranks - 1 - rank, world_size=ranks), f"rank is {ranks - 1 - rank}, but MPI says {rank}")
    raises("a size", lambda: dist.init_process_group("crimp", rank=rank, world_size=ranks + 1), f"world_size is {ranks + 1}, but MPI says {ranks}")
    # With a store of the program's nobody asks before the group is made, nor where the environment says all that PyTorch needs.
    for size, place, text in ((ranks + 1, rank, f"the process group has {ranks + 1} ranks"), (ranks, ranks - 1 - rank, f"this is rank {ranks - 1 - rank} by RANK")):
        raises(text, lambda: dist.init_process_group("crimp", store=dist.HashStore(), rank=place, world_size=size), text, ValueError)
if way == "hasty":
    dist.destroy_process_group()
if way == "survived":  # what import_array() of an extension does that was built for another NumPy
    ctypes.pythonapi.PyRun_SimpleString(b"raise ImportError('numpy.core.multiarray failed to import')")
    try:
        raise ValueError("what the program prints itself")
    except ValueError:
        sys.excepthook(*sys.exc_info())
    threading.excepthook = lambda what: sys.excepthook(*what[:3])
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()
    dist.all_reduce(torch.ones(50000))
if way == "cell":
    sys.last_value = ValueError("of a cell")
    on_cell["post_run_cell"](types.SimpleNamespace(success=False))
    dist.all_reduce(torch.ones(50000))
    on_cell["post_run_cell"](types.SimpleNamespace(success=True))
if way == "file":
    on_cell["post_run_cell"](types.SimpleNamespace(success=True))
    if rank == 1:
        sys.last_value = SystemError("others wait for this rank")
        sys.exit(f"SystemError: {sys.last_value}")
    dist.all_reduce(torch.ones(50000))
if way == "model":
    net = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)])
    net.add_module(f"of_{rank}", torch.nn.Linear(300, 300))
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.3)
    try:
        model(torch.randn(8, 300)).pow(2).mean().backward()
    except RuntimeError as error:
        raise SystemError("the models differ") from error
if way == "hooked":
    hook_before = sys.excepthook
    sys.excepthook = lambda *what: hook_before(*what)
if way in ("late", "hooked", "mpi4py"):
    if rank == 1:
        raise SystemError("others wait for this rank")
    dist.all_reduce(torch.ones(50000))
if way == "caught":
    raises("an operation", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "no BAND of tensors of type Float")
    raises("an average of truth values", lambda: dist.all_reduce(torch.tensor([True]), dist.ReduceOp.AVG), "no AVG of tensors of type Bool")
    raises("a type", lambda: dist.all_reduce(torch.zeros(3).to_sparse()), "sparse")
    raises("sizes", lambda: dist.all_gather([torch.ones(2)] * ranks, torch.ones(3)), "one size")
    with crimp.torch.named([("w", 20000), ("w", 20000)]):  # found by Crimp: MPI's error, not the end of the job
        raises("names", lambda: dist.all_reduce(torch.ones(40000)), "both named 'w'")
        work = dist.all_reduce(torch.ones(40000), async_op=True)
        raises("a work", work.wait, "both named 'w'")
        raises("a future", dist.all_reduce(torch.ones(40000), async_op=True).get_future().wait, "both named 'w'")
        assert not work.is_success()
    with crimp.torch.named([("outer", 40000)]):
        with crimp.torch.named([("inner", 20000)]):
            pass
        with crimp.torch.named(pair for pair in [("w", 20000), ("w", 20000)]):
            raises("names inside of names", lambda: dist.all_reduce(torch.ones(40000)), "both named 'w'")
    with warnings.catch_warnings(record=True) as said:  # names that no sum has are said once, of sums that may have been meant
        warnings.simplefilter("always")
        with crimp.torch.named([("w", 20000), ("b", 10000)]):
            dist.all_reduce(torch.ones(30000))
            dist.all_reduce(torch.ones(50000))
        with crimp.torch.named([]):
            dist.all_reduce(torch.ones(50000))
        with crimp.torch.named([("w", 20000)], once=True):
            dist.all_reduce(torch.ones(50000))
        with crimp.torch.named([("w", 20000)]):
            dist.all_reduce(torch.ones(10))
            dist.all_reduce(torch.ones(50000, dtype=torch.int64))
            with crimp.torch.named([("v", 50000)]):
                dist.all_reduce(torch.ones(50000))
        raises("an error in a block", fails_in_a_block, "of its own")
        assert not said, [str(one.message) for one in said]
        for _ in range(2):
            with crimp.torch.named([("w", 20000)]):
                with crimp.torch.named([("v", 40000)]):
                    dist.all_reduce(torch.ones(40000))
                dist.all_reduce(torch.ones(50000), async_op=True).wait()
                dist.all_reduce(torch.ones(10))
        assert len(said) == 1 and "a sum of 50000 elements" in str(said[0].message) and "have 20000 elements" in str(said[0].message), said
        assert said[0].filename == __file__, said[0].filename
    raises("a codec", lambda: crimp.torch.set_codec("*", "nonsense"), "nonsense")
    raises("a rate", lambda: crimp.torch.set_learning_rate(-1), "rate")
    tensor = torch.ones(40000)
    dist.all_reduce(tensor)  # all goes on
    assert torch.equal(tensor, torch.full((40000,), float(ranks)))
    dist.destroy_process_group()
    raises("the end", lambda: dist.all_reduce(tensor), "")
print("the end of rank", rank)
