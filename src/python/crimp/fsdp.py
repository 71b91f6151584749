"""FullyShardedDataParallel: each unit's flat gradient has the names of its parameters."""
import functools
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms._comm_hooks import LOW_PRECISION_HOOKS
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp._common_utils import clean_tensor_name

from crimp.names import is_automatic, is_ours, label, named, prefix_in_group


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
            prefix = prefix_in_group(self.unit().process_group, self.root() or self.unit())
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
        with named(self.made(), once=self.hook is not None):
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
        if not is_ours(unit.process_group, unit.compute_device.type):
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


def attach(model):
    if not is_ours(model.process_group, model.compute_device.type):
        raise ValueError("crimp: the model's process group has another backend")
    _attach_units(model)
    if not any(unit._comm_hook is _unit_hook for unit in FullyShardedDataParallel.fsdp_modules(model)):
        raise RuntimeError("crimp: no unit of the model can be named: it has a hook already, shards in a hybrid way, has no parameters or is of a "
                           "PyTorch that is not known here")


def patch():
    """FullyShardedDataParallel attaches itself, and a hook of the program's runs inside of ours."""
    make, register = FullyShardedDataParallel.__init__, FullyShardedDataParallel.register_comm_hook

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        if is_automatic():
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
