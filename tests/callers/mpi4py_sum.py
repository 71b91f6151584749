"""Sums a vector of numpy's by mpi4py: mpi4py_sum.py Allreduce|Iallreduce|Reduce_scatter_block."""
import sys

import numpy
from mpi4py import MPI

comm, method = MPI.COMM_WORLD, sys.argv[1]
values = numpy.full(100000 * comm.size, (comm.rank + 1) / 3, dtype=numpy.float32)
total = numpy.empty_like(values[:100000] if method == "Reduce_scatter_block" else values)
done = getattr(comm, method)(values, total)
if done:
    done.Wait()
assert numpy.allclose(total, comm.size * (comm.size + 1) / 6, atol=1e-2), total[0]
