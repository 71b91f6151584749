"""The torch.distributed backend "crimp": sums of gradients compressed, everything else by MPI.

    import crimp.torch
    torch.distributed.init_process_group("crimp")      # under mpirun; nothing else to set

From the import on DistributedDataParallel and FullyShardedDataParallel tell the backend which parameters their buffers
hold, so that error feedback and CRIMP_RULES go by parameter names. docs/pytorch.md has the rest.
"""
import atexit
import contextlib
import datetime
import functools
import importlib
import itertools
import os
import socket
import sys
import urllib.parse
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from crimp import _c10d

FullyShardedDataParallel = None
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 1):  # before, it wants CUDA, and its insides are others
    with contextlib.suppress(ImportError):
        from torch.distributed.algorithms._comm_hooks import LOW_PRECISION_HOOKS
        from torch.distributed.fsdp._common_utils import clean_tensor_name
        from torch.distributed.fsdp import FullyShardedDataParallel

__all__ = ["attach", "automatic", "label", "load", "named", "save", "set_codec", "set_learning_rate"]

_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS")
_FAR = 3.0  # seconds for a connection to one of rank 0's addresses


# -- The process ---------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)
def _start():
    """(rank, ranks, all on one host). MPI begins here, in the first call, which all ranks make."""
    place = _c10d.start()
    atexit.register(_end)
    return place


def _end():
    # After an uncaught exception the other ranks may be anywhere: nothing waits for them, and mpirun ends them.
    _c10d.end(getattr(sys, "last_value", None) is None)


def _reachable(addresses, port):
    for address in addresses:
        with contextlib.suppress(OSError), socket.create_connection((address, port), _FAR):
            return address
    raise RuntimeError(f"crimp: no address of rank 0 can be reached ({', '.join(addresses)}, port {port}); set MASTER_ADDR and "
                       "MASTER_PORT for all ranks")


def _store(rank, ranks, one_host, timeout):
    options = dict(timeout=timeout, wait_for_workers=False)
    given = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if all(given):
        return dist.TCPStore(given[0], int(given[1]), ranks, rank == 0, **options)
    store = dist.TCPStore("127.0.0.1", 0, ranks, True, **options) if rank == 0 else None
    mine = " ".join([str(store.port), *(["127.0.0.1"] if one_host else _c10d.addresses())]) if rank == 0 else ""
    port, *addresses = _c10d.share(mine).split()
    return store or dist.TCPStore(_reachable(addresses, int(port)), int(port), ranks, False, **options)


def _check_told(url, rank, ranks):
    """What the program or its environment says of its place must be what MPI says."""
    query = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
    for what, name, here in (("rank", "RANK", rank), ("world_size", "WORLD_SIZE", ranks)):
        for told, by in ((query.get(what, [None])[0], what), (os.environ.get(name), name)):
            if told not in (None, "", "-1") and int(told) != here:
                raise ValueError(f"crimp: {by} is {told}, but MPI says {here}; leave it out, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT on all ranks")


def _by_mpi(url, timeout=datetime.timedelta(minutes=30), **_):
    rank, ranks, one_host = _start()
    _check_told(url, rank, ranks)
    yield _store(rank, ranks, one_host, timeout), rank, ranks
    raise RuntimeError("crimp: a second rendezvous is not possible")


