#!/usr/bin/env bash
# check_install.sh BUILD: an installed Crimp is found by CMake and by pkg-config, and a program linked so is compressed.
set -euo pipefail
build=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null

cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/cmake" >/dev/null
libraries=$(cd "$work/prefix" && dirname "$(find . -maxdepth 4 -name 'libcrimp.so' ! -path '*/crimp/*')")
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig:$(dirname "$(find "$work/prefix" -name crimp.pc)")
# shellcheck disable=SC2046  # options, one word each
"$(command -v mpicc.openmpi || echo mpicc)" "$here/linked.c" $(pkg-config --cflags --libs crimp) -o "$work/linked"

as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
for program in "$work/cmake/linked" "$work/linked"; do
  said=$("$(command -v mpirun.openmpi || echo mpirun)" "${as_root[@]}" --oversubscribe -np 2 -x CRIMP_CODEC=fp16 -x CRIMP_ALGORITHM=allgather "$program" 2>&1)
  case $said in
    *"1 calls compressed (1 with fp16; 1 by allgather)"*) ;;
    *) echo "$program was not compressed: $said"; exit 1 ;;
  esac
done
"$work/prefix/bin/crimp" info >/dev/null

# The same for MPICH, where there is a library for it; and each program is started with the library of its MPI.
[ -d "$work/prefix/$libraries/crimp" ] || { echo "no library for MPICH was built"; exit 0; }
cmake -S "$here" -B "$work/cmake_mpich" -DCMAKE_PREFIX_PATH="$work/prefix" -DMPI_C_COMPILER="$(command -v mpicc.mpich)" >/dev/null
cmake --build "$work/cmake_mpich" >/dev/null
# shellcheck disable=SC2046
mpicc.mpich "$here/linked.c" $(pkg-config --cflags --libs crimp-mpich) -o "$work/linked_mpich"
mpicc.mpich "$here/linked.c" -o "$work/not_linked_mpich"
export CRIMP_CODEC=fp16 CRIMP_ALGORITHM=allgather
for line in "mpiexec.mpich -n 2 $work/cmake_mpich/linked" "mpiexec.mpich -n 2 $work/linked_mpich" "$work/prefix/bin/crimp run -n 2 -- $work/not_linked_mpich"; do
  said=$($line 2>&1)
  case $said in
    *"1 calls compressed (1 with fp16; 1 by allgather)"*) ;;
    *) echo "$line was not compressed: $said"; exit 1 ;;
  esac
done
refused=$(MPIRUN=$(command -v mpirun.openmpi) "$work/prefix/bin/crimp" run -n 2 -- "$work/not_linked_mpich" 2>&1) && { echo "another MPI's launcher was taken"; exit 1; }
[[ $refused == *"needs lib"*"MPICH"*"Open MPI"* ]] || { echo "$refused"; exit 1; }
