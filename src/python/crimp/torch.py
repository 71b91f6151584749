"""The torch.distributed backend "crimp": sums of gradients compressed, everything else by MPI.

    import crimp.torch
    torch.distributed.init_process_group("crimp")      # under mpirun; nothing else to set

From the import on DistributedDataParallel, FullyShardedDataParallel and fully_shard tell the backend which parameters
their buffers hold, so that error feedback and CRIMP_RULES go by parameter names. docs/pytorch.md has the rest.
"""
import atexit
import contextlib
import datetime
import functools
import importlib
import os
import socket
import sys
import threading
import urllib.parse
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from crimp import _c10d
from crimp.names import automatic, clean_name, is_automatic, is_ours, label, named, prefix_in_group

_sharded = []  # modules of this package, one for each way to shard that this PyTorch has
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 1):  # before, it wants CUDA, and its insides are others
    with contextlib.suppress(ImportError):
        from crimp import fsdp
        _sharded.append((fsdp.FullyShardedDataParallel, fsdp))
    with contextlib.suppress(ImportError):  # from 2.6 on
        from crimp import fully_shard
        _sharded.append((fully_shard.FSDPModule, fully_shard))

__all__ = ["attach", "automatic", "label", "load", "named", "save", "set_codec", "set_learning_rate"]

_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS")
_FAR = 3.0  # seconds for a connection to one of rank 0's addresses


# -- The process ---------------------------------------------------------------------------------------------------

_uncaught = False  # an exception has ended the program
_survived = getattr(sys, "last_value", None)  # the last one that was printed and did not


def _ends_program(value):
    """Whether an exception has left the main thread's outermost frame. Other hooks (PyTorch's own) may lie around ours, so that the frames of its
    call do not tell."""
    trace = getattr(value, "__traceback__", None)
    if trace is None or threading.get_ident() != threading.main_thread().ident:
        return False
    outermost = sys._getframe()
    while outermost.f_back is not None:
        outermost = outermost.f_back
    return trace.tb_frame.f_back is None and trace.tb_frame is not outermost


def _notice(say):
    """sys.excepthook is asked of exceptions that the program survives, too: PyErr_Print does, and programs that call it."""
    @functools.wraps(say)
    def excepthook(kind, value, trace):
        global _uncaught, _survived
        if _ends_program(value):
            _uncaught = True
        elif value is getattr(sys, "last_value", None):
            _survived = value
        say(kind, value, trace)
    return excepthook


sys.excepthook = _notice(sys.excepthook)


def _cell_ended(result):
    global _survived
    if result.success:
        _survived = getattr(sys, "last_value", None)


# IPython asks no hook: what ended a file that it runs stands in sys.last_value, and what a cell raised, behind which the program may go on.
def _ipython():
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


_shell = _ipython()
if hasattr(_shell, "events"):
    _shell.events.register("post_run_cell", _cell_ended)


def _died():
    # What pytest's last test raised it goes on behind, but other ranks may wait for this one. A shell that the program makes (IPython.embed()) it goes on behind.
    asks_no_hook = (_shell is not None and _ipython() is _shell) or "_pytest" in sys.modules
    last = getattr(sys, "last_value", None) if asks_no_hook else None
    return _uncaught or (last is not None and last is not _survived)


@functools.lru_cache(maxsize=None)
def _start():
    """(rank, ranks). MPI begins here, in the first call, which all ranks make, unless it runs already."""
    place = _c10d.start()
    atexit.register(_end, os.getpid())
    return place


def _end(began):
    if os.getpid() != began:  # a child of os.fork(): MPI is its parent's
        return
    # After an uncaught exception the other ranks may be anywhere: nothing waits for them, and mpirun ends them.
    _c10d.end(not _died())


def _end_begun(began):
    """Where no group was made, and another (mpi4py) has begun MPI, whose end would wait for the other ranks."""
    if os.getpid() == began and not _start.cache_info().currsize and _died():
        _c10d.end(False)


atexit.register(_end_begun, os.getpid())


def _reachable(addresses, port):
    for address in addresses:
        with contextlib.suppress(OSError), socket.create_connection((address, port), _FAR):
            return address
    raise RuntimeError(f"crimp: no address of rank 0 can be reached ({', '.join(addresses)}, port {port}); set MASTER_ADDR and "
                       "MASTER_PORT for all ranks")


# Stores of rank 0's, until MPI ends: a group that it destroys at once may be one that others are still making. Not those at a port of the program's, which its next
# group may want.
_served = []


def _store(rank, ranks, timeout):
    options = dict(timeout=timeout, wait_for_workers=False)
    given = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if all(given):
        return dist.TCPStore(given[0], int(given[1]), ranks, rank == 0, **options)
    store = dist.TCPStore("127.0.0.1", 0, ranks, True, **options) if rank == 0 else None
    if store:
        _served.append(store)
    one_host = _c10d.one_host()
    mine = " ".join([str(store.port), *(["127.0.0.1"] if one_host else _c10d.addresses())]) if rank == 0 else ""
    port, *addresses = _c10d.share(mine).split()
    return store or dist.TCPStore(_reachable(addresses, int(port)), int(port), ranks, False, **options)