def _by_environment(otherwise, url, **options):
    """Under mpirun what env:// needs is known; where somebody has set it, that is taken."""
    told = all(os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")) and ("rank=" in url or os.environ.get("RANK"))
    launched = any(os.environ.get(name) for name in _LAUNCHERS)
    return _by_mpi(url, **options) if launched and not told else otherwise(url, **options)


def _create(options, _=None):
    _start()
    return _c10d.create(options.group_rank, options.group_size, list(options.global_ranks_in_group), str(options.group_id))


def _register():
    only_new = {} if torch.__version__.startswith("1.") else {"devices": ["cpu", "cuda"]}
    dist.Backend.register_backend("crimp", _create, extended_api=True, **only_new)
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # hidden by a function of that name
    rendezvous.register_rendezvous_handler("crimp", _by_mpi)
    handlers = rendezvous._rendezvous_handlers
    handlers["env"] = functools.partial(_by_environment, handlers["env"])


# -- Names ---------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def named(tensors, divisor=1):
    """Inside, calls of this thread that reduce a buffer of as many elements as `tensors` have together are named; of
    those that scatter it, which may be padded to a multiple of the ranks, also where it is longer by that.

    tensors: pairs of a name and a number of elements, in the buffer's order, or what came from `label`. `divisor`: what
    the buffer is divided by before it is summed. Names and counts are the same on all ranks.
    """
    before = _c10d.set_label(tensors if isinstance(tensors, _c10d.Label) else label(tensors, divisor))
    try:
        yield
    finally:
        _c10d.set_label(before)


def label(tensors, divisor=1):
    """What `named` takes, made once for many calls."""
    names, counts = zip(*tensors) if (tensors := list(tensors)) else ((), ())
    return _c10d.Label(list(names), list(counts), divisor)


_numbers_of_group = weakref.WeakKeyDictionary()  # process group -> (numbers to come, module -> its number in that group)


def _prefix_in_group(group, module):
    """Another model may have the same names."""
    to_come, numbers = _numbers_of_group.setdefault(group, (itertools.count(1), weakref.WeakKeyDictionary()))
    number = numbers.get(module) or numbers.setdefault(module, next(to_come))
    return "" if number == 1 else f"{number}:"


class _Names:
    """The parameters of a DistributedDataParallel by name, and the hook that its buckets go through."""

    def __init__(self, model):
        self.group = model.process_group
        prefix = _prefix_in_group(self.group, model.module)
        self.of = {id(parameter): prefix + name for name, parameter in model.module.named_parameters()}
        self.labels = {}
        self.hook = self.state = None  # the program's own

    def label_of(self, bucket, divisor):
        parameters = bucket.parameters()
        key = tuple(map(id, parameters)), divisor
        if key not in self.labels:
            known = [(self.of.get(id(p)), p.numel()) for p in parameters]
            self.labels[key] = label(known, divisor) if all(name for name, _ in known) else None
        return self.labels[key]

    def reduce(self, bucket):
        """DistributedDataParallel's own average: divided first, then summed."""
        ranks, buffer = self.group.size(), bucket.buffer()
        names = self.label_of(bucket, ranks)
        if names is None or not buffer.is_floating_point():
            buffer.div_(ranks)
        with named(names) if names is not None else contextlib.nullcontext():
            return dist.all_reduce(buffer, group=self.group, async_op=True).get_future().then(lambda done: done.value()[0])

    def run(self, bucket):
        if self.hook is None:
            return self.reduce(bucket)
        names = self.label_of(bucket, 1)
        with named(names) if names is not None else contextlib.nullcontext():
            return self.hook(self.state, bucket)


class _UnitNames:
    """The parameters of one FullyShardedDataParallel by name, and the hook that its flat gradient goes through."""

    def __init__(self, unit):
        self.unit = weakref.ref(unit)
        self.root, self.path = self.unit, ""  # the outermost one that is known, and what lies between
        self.label = None
        self.hook = self.state = None  # the program's own

    def made(self):
        """Names are whole when the first gradient is there: a unit is wrapped before what it lies in."""
        if self.label is None:
            flat = self.unit()._handle.flat_param
            prefix = _prefix_in_group(self.unit().process_group, self.root() or self.unit())
            fqns, tensors = iter(flat._fqns), []
            for number, (count, padding) in enumerate(zip(flat._numels_with_padding, flat._is_padding_mask)):
                name = f"{self.path}." * bool(self.path) + (f"(padding {number})" if padding else next(fqns))
                tensors.append((prefix + clean_tensor_name(name).replace("_orig_mod.", ""), count))
            self.label = label(tensors)
        return self.label

    def reduce(self, whole, share=None):
        """FullyShardedDataParallel's own average: divided in part before it is summed, and in part behind."""
        unit, result = self.unit(), whole if share is None else share
        fake = getattr(unit._handle, "_use_fake_reduce", False)
        group = unit._handle._fake_process_group if fake else unit.process_group
        if unit._gradient_predivide_factor > 1:
            whole.div_(unit._gradient_predivide_factor)
        if share is None:
            dist.all_reduce(whole, group=group)
        else:
            dist.reduce_scatter_tensor(share, whole, group=group)
        if unit._gradient_postdivide_factor > 1:
            result.div_(unit._gradient_postdivide_factor)

    def run(self, *tensors):
        with named(self.made()):
            return self.reduce(*tensors) if self.hook is None else self.hook(self.state, *tensors)


# What is read of a FullyShardedDataParallel and of its flat parameter beyond their documented interface: of PyTorch 2.1 to 2.6.
_OF_UNIT = ("_handle", "_comm_hook", "_comm_hook_state", "_gradient_predivide_factor", "_gradient_postdivide_factor")
_OF_FLAT = ("_fqns", "_numels_with_padding", "_is_padding_mask")


def _is_known(unit):
    if not all(hasattr(unit, name) for name in _OF_UNIT):
        return False
    return unit._handle is None or all(hasattr(unit._handle.flat_param, name) for name in _OF_FLAT)


def _unit_hook(names, *tensors):
    names.run(*tensors)


def _attach_units(root):
    """Each FullyShardedDataParallel in `root` gets its names, as seen from there."""
    for path, unit in root.named_modules():
        if not isinstance(unit, FullyShardedDataParallel) or unit.sharding_strategy.name.startswith(("HYBRID", "_HYBRID")):
            continue  # hybrid ones take no hooks
        if not _is_ours(unit.process_group, unit.compute_device.type):
            continue
        if not _is_known(unit):
            warnings.warn(f"crimp: FullyShardedDataParallel of PyTorch {torch.__version__} keeps its parameters in a way that is not known here, so its "
                          "gradients go without their names", RuntimeWarning, stacklevel=3)
            continue
        if unit._handle is None:
            continue
        if unit._comm_hook is None:
            unit._comm_hook, unit._comm_hook_state = _unit_hook, _UnitNames(unit)
        if unit._comm_hook is _unit_hook:
            names = unit._comm_hook_state
            names.root, names.path, names.label = weakref.ref(root), path, None


def _hook(names, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return names.run(bucket)


_attached = weakref.WeakKeyDictionary()  # model -> _Names
_automatic = True


def attach(model):
    """Lets what a DistributedDataParallel or FullyShardedDataParallel on a group of this backend sums carry the names of
    its parameters.

    Done by these themselves, unless `automatic(False)` was said before. Returns the model.
    """
    if FullyShardedDataParallel is not None and isinstance(model, FullyShardedDataParallel):
        if not _is_ours(model.process_group, model.compute_device.type):
            raise ValueError("crimp: the model's process group has another backend")
        _attach_units(model)
        if not any(unit._comm_hook is _unit_hook for unit in FullyShardedDataParallel.fsdp_modules(model)):
            raise RuntimeError("crimp: no unit of the model can be named: it has a hook already, shards in a hybrid way, has no parameters or is of a "
                               "PyTorch that is not known here")
        return model
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"crimp: attach takes a DistributedDataParallel or FullyShardedDataParallel, not {type(model).__name__}")
    if not _is_ours(model.process_group, _device_of(model)):
        raise ValueError("crimp: the model's process group has another backend")
    if model not in _attached:
        names = _Names(model)
        dist._register_comm_hook(model.reducer, names, _hook)
        _attached[model] = names
    return model


def automatic(on):
    """Whether models made from now on are attached by themselves."""
    global _automatic
    _automatic = bool(on)


def _device_of(model):
    return next((p.device.type for p in model.module.parameters()), "cpu")


def _is_ours(group, device):
    """Whether sums of tensors of this device are the backend's: PyTorch 2 may have one for each, as in "cpu:gloo,cuda:crimp"."""
    try:
        name = (getattr(dist, "get_backend_config", None) or dist.get_backend)(group).lower()
    except Exception:  # a group of another kind
        return False
    return (dict(one.split(":", 1) for one in name.split(",")).get(device) if ":" in name else name) == "crimp"


def _patch():
    """DistributedDataParallel attaches itself, and a hook of the program's runs inside of ours."""
    make, register = DistributedDataParallel.__init__, DistributedDataParallel.register_comm_hook

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        if _automatic and _is_ours(self.process_group, _device_of(self)):
            attach(self)

    @functools.wraps(register)
    def register_comm_hook(self, state, hook):
        names = _attached.get(self)
        if names is None:
            return register(self, state, hook)
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        # torch's own check would refuse its hooks for bfloat16, which it knows with NCCL only.
        if names.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        names.hook, names.state = hook, state

    DistributedDataParallel.__init__ = __init__
    DistributedDataParallel.register_comm_hook = register_comm_hook


def _patch_sharded():
    """FullyShardedDataParallel attaches itself, and a hook of the program's runs inside of ours."""
    make, register = FullyShardedDataParallel.__init__, FullyShardedDataParallel.register_comm_hook

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        if _automatic:
            _attach_units(self)

    @functools.wraps(register)
    def register_comm_hook(self, state, hook):
        units = [unit for unit in FullyShardedDataParallel.fsdp_modules(self) if unit._comm_hook is _unit_hook]
        all_names = [unit._comm_hook_state for unit in units]
        if any(names.hook is not None for names in all_names):
            raise AssertionError("A communication hook is already registered")
        for unit in units:
            unit._comm_hook = unit._comm_hook_state = None
        taken = False
        try:
            register(self, state, hook)  # its checks are torch's own
            taken = True
        finally:
            # Of its 16-bit hooks FullyShardedDataParallel must see that they are these.
            for unit, names in zip(units, all_names) if not (taken and hook in LOW_PRECISION_HOOKS) else ():
                names.hook, names.state = (hook, state) if taken else (None, None)
                unit._comm_hook, unit._comm_hook_state = _unit_hook, names

    FullyShardedDataParallel.__init__ = __init__
    FullyShardedDataParallel.register_comm_hook = register_comm_hook


# -- Settings of a group -------------------------------------------------------------------------------------------

def _backend_of(group):
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def set_codec(pattern, codec, group=None):
    """crimp_set_codec: tensors whose names match have this codec from now on; None: what the settings say. Collective."""
    _c10d.set_codec(_backend_of(group), pattern, codec)


def set_learning_rate(rate, group=None):
    """crimp_set_learning_rate: residuals are weighed anew when the rate changes. Collective, before each step."""
    _c10d.set_learning_rate(_backend_of(group), rate)


# -- State of a group ----------------------------------------------------------------------------------------------

def save(directory, group=None):
    """crimp_save: what error feedback and momentum keep of the named tensors, a file for each rank. False: it could not be
    written, which a warning says, and what was there stays. Collective; save the model's own checkpoint at the same step."""
    return _c10d.save(_backend_of(group), os.fspath(directory))


def load(directory, group=None):
    """crimp_load: what the last whole save() left, of as many ranks as there were. False: there is nothing, or a rank cannot
    read it, and nothing has changed. Collective, before the first step."""
    return _c10d.load(_backend_of(group), os.fspath(directory))


_register()
_patch()
if FullyShardedDataParallel is not None:
    _patch_sharded()
