"""Sums vectors by MLX: mlx_sum.py TYPE, one of MLX's: float32, float16, bfloat16."""
import sys

import mlx.core as mx

group = mx.distributed.init(strict=True, backend="mpi")
values = mx.full((100000,), (group.rank() + 1) / 4, dtype=getattr(mx, sys.argv[1]))
if sys.argv[1] == "float32":
    values = values / 3
total = mx.distributed.all_sum(values, group=group)
exact = group.size() * (group.size() + 1) / 8 / (3 if sys.argv[1] == "float32" else 1)
assert mx.max(mx.abs(total.astype(mx.float32) - exact)).item() < 1e-2, (total[0], exact)
