"""Under torchrun, whose ranks MPI does not know, every rank is told so by the same ValueError.
  apart (two ranks of a torchrun without mpirun) | inside (each rank of mpirun starts a torchrun of one rank)
"""
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

import crimp.torch  # noqa: F401

way = sys.argv[1]
if way in ("apart", "inside"):
    environment = {name: value for name, value in os.environ.items() if way == "inside" or not name.startswith(("OMPI_", "PMIX_", "PMI_", "ORTE_"))}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = 2 if way == "apart" else 1
    if torch.__version__.startswith("1."):  # its torchrun does not run with Python 3.11: what it tells its ranks
        told = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        jobs = [subprocess.Popen([sys.executable, __file__, "started"], env={**environment, **told, "RANK": str(rank)}) for rank in range(ranks)]
    else:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--master_port", port]
        jobs = [subprocess.Popen([*torchrun, __file__, "started"], env=environment)]
    sys.exit(max(abs(job.wait()) for job in jobs))
for options in ({"init_method": "crimp://"}, {}):
    try:
        dist.init_process_group("crimp", **options)
    except ValueError as error:
        assert "started by torchrun, whose ranks MPI does not know" in str(error) and "mpirun -np N python3" in str(error), error
    else:
        raise AssertionError("no exception")
print("told of torchrun")
