#!/usr/bin/env bash
# planted_faults.sh ROOT LIBRARY COMPILE_COMMANDS EXPORTS_MAP: the checks find faults that are planted in copies; a check that cannot fail is worth nothing.
set -uo pipefail
root=$1 library=$2 commands=$3 exports=$4 here=$(dirname "$0") copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
missed=0

plant() {  # FILE LINE: appended to a copy of the tree, which must then be refused
  rm -rf "$copy/tree" && mkdir "$copy/tree" && cp -r "$root"/{src,include,mpi_shim} "$copy/tree"
  echo "$2" >>"$copy/tree/$1"
  if "$here/check_borders.sh" "$copy/tree" >/dev/null; then
    echo "not found: $2 in $1"
    missed=1
  fi
}
plant src/core/log.cpp '#include <mpi.h>'
plant src/codec/threelc/threelc_host.cpp '#include <cuda_runtime.h>'
plant src/codec/codec.hpp '#  include "mpi.h"'
plant mpi_shim/allreduce.cpp '#include "codec/codec.hpp"'
plant src/backend/device_plugin.cpp '#include <cuda_runtime.h>'
plant src/collective/wire.cpp 'const char* x = getenv("CRIMP_X");'
plant src/collective/compressed_allgather.cpp '#include <mpi.h>'
plant src/core/log.cpp '#include "../collective/wire.hpp"'

# A pointer of which the compiler does not know that it is to device memory.
printf '.visible .entry planted(\n\tld.global.f32 %%f1, [%%rd1];\n\t@%%p1 ld.v4.f32 {%%f2}, [%%rd2];\n' >"$copy/planted.ptx"
if "$here/kernel_memory.py" "$copy/planted.ptx" >/dev/null; then
  echo "not found: a generic load"
  missed=1
fi

# A layer that sees everything is noticed.
sed 's| -o | -I'"$root"'/src -o |' "$commands" >"$copy/commands.json"
if "$here/layers.py" "$copy/commands.json" >/dev/null 2>"$copy/found" || ! grep -q 'is found' "$copy/found"; then
  echo "not found: layers that see each other"
  missed=1
fi

sed 's/crimp_version;/crimp_version; crimp_missing;/' "$exports" >"$copy/more.map"
sed 's/MPI_Pcontrol; PMPI_Pcontrol;//' "$exports" >"$copy/fewer.map"
for map in more fewer; do
  if "$here/check_exports.sh" "$library" "$copy/$map.map" >/dev/null; then
    echo "not found: exports differ from $map.map"
    missed=1
  fi
done
# MPI's own library needs others.
if "$here/check_loading.sh" "$(ldd "$library" | awk '/libmpi/ {print $3; exit}')" >/dev/null; then
  echo "not found: a library that needs others"
  missed=1
fi
exit $missed
