"""fully_shard (FSDP2) and replicate, which is made of it: what they reduce has the names of parameters.

A group of parameters is one buffer: what rank 0 keeps of each of them, then what rank 1 keeps, and so on, in equal parts with
padding. So a parameter has a piece for each rank, and a piece is a tensor of its own: `0/blocks.3.weight` is rank 0's.
"""
import contextlib
import functools
import inspect
import warnings
import weakref

import torch
from torch.distributed.fsdp import FSDPModule

from crimp.names import is_automatic, is_ours, label, named, prefix_in_group

# What is read of FSDP2 beyond its documented interface, as it is in PyTorch 2.6 and 2.15: parameters' names, sizes and modules, where
# names are given, and the function that reduces a group.
_OF_PARAMETER = ("_param_fqn", "_module_info", "padded_sharded_param_size")
_OF_REDUCE = {"fsdp_params", "unsharded_grads", "reduce_scatter_group", "all_reduce_group"}
try:
    from torch.distributed.fsdp._common_utils import clean_tensor_name
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as _groups
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
    _known = hasattr(FSDPState, "_init_fqns") and _OF_REDUCE <= set(inspect.signature(_groups.foreach_reduce).parameters)
except (ImportError, AttributeError):
    _known = False
_names_of = weakref.WeakKeyDictionary()  # module -> _Names of the model that it is in


class _Names:
    """The parameters of one model, as seen from its outermost module."""

    def __init__(self, root):
        self.root = weakref.ref(root)
        self.labels = {}

    def label_of(self, parameters, group, shares):
        key = group, shares, tuple(map(id, parameters))
        if key not in self.labels:
            pieces = [(p._param_fqn, p.padded_sharded_param_size.numel()) for p in parameters]
            prefix = prefix_in_group(group, self.root())
            named_ones = [(prefix + f"{share}/" * (shares > 1) + clean_tensor_name(name or "").replace("_orig_mod.", ""), count)
                          for share in range(shares) for name, count in pieces if count > 0]
            self.labels[key] = label(named_ones) if all(name for name, _ in pieces) else None
        return self.labels[key]


@functools.lru_cache(maxsize=None)
def _warn():
    warnings.warn(f"crimp: fully_shard of PyTorch {torch.__version__} keeps its parameters in a way that is not known here, so its gradients go without "
                  "their names", RuntimeWarning, stacklevel=3)


def _label_for(parameters, gradients, group, shares):
    if not parameters or group is None or not is_ours(group, gradients[0].device.type):
        return None
    if not all(hasattr(parameters[0], name) for name in _OF_PARAMETER):
        return _warn()
    names = _names_of.get(parameters[0]._module_info.module)
    return names and names.label_of(parameters, group, shares)


def _know(root):
    names = _Names(root)
    for module in root.modules():
        _names_of[module] = names


def attach(model):
    state = model._get_fsdp_state()
    if not _known:
        raise RuntimeError("crimp: the model cannot be named: it is of a PyTorch that is not known here")
    if state._is_root is False:
        raise ValueError("crimp: attach takes the outermost module under fully_shard, which gives parameters their names")
    state._crimp_names = True
    if state._is_root:  # it has been through a step
        _know(model)


def patch():
    """Models name themselves when they are first used, and then their gradients."""
    if not _known:
        return _warn()
    make, begin, reduce = FSDPState.__init__, FSDPState._init_fqns, _groups.foreach_reduce

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self._crimp_names = is_automatic()

    @functools.wraps(begin)
    def _init_fqns(self):
        begin(self)
        if getattr(self, "_crimp_names", False):  # a state may be older than this import
            _know(self._modules[0])

    signature = inspect.signature(reduce)

    @functools.wraps(reduce)
    def foreach_reduce(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        group, parameters, gradients = given["reduce_scatter_group"], given["fsdp_params"], given["unsharded_grads"]
        if group is not None:
            names = _label_for(parameters, gradients, group, group.size())
        else:  # replicate sums whole parameters
            names = _label_for(parameters, gradients, given["all_reduce_group"], 1)
        with named(names) if names is not None else contextlib.nullcontext():
            return reduce(*args, **kwargs)

    FSDPState.__init__, FSDPState._init_fqns, _groups.foreach_reduce = __init__, _init_fqns, foreach_reduce
    return None
