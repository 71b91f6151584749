#!/usr/bin/env bash
# check_configure.sh ROOT NVCC: CMake options with wrong values are refused by name, what the user gives of CMake's own wins, Crimp can be a part of another project, and
# kernels are compiled in a folder whose path has a space. NVCC may be empty.
set -uo pipefail
root=$1 nvcc=$2 bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong() { echo "$*"; bad=1; }
configure() {  # FOLDER ARGUMENT...
  local folder=$1
  shift
  cmake -S "$root" -B "$folder" -G Ninja -DCRIMP_VECTORS=here -DCRIMP_NVCC= -DCRIMP_TESTS=OFF -DCRIMP_MPICH=off "$@" >"$work/said" 2>&1
}
refused() {  # ARGUMENT WHAT-IT-SAYS
  if configure "$work/refused" "$1"; then wrong "accepted: $1"
  elif ! tr -s '\n ' ' ' <"$work/said" | grep -qF -- "$2"; then wrong "$1 is refused without '$2': $(cat "$work/said")"; fi
  rm -f "$work/refused/CMakeCache.txt"
}
for part in nonsense tsan fuzz golden; do refused "-DCRIMP_TESTS=$part" "CRIMP_TESTS is '$part', legal: ON, OFF"; done
refused -DCRIMP_MPICH=/nonexistent "CRIMP_MPICH is '/nonexistent', legal: auto, off"
open_mpi=$(command -v mpicc.openmpi) && refused "-DCRIMP_MPICH=$open_mpi" "is Open MPI's"
refused -DCRIMP_VECTORS=there "'there'"
refused "-DCMAKE_CXX_FLAGS=-O2 -ffast-math" "CMAKE_CXX_FLAGS has -ffast-math"
refused -DCMAKE_C_FLAGS_RELEASE=-Ofast "CMAKE_C_FLAGS has -Ofast"
refused -DCMAKE_INSTALL_LIBDIR=/p/lib "CMAKE_INSTALL_LIBDIR is '/p/lib'"

commands() { ninja -C "$work/$1" -t commands src/CMakeFiles/crimp_core.dir/core/error.cpp.o 2>/dev/null | grep 'core/error\.cpp$'; }
configure "$work/own" -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_CXX_COMPILER_LAUNCHER=env -DCMAKE_BUILD_TYPE=Release || wrong "$(cat "$work/said")"
own=$(commands own)
[[ $own == *"env "*" -O1 "* && $own != *" -O3 "* && $own != *ccache* ]] || wrong "CMAKE_CXX_FLAGS_RELEASE=-O1, CMAKE_CXX_COMPILER_LAUNCHER=env: $own"
configure "$work/ours" || wrong "$(cat "$work/said")"
[[ $(commands ours) == *" -O3 -g1 "* ]] || wrong "without flags of the user's: $(commands ours)"
configure "$work/tools" -DCRIMP_TESTS=tools || wrong "CRIMP_TESTS=tools: $(cat "$work/said")"
configure "$work/ours" -DCMAKE_BUILD_TYPE=debug || wrong "$(cat "$work/said")"
[[ $(commands ours) != *stack-clash* ]] || wrong "CMAKE_BUILD_TYPE=debug is not Debug: $(commands ours)"

mkdir "$work/outer"
cat >"$work/outer/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.25)
project(outer)
add_custom_target(uninstall)
add_subdirectory("$root" crimp)
include(CPack)
PROJECT
cmake -S "$work/outer" -B "$work/outer/build" -G Ninja -DCRIMP_NVCC= -DCRIMP_TESTS=OFF -DCRIMP_MPICH=off >"$work/said" 2>&1 || wrong "within another project: $(cat "$work/said")"
grep -q '"outer"' "$work/outer/build/CPackConfig.cmake" || wrong "the packages of another project are Crimp's"

if [ -n "$nvcc" ]; then
  # The command alone: ninja would build the libraries first.
  configure "$work/a b" -DCRIMP_NVCC="$nvcc" "-DCRIMP_CUDA_ARCHITECTURES=80;90a" || wrong "$(cat "$work/said")"
  command=$(ninja -C "$work/a b" -t commands src/device/cuda_slot_sums.cu.o | tail -1)
  # What the plugin says of later devices holds for PTX of 90, not of 90a.
  [[ $command == *arch=compute_90,code=compute_90\ * || $command == *"arch=compute_90,code=compute_90'"* ]] || wrong "the PTX of 80;90a: $command"
  (cd "$work/a b" && sh -c "$command") >"$work/said" 2>&1 || wrong "nvcc in '$work/a b': $(cat "$work/said")"
  for file in o log o.ptx; do [ -s "$work/a b/src/device/cuda_slot_sums.cu.$file" ] || wrong "cuda_slot_sums.cu.$file was not made in '$work/a b'"; done
  [ ! -e "$work/a" ] || wrong "$work/a was written"
fi
exit $bad
