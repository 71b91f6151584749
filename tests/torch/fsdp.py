"""FullyShardedDataParallel and fully_shard: names of parameters, error feedback by them, in units and in what lies between units.

The reference keeps a residual for each parameter and rank, sends the largest quarter of what each has in each share of its unit and sums biases exactly;
gradients, sums and updates are the same operations, so that weights are the same bits.
  fsdp.py WAY
    fully_shard, whose shares hold so many rows of each parameter: fully, fully_attached, fully_replicate (the same without shares)
    FullyShardedDataParallel: automatic, attached, original (use_orig_params), hook (a hook of the program's own), whole (NO_SHARD), wrapped (by
    checkpoint_wrapper, whose name parameters must not have)
Controls, which must differ: unnamed, fully_unnamed; unknown, fully_unknown (a version of PyTorch whose units have not what crimp.torch reads: a warning says so,
and training goes on)
"""
import copy
import importlib.metadata
import json
import sys
import warnings

if tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) < (2, 1):
    print("skipped: FullyShardedDataParallel wants CUDA before PyTorch 2.1")
    sys.exit(77)
import torch  # noqa: E402

way = sys.argv[1]
fully = way.startswith("fully")
if fully and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
    print("skipped: fully_shard of PyTorch 2.6 does not run on CPU tensors")
    sys.exit(77)
import torch.distributed as dist  # noqa: E402

import crimp.torch  # noqa: E402

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
if fully:
    from torch.distributed._composable.replicate_with_fsdp import replicate
    from torch.distributed.fsdp import fully_shard

RATIO, STEPS, RATE = 0.25, 8, 0.05


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width + 1), torch.nn.Linear(2 * width + 1, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(50, 101)
        self.blocks = torch.nn.ModuleList(Block(101) for _ in range(2))
        self.last = torch.nn.Linear(101, 50)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def loss(model, step, rank):
    x = torch.randn(16, 50, generator=torch.Generator().manual_seed(1000 * step + rank))
    return torch.nn.functional.mse_loss(model(x), x)


def largest(values, pieces):
    """Of each piece, which is a range and the number of values that it has with its padding."""
    flat, sent = values.flatten(), torch.zeros(values.numel())
    for first, last, count in pieces:
        kept = flat[first:last].abs().topk(max(1, int(RATIO * count + 0.5))).indices + first
        sent[kept] = flat[kept]
    return sent.view_as(values)


def pieces_of(values, begin, share):
    """The parts of a parameter that go to one rank each."""
    count = values.numel()
    if way == "fully_replicate":
        return [(0, count, count)]
    if fully:
        rows = -(-len(values) // ranks) * values[0].numel()
        return [(first, min(first + rows, count), rows) for first in range(0, count, rows)]
    borders = [0, *(b - begin for b in range(share, share * ranks, share) if begin < b < begin + count), count]
    return [(first, last, last - first) for first, last in zip(borders, borders[1:])]


def units_of(model):
    """Names of each unit's parameters, in the order of its flat buffer."""
    names = [name for name, _ in model.named_parameters()]
    blocks = [[name for name in names if name.startswith(f"blocks.{b}.")] for b in range(2)]
    return [[name for name in names if not name.startswith("blocks.")], *blocks]


def reference(model):
    before = 1  # FullyShardedDataParallel's own: about the root of the number of ranks, and the rest behind the sum
    while not fully and ranks % before == 0 and ranks / before > before:
        before *= 2
    parameters = dict(model.named_parameters())
    residuals = [{name: torch.zeros_like(p) for name, p in parameters.items()} for _ in range(ranks)]
    for step in range(STEPS):
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for rank in range(ranks):
            model.zero_grad()
            loss(model, step, rank).backward()
            for unit in units_of(model):
                at, total = 0, sum(parameters[name].numel() for name in unit)
                share = total if way == "whole" else -(-total // ranks)
                for name in unit:
                    whole = parameters[name].grad / before
                    if name.endswith("weight"):
                        whole += residuals[rank][name]
                        sent = largest(whole, pieces_of(whole, at, share))
                        residuals[rank][name], whole = whole - sent, sent
                    sums[name] += whole
                    at += whole.numel()
        with torch.no_grad():
            for name, p in parameters.items():
                p.add_(sums[name] / (ranks / before), alpha=-RATE)


def own_hook(state, whole, share):
    """Divides otherwise: the reference's bits are met where divisions are exact, among two ranks."""
    state.append(whole.numel())
    dist.reduce_scatter_tensor(share, whole.div_(ranks))


torch.set_num_threads(1)
dist.init_process_group("crimp")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = Net()
wanted = copy.deepcopy(model)
crimp.torch.automatic(not way.endswith(("attached", "unnamed")))
if way == "unknown":
    crimp.fsdp._OF_FLAT += ("_of_a_later_version",)
if way == "fully_unknown":
    crimp.fully_shard._OF_PARAMETER += ("_of_a_later_version",)
names = sorted(name for name, _ in model.named_parameters())
if way == "wrapped":
    for number, block in enumerate(model.blocks):
        model.blocks[number] = checkpoint_wrapper(block)


def shard():
    if fully:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
        share = replicate if way == "fully_replicate" else fully_shard
        for block in model.blocks:
            share(block, mesh=mesh)
        return share(model, mesh=mesh)
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=way == "original",
                                    sharding_strategy=ShardingStrategy.NO_SHARD if way == "whole" else ShardingStrategy.FULL_SHARD)


with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    sharded = shard()
    if way == "unknown":
        try:
            crimp.torch.attach(sharded)
        except RuntimeError:
            pass
        else:
            raise SystemError("units that are not known were attached")
    if way.endswith("attached"):
        crimp.torch.attach(sharded)
    ran = []
    if way == "hook":
        try:
            sharded.register_comm_hook(ran, "no hook")
        except ValueError:
            pass  # and all is as before
        sharded.register_comm_hook(ran, own_hook)
        try:
            sharded.register_comm_hook(ran, own_hook)
        except AssertionError:
            pass
        else:
            raise SystemError("a second hook was taken")
    optimizer = torch.optim.SGD(sharded.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(sharded, step, rank).backward()
        optimizer.step()
assert way.endswith("unknown") == any("not known here" in str(w.message) for w in warned), [str(w.message) for w in warned]
assert way != "hook" or len(ran) == 3 * STEPS, ran
reference(wanted)
if fully:
    got = {name: p.full_tensor().detach() for name, p in sharded.named_parameters()}
else:
    with FullyShardedDataParallel.summon_full_params(sharded):
        got = {name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", ""): p.detach().clone() for name, p in sharded.named_parameters()}
apart = max((got[name] - p).abs().max().item() for name, p in wanted.named_parameters())
unnamed = way.endswith(("unnamed", "unknown"))
if unnamed:
    assert apart > 0, "without names the reference's weights were met: this test sees nothing"
else:
    assert apart == 0, f"rank {rank}: weights differ from the reference's by up to {apart}"
if rank == 0:
    print(json.dumps({"unnamed" if unnamed else "sharded": names, "apart": apart}))
