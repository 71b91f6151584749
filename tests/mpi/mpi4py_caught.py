"""An mpi4py program is caught: buffer calls with numpy arrays appear in the report, in place and out of place."""
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
good = True
for dtype in (np.float32, np.float64):
    exact = np.full(20000, size * (size + 1) / 6)
    mine = np.full(20000, (rank + 1) / 3, dtype=dtype)
    out = np.empty_like(mine)
    comm.Allreduce(mine, out, op=MPI.SUM)
    good = good and np.allclose(out, exact, rtol=2e-3)
    comm.Allreduce(MPI.IN_PLACE, mine, op=MPI.SUM)
    good = good and np.array_equal(mine, out)
numbers = np.arange(20000, dtype=np.int64)
comm.Allreduce(MPI.IN_PLACE, numbers)
good = good and np.array_equal(numbers, size * np.arange(20000))
print(f"expect {rank} calls=4 passed_through.type=1", flush=True)
sys.exit(0 if good else 1)
