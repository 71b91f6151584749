#!/usr/bin/env bash
# linked.sh CRIMP LIBRARY [VENV]: Horovod that is linked with Crimp is compressed without a preload, and `crimp check` knows it.
#
# Without VENV, a copy of the installed Horovod is linked by the patchelf recipe of docs/horovod.md; VENV holds one that was linked when it
# was built (scripts/horovod.sh linked). Exit 77: Horovod is not built here and cannot be fetched.
set -uo pipefail
crimp=$1 library=$(realpath "$2") venv=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd) work=$(mktemp -d) failed=0
trap 'rm -rf "$work"' EXIT
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONNOUSERSITE=1
unset LD_PRELOAD PYTHONPATH

python_path=()
if [ -z "$venv" ]; then
  command -v patchelf >/dev/null || { echo "skipped: no patchelf"; exit 77; }
  venv=${CRIMP_HOROVOD_VENV:-$root/build/horovod/venv}
  "$root/scripts/horovod.sh" build --no-setup >"$work/build" 2>&1 || { status=$?; cat "$work/build"; exit $status; }
  export PYTHONPATH=$work/site
  python_path=(--env "PYTHONPATH=$PYTHONPATH")
  mkdir "$PYTHONPATH"
  cp -r "$("$venv/bin/python" -c 'import os, sys, sysconfig; print(os.path.join(sysconfig.get_path("platlib"), "horovod"))')" "$PYTHONPATH"
  lib=$(dirname "$library")
  cd "$PYTHONPATH/horovod/torch" || exit 1
  # The recipe's two lines.
  patchelf --add-needed libcrimp.so mpi_lib_v2.*.so &&
    patchelf --set-rpath "$lib:$(patchelf --print-rpath mpi_lib_v2.*.so)" mpi_lib_v2.*.so || exit 1
  cd "$root" || exit 1
fi
CRIMP_HOROVOD_VENV=$venv

# expect CODE PATTERN PYTHON-CODE
expect() {
  local said got
  said=$(env -u CRIMP_HOROVOD_VENV "$crimp" check -- "$venv/bin/python" -B -c "$3" 2>&1)
  got=$?
  if [ $got -ne "$1" ] || ! grep -qE "$2" <<<"$said"; then
    printf 'exit %s (not %s), or not found: %s: %s\n%s\n' $got "$1" "$2" "$3" "$said"
    failed=1
  fi
}
expect 0 '^  .*/mpi_lib_v2[^ ]* -> .*/libcrimp\.so$' 'import horovod.torch'
expect 0 '^ok: ' 'import horovod.torch; from mpi4py import MPI'
expect 0 'MPI[.][^ ]* -> .*libmpi.* .not linked with Crimp.' \
  'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; import horovod.torch'
expect 1 '^crimp: loaded but bypassed: MPI_Allreduce of mpi_lib_v2.* leads to .*libmpi' 'from mpi4py import MPI; import horovod.torch'

CRIMP_HOROVOD_VENV=$venv "$root/scripts/horovod.sh" train --no-setup --model deep --steps 10 --np 2 "${python_path[@]}" \
  --env "CRIMP_REPORT=$work/report.json" --env CRIMP_MIN_COUNT=1k --env CRIMP_ALGORITHM=allgather >"$work/train" 2>&1 || { cat "$work/train"; exit 1; }
grep -q 'MPI_Allreduce leads here from mpi_lib_v2' "$work/train" || { cat "$work/train"; echo "the start-up line is missing"; failed=1; }
/usr/bin/python3 - "$work/report.json" <<'PYTHON' || failed=1
import json, sys
for rank in json.load(open(sys.argv[1]))["per_rank"]:
    assert rank["calls"] > 0 and set(rank["layouts"]) == {"negotiated"}, rank
PYTHON
exit $failed