def _wrong_place(text):
    """A ValueError, the same for all ranks of torchrun's: it has set what `text` tells the user to leave out."""
    if dist.is_torchelastic_launched():
        text = "the program was started by torchrun, whose ranks MPI does not know; start it by mpirun alone, as in: mpirun -np N python3 train.py"
    return ValueError(f"crimp: {text}")


def _check_told(url, rank, ranks):
    """What the program or its environment says of its place must be what MPI says."""
    query = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
    for what, name, here in (("rank", "RANK", rank), ("world_size", "WORLD_SIZE", ranks)):
        for told, by in ((query.get(what, [None])[0], what), (os.environ.get(name), name)):
            if told not in (None, "", "-1") and int(told) != here:
                raise _wrong_place(f"{by} is {told}, but MPI says {here}; leave it out, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT on all ranks")


def _by_mpi(url, timeout=datetime.timedelta(minutes=30), **_):
    rank, ranks = _start()
    _check_told(url, rank, ranks)
    yield _store(rank, ranks, timeout), rank, ranks
    raise RuntimeError("crimp: a second rendezvous is not possible")


def _by_environment(otherwise, url, **options):
    """Under mpirun what env:// needs is known; where somebody has set it, that is taken."""
    told = all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")) and ("rank=" in url or os.environ.get("RANK"))
    launched = any(os.environ.get(name) for name in _LAUNCHERS)
    return _by_mpi(url, **options) if launched and not told else otherwise(url, **options)


def _create(options, _=None):
    members = list(options.global_ranks_in_group)
    if members and not _c10d.runs() and len(members) < dist.get_world_size():
        raise RuntimeError(f"crimp: MPI does not run yet, and beginning it takes all {dist.get_world_size()} ranks, of which this group has "
                           f"{len(members)}; let all of them initialize MPI first (from mpi4py import MPI), or make a group of this backend with all ranks")
    rank, ranks = _start()
    said = members[options.group_rank] if members else options.group_rank
    size = dist.get_world_size() if members else options.group_size
    if size != ranks and (not members or dist.is_torchelastic_launched()):  # a default group of another backend may be a part of MPI's ranks
        raise _wrong_place(f"the process group has {size} ranks by WORLD_SIZE or init_process_group, and MPI has {ranks}; start the program with mpirun -np {size}, "
                           "or leave WORLD_SIZE out")
    if said != rank:
        raise _wrong_place(f"this is rank {said} by RANK or init_process_group, and rank {rank} by MPI; let them be the same, or leave RANK out")
    return _c10d.create(options.group_rank, options.group_size, members, str(options.group_id), options.timeout)


def _register():
    only_new = {} if torch.__version__.startswith("1.") else {"devices": ["cpu", "cuda"]}
    dist.Backend.register_backend("crimp", _create, extended_api=True, **only_new)
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # hidden by a function of that name
    rendezvous.register_rendezvous_handler("crimp", _by_mpi)
    handlers = rendezvous._rendezvous_handlers
    handlers["env"] = functools.partial(_by_environment, handlers["env"])


# -- Communication hooks of DistributedDataParallel ------------------------------------------------------------------

class _Chain:
    """A program's hook, whose calls are a chain. A class, because models are copied and saved with their hooks."""

    def __init__(self, hook):
        functools.update_wrapper(self, hook, updated=())
        self.hook = hook

    def __call__(self, *arguments):
        before = _c10d.enter_chain()
        try:
            return self.hook(*arguments)
        finally:
            _c10d.leave_chain(before)


# -- Names of DistributedDataParallel's buckets ---------------------------------------------------------------------

class _Names:
    """The parameters of a DistributedDataParallel by name, and the hook that its buckets go through."""

    def __init__(self, model):
        self.group = model.process_group
        self.module = model.module
        self.of = None
        self.labels = {}
        self.hook = self.state = None  # the program's own

    def label_of(self, bucket, divisor):
        """None where not all parameters are known, or the bucket does not have just their elements."""
        parameters, buffer = bucket.parameters(), bucket.buffer()
        key = tuple(map(id, parameters)), divisor, buffer.numel(), buffer.is_complex()
        if self.of is None:  # a model has its number from its first gradient on: one that a rank makes, or copies, and never trains takes none
            prefix = prefix_in_group(self.group, self.module)
            self.of = {id(p): prefix + clean_name(name) for name, p in self.module.named_parameters()}
        if key not in self.labels:
            # A later PyTorch hands on a bucket of complex gradients as one of their real and imaginary parts.
            known = [(self.of.get(id(p)), p.numel() * (2 if p.is_complex() and not buffer.is_complex() else 1)) for p in parameters]
            fits = all(name for name, _ in known) and sum(count for _, count in known) == buffer.numel()
            self.labels[key] = label(known, divisor) if fits else None
        return self.labels[key]

    def reduce(self, bucket):
        """DistributedDataParallel's own average: divided first, then summed."""
        ranks, buffer = self.group.size(), bucket.buffer()
        ours = buffer.is_floating_point() and is_ours(self.group, buffer.device.type)
        names = self.label_of(bucket, ranks) if ours else None
        if names is None:
            buffer.div_(ranks)
        with named(names) if names is not None else contextlib.nullcontext():
            # Not the future's tensor: of complex ones it is another view.
            return dist.all_reduce(buffer, group=self.group, async_op=True).get_future().then(lambda done: done.value() and buffer)

    def run(self, bucket):
        if self.hook is None:
            return self.reduce(bucket)
        names = self.label_of(bucket, 1)
        with named(names, once=True) if names is not None else contextlib.nullcontext():
            return self.hook(self.state, bucket)


