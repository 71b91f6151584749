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

internal=$(find include/crimp -name '*.hpp')
# shellcheck disable=SC2086  # a list of files
forbid 'mpi\.h|mpi-ext\.h' 'mpi.h belongs to src/comm, mpi_shim and crimp.h' src/core src/backend src/codec src/schedule $internal
forbid 'mpi\.h|comm/(mpi|runtime|session|half)' 'the compressed collectives do not know MPI' $(find src/comm -name '*.cpp' ! -name 'mpi_*' ! -name runtime.cpp ! -name 'session*.cpp' ! -name half_type.cpp)
forbid 'cuda' 'CUDA headers belong to .cu files and kernel headers' $(find src/core src/codec src/schedule src/comm mpi_shim include ! -name '*.cu' ! -name '*.cuh' -type f)
forbid '(backend|codec|schedule|comm|mpi_shim)/' 'core knows no other layer' src/core
forbid '(codec|schedule|comm|mpi_shim)/' 'backend knows core only' $(find src/backend -type f ! -name 'cuda_*')
forbid '(schedule|comm|mpi_shim)/' 'the CUDA plugin knows core and codec only' src/backend
forbid 'cuda[^/]*\.h' 'CUDA headers belong to the plugin' $(find src/backend -type f ! -name 'cuda_*') src/backend/cuda_driver.hpp src/backend/cuda_driver.cpp
forbid '(schedule|comm|mpi_shim)/' 'codec knows backend and core only' src/codec
forbid '(backend|codec|comm|mpi_shim)/' 'schedule knows core only' src/schedule
forbid 'codec/|crimp/(codec|payload)\.hpp' 'mpi_shim knows no codec' mpi_shim

env=$(grep -rnE '\bgetenv *\(' src include mpi_shim --include='*.[ch]pp' | grep -v -e '^src/core/' -e '^src/tools/')
[ -n "$env" ] && { printf 'the environment is read by src/core only:\n%s\n' "$env"; bad=1; }
exit $bad
