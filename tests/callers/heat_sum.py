"""Sums a vector by Heat's communicator, blocking or not: heat_sum.py Allreduce|Iallreduce. Heat's data-parallel training does the same."""
import sys

import heat
import torch
from mpi4py import MPI

comm = heat.communication.MPI_WORLD
values = torch.full((100000,), (comm.rank + 1) / 3, dtype=torch.float32)
done = getattr(comm, sys.argv[1])(MPI.IN_PLACE, values, MPI.SUM)
if sys.argv[1] == "Iallreduce":
    done.Wait()
assert abs(float(values.max()) - comm.size * (comm.size + 1) / 6) < 1e-2