def _hook(names, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return names.run(bucket)


_attached = weakref.WeakKeyDictionary()  # model -> _Names
_taken = weakref.WeakSet()  # models that made a hook of their own, as for mixed_precision, which torch lets no other follow


def attach(model):
    """Lets what a DistributedDataParallel, a FullyShardedDataParallel or a model under fully_shard on a group of this
    backend sums carry the names of its parameters.

    Done by these themselves, unless `automatic(False)` was said before. Returns the model.
    """
    for kind, how in _sharded:
        if isinstance(model, kind):
            how.attach(model)
            return model
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"crimp: attach takes a DistributedDataParallel or a sharded model, not {type(model).__name__}")
    if not is_ours(model.process_group, _device_of(model)):
        raise ValueError("crimp: the model's process group has another backend")
    if model not in _attached:
        names = _Names(model)
        dist._register_comm_hook(model.reducer, names, _hook)
        _attached[model] = names
    return model


def _device_of(model):
    """Of the parameters that it reduces, which need not be all."""
    return getattr(model, "device_type", None) or next((p.device.type for p in model.module.parameters()), "cpu")


def _patch():
    """DistributedDataParallel attaches itself, and a hook of the program's runs inside of ours."""
    make, register = DistributedDataParallel.__init__, DistributedDataParallel.register_comm_hook
    restore = DistributedDataParallel.__setstate__

    def attach_made(model):
        # Without a reducer, as where all parameters are reduced by the program's own hooks, there are no buckets.
        if not is_automatic() or not hasattr(model, "reducer") or not is_ours(model.process_group, _device_of(model)):
            return
        if model in _taken:
            warnings.warn("crimp: this DistributedDataParallel has a hook of its own (mixed_precision), so its gradients go without names")
        else:
            attach(model)

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        attach_made(self)

    @functools.wraps(restore)
    def __setstate__(self, state):  # of a copy, or out of a file: it has a reducer of its own
        restore(self, state)
        attach_made(self)

    @functools.wraps(register)
    def register_comm_hook(self, state, hook):
        names = _attached.get(self)
        if names is None:
            ours = callable(hook) and is_ours(self.process_group, _device_of(self))
            register(self, state, _Chain(hook) if ours else hook)
            _taken.add(self)
            return
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        # torch's own check would refuse its hooks for bfloat16, which it knows with NCCL only.
        if names.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        names.hook, names.state = _Chain(hook), state

    DistributedDataParallel.__init__ = __init__
    DistributedDataParallel.__setstate__ = __setstate__
    DistributedDataParallel.register_comm_hook = register_comm_hook


# -- Settings of a group -------------------------------------------------------------------------------------------

def _backend_of(group):
    group = group or dist.group.WORLD
    if not hasattr(group, "_get_backend"):
        return group
    device = next((device for device in ("cpu", "cuda") if is_ours(group, device)), "cpu")
    backend = group._get_backend(torch.device(device))
    return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL


def set_codec(pattern, codec, group=None):
    """crimp_set_codec: tensors whose names match have this codec from now on; None: what the settings say. Collective."""
    _c10d.set_codec(_backend_of(group), pattern, codec)


def set_learning_rate(rate, group=None):
    """crimp_set_learning_rate: residuals are weighed anew when the rate changes. Collective, before each step."""
    _c10d.set_learning_rate(_backend_of(group), rate)


# -- State of a group ----------------------------------------------------------------------------------------------

def save(directory, group=None):
    """crimp_save: what error feedback and momentum keep of the named tensors, a file for each rank. False: it could not be
    written, which a warning says, and what was there stays. True without files where nothing is compressed, so that nothing
    is kept. Collective; save the model's own checkpoint at the same step."""
    return _c10d.save(_backend_of(group), os.fspath(directory))


def load(directory, group=None):
    """crimp_load: what the last whole save() left, of as many ranks as there were. False: there is nothing, or a rank cannot
    read it, and nothing has changed. True without a look where nothing is compressed. Collective, before the first step.
    What was kept of a model is not found by another one that is made in its place in the same group: names differ."""
    return _c10d.load(_backend_of(group), os.fspath(directory))


_register()
_patch()
for _, how in _sharded:
    how.patch()
