"""Which tensors lie in a buffer that is about to be reduced, and whether models say so by themselves."""
import contextlib
import itertools
import warnings
import weakref

import torch.distributed as dist

from crimp import _c10d

_automatic = True
_said_unfit = False


def automatic(on):
    """Whether models made from now on are attached by themselves."""
    global _automatic
    _automatic = bool(on)


def is_automatic():
    return _automatic


@contextlib.contextmanager
def named(tensors, divisor=1, once=False):
    """Inside, calls of this thread that reduce a buffer of as many elements as `tensors` have together are named; of
    those that scatter it, which may be padded to a multiple of the ranks, also where it is longer by that.

    tensors: pairs of a name and a number of elements, in the buffer's order, or what came from `label`. `divisor`: what
    the buffer is divided by before it is summed. `once`: only the first such call is. Names and counts are the same on
    all ranks. Where calls came and none had so many elements a RuntimeWarning says so, the first time.
    """
    names = tensors if isinstance(tensors, _c10d.Label) else label(tensors, divisor)
    before = _c10d.enter_block(names, once)
    try:
        yield
    finally:
        block = _c10d.leave_block(before)
    if not once:  # what a hook sums is its own matter
        _warn_of_unfit(block, names.total)


def _warn_of_unfit(block, total):
    global _said_unfit
    if _said_unfit or block.fitted or 2 * block.most_other < total or total == 0 or block.most_other == 0:  # a metric is shorter
        return
    _said_unfit = True
    warnings.warn(f"crimp: a sum of {block.most_other} elements in a block of `named` went without names, which have {total} elements "
                  "together, as no sum in the block had; give a count for each of the buffer's tensors", RuntimeWarning, stacklevel=4)


def label(tensors, divisor=1):
    """What `named` takes, made once for many calls."""
    names, counts = zip(*tensors) if (tensors := list(tensors)) else ((), ())
    return _c10d.Label(list(names), list(counts), divisor)


def clean_name(name):
    """Without what torch.compile and activation checkpointing put between, so that a model has the same names with and without."""
    for between in ("_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(between, "")
    return name


_numbers_of_group = weakref.WeakKeyDictionary()  # process group -> (numbers to come, module -> its number in that group)


def prefix_in_group(group, module):
    """Another model may have the same names."""
    to_come, numbers = _numbers_of_group.setdefault(group, (itertools.count(1), weakref.WeakKeyDictionary()))
    number = numbers.get(module) or numbers.setdefault(module, next(to_come))
    return "" if number == 1 else f"{number}:"


def is_ours(group, device):
    """Whether sums of tensors of this device are the backend's: PyTorch 2 may have one for each, as in "cpu:gloo,cuda:crimp"."""
    try:
        name = (getattr(dist, "get_backend_config", None) or dist.get_backend)(group).lower()
    except Exception:  # a group of another kind
        return False
    return (dict(one.split(":", 1) for one in name.split(",")).get(device) if ":" in name else name) == "crimp"
