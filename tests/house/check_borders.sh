#!/usr/bin/env bash
# The borders of the house: which layer may include what. check_borders.sh [ROOT]; prints each trespass, exit 1 if there is one.
set -uo pipefail
root=${1:-$(dirname "$0")/../..}
cd "$root" || exit 2
bad=0

# forbid WHAT WHY PATH...: no file under the paths has an #include that matches the pattern.
forbid() {
  local pattern=$1 why=$2 hits
  shift 2
  hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" --include='*.[ch]' --include='*.[ch]pp' --include='*.cu' --include='*.cuh' "$@" 2>/dev/null)
  [ -z "$hits" ] && return
  printf '%s\n%s\n' "$why:" "$hits"
  bad=1
}

# Which layer sees which is the compiler's affair (house.layers). Here is what include folders cannot say.
forbid 'mpi\.h|mpi-ext\.h' 'mpi.h belongs to src/mpi, mpi_shim and crimp.h' src/core src/memory src/codec src/schedule src/backend src/collective
forbid 'cuda' 'CUDA headers belong to .cu files and kernel headers' $(find src/core src/memory src/codec src/schedule src/collective src/mpi mpi_shim include ! -name '*.cu' ! -name '*.cuh' -type f)
forbid 'cuda[^/]*\.h' 'CUDA headers belong to the plugin' $(find src/backend -type f ! -name 'cuda_*') src/backend/cuda_driver.hpp src/backend/cuda_driver.cpp
forbid 'codec/' 'mpi_shim knows no codec' mpi_shim
forbid '[^"]*\.\./' 'layers are named, not climbed to' src mpi_shim

env=$(grep -rnE '\bgetenv *\(' src include mpi_shim --include='*.[ch]pp' | grep -v -e '^src/core/' -e '^src/tools/')
[ -n "$env" ] && { printf 'the environment is read by src/core only:\n%s\n' "$env"; bad=1; }
exit $bad
