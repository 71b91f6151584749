#!/usr/bin/env bash
# abi.sh BUILD: a library for MPI 5's binary interface (libmpi_abi.so.1) is configured and built with the mpicc_abi of MPICH's Python wheel, which mpi.wheel's tests
# keep in BUILD/wheels, and the tests of what touches MPI run with it. Some minutes. Exit 77: the wheel cannot be had here.
set -uo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "abi.sh: $2"; exit "$1"; }
source "$here/../../scripts/registry.sh"
source "$here/wheel_venv.sh"

venv=$build/wheels/mpich
wheel_venv mpich "$venv"
[ -x "$venv/bin/mpicc_abi" ] || fail 1 "the wheel has no mpicc_abi"
# Tests ask for the launcher by Debian's name; it looks for what it starts beside itself, so a link will not do.
mkdir -p "$build/abi/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$venv/bin/mpiexec.hydra" >"$build/abi/bin/mpiexec.mpich"
chmod +x "$build/abi/bin/mpiexec.mpich"
export PATH=$build/abi/bin:$PATH LD_LIBRARY_PATH=$venv/lib
programs=(sums communicators specials nonblocking scattered ireduced segments large_counts get_status)
cmake -S "$here/../.." -B "$build/abi" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCRIMP_JUMBO=ON -DCRIMP_TESTS=mpi -DCRIMP_MPICH="$venv/bin/mpicc_abi" >"$build/abi/log" 2>&1 ||
  { tail -n 20 "$build/abi/log"; fail 1 "cannot be configured"; }
grep -q 'libmpi_abi.so.1' "$build/abi/log" || fail 1 "another MPI was found: $(grep 'A second library' "$build/abi/log")"
ninja -C "$build/abi" crimp_mpich mpich_giving_way "${programs[@]/#/mpich_}" >"$build/abi/log" 2>&1 || { tail -n 20 "$build/abi/log"; fail 1 "cannot be built"; }
readelf -d "$build/abi/tests/mpi/mpich_sums" | grep -q 'libmpi_abi.so.1' || fail 1 "the programs are for another MPI"
# Not those in which MPICH itself ends the job or has bits of its own; the tests step around it where mpi.h defines MPICH, which this interface's does not.
ctest --test-dir "$build/abi" -C mpich --no-tests=error --output-on-failure -j 2 -E 'linked|np5|exact|odd' \
  -R '^mpich\.(sums\.(fp16|3lc|threads)|two_shot\.fp16|communicators|specials\.fp16|nonblocking\.(completions|progress|persistent|stress\.np2|order|large)|scattered\.(fp16|nonblocking)|ireduced|segments|get_status)'
