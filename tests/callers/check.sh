#!/usr/bin/env bash
# check.sh CRIMP LIBRARY BY_NAME PLAIN: what `crimp check` says of files that it does not run.
set -uo pipefail
crimp=$1 library=$2 by_name=$3 plain=$4 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_PRELOAD CRIMP_CHECK

# expect CODE PATTERN... -- COMMAND...; a pattern that begins with ! must not be there.
expect() {
  local code=$1 patterns=() said got
  shift
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  said=$("$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || { printf 'exit %s instead of %s: %s\n%s\n' "$got" "$code" "$*" "$said"; failed=1; }
  for p in "${patterns[@]}"; do
    if [ "${p#!}" != "$p" ]; then
      ! grep -qE -e "${p#!}" <<<"$said" || { printf 'found, and should not be: %s: %s\n%s\n' "${p#!}" "$*" "$said"; failed=1; }
    else
      grep -qE -e "$p" <<<"$said" || { printf 'not found: %s: %s\n%s\n' "$p" "$*" "$said"; failed=1; }
    fi
  done
}

expect 1 '^not linked: MPI_Allreduce leads to .*/libmpi[^/]*; preload Crimp: crimp run -np N -- ' '^      compressed: MPI_Allreduce$' '!by name' -- "$crimp" check --file "$plain"
# A library that is preloaded with a sanitizer needs that in front, which is not what is tried here.
if ! ldd "$library" | grep -E 'lib[alt]san' >/dev/null; then
  expect 0 "^ok: MPI_Allreduce leads to $library$" -- env LD_PRELOAD="$library" "$crimp" check --file "$plain"
  expect 0 '^ok: MPI_Allreduce resolves to Crimp$' '^      compressed: MPI_Allreduce$' '!MPI_Iallreduce' -- env LD_PRELOAD="$library" "$crimp" check -- "$plain"
  expect 1 "may look MPI_Allreduce up by name, past every preload; give it $library" -- env LD_PRELOAD="$library" "$crimp" check -- "$by_name"
fi
expect 0 "^ok: MPI_Allreduce leads to $library$" -- "$crimp" check --file "$crimp"
expect 1 '^no calls: ' '!MPI_' -- "$crimp" check --file /bin/true
expect 1 '^no calls: ' "may look MPI_Allreduce up by name, past every preload; give it $library where it wants" -- "$crimp" check --file "$by_name"
# Known by their names.
cp "$by_name" "$work/libmlx.so" && cp "$by_name" "$work/libccl.so.1"
expect 1 "MLX_MPI_LIBNAME=$library$" -- "$crimp" check --file "$work/libmlx.so"
expect 1 "CCL_MPI_LIBRARY_PATH=$library$" -- "$crimp" check --file "$work/libccl.so.1"
expect 1 '^not loaded: ' '^      compressed: MPI_Allreduce$' -- "$crimp" check -- "$plain"
expect 2 'no program and no library' -- "$crimp" check --file "$work"
# What is no ELF file, or is cut.
printf '#!/bin/sh\n' >"$work/script"
head -c 3000 "$plain" >"$work/cut"
head -c 64 "$plain" >"$work/header"
for file in script cut header; do expect 2 'no program and no library' -- "$crimp" check --file "$work/$file"; done
expect 2 'no program' '^not linked' -- "$crimp" check --file "$plain" --file "$work/script"
exit $failed
