"""A library that is linked with Crimp, beside mpi4py.

  mpi4py_linked.py first LIB     mpi4py is imported before LIB is opened: libmpi is there first, and LIB's calls go past Crimp
  mpi4py_linked.py uninitialized LIB     libmpi is there first, too, and MPI is initialized after LIB is opened
  mpi4py_linked.py after LIB     ... behind it: LIB's calls are Crimp's, though mpi4py initializes and finalizes MPI past it

Prints whether LIB's call was compressed: a third is not a half-precision number.
"""
import ctypes
import sys

import numpy as np

order, library = sys.argv[1:]
if order == "first":
    from mpi4py import MPI
elif order == "uninitialized":
    ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
plugin = ctypes.CDLL(library)
print("the library is open", file=sys.stderr, flush=True)
from mpi4py import MPI


def handle(of):
    return ctypes.c_void_p.from_address(MPI._addressof(of))


values = np.full(20000, 1 / 3, dtype=np.float32)
total = np.empty_like(values)
buffers = [ctypes.c_void_p(array.ctypes.data) for array in (values, total)]
status = plugin.plugin_allreduce(*buffers, values.size, *map(handle, (MPI.FLOAT, MPI.SUM, MPI.COMM_WORLD)))
exact = np.float32(1 / 3) * np.float32(MPI.COMM_WORLD.Get_size())
compressed = not np.array_equal(total, np.full_like(total, exact))
print(f"rank {MPI.COMM_WORLD.Get_rank()}: {'compressed' if compressed else 'exact'}")
print(f"expect {MPI.COMM_WORLD.Get_rank()} calls={int(compressed)}", flush=True)
print("the end", file=sys.stderr, flush=True)
sys.exit(status or not np.allclose(total, exact, rtol=1e-3))
