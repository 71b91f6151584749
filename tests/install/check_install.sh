#!/usr/bin/env bash
# check_install.sh BUILD: an installed Crimp is found by CMake and by pkg-config, and a program linked so is compressed.
set -euo pipefail
build=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null

cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/cmake" >/dev/null
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig:$(dirname "$(find "$work/prefix" -name crimp.pc)")
# shellcheck disable=SC2046  # options, one word each
mpicc "$here/linked.c" $(pkg-config --cflags --libs crimp) -o "$work/linked"

as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
for program in "$work/cmake/linked" "$work/linked"; do
  said=$(mpirun "${as_root[@]}" --oversubscribe -np 2 -x CRIMP_CODEC=fp16 -x CRIMP_ALGORITHM=allgather "$program" 2>&1)
  case $said in
    *"1 calls compressed (1 with fp16; 1 by allgather)"*) ;;
    *) echo "$program was not compressed: $said"; exit 1 ;;
  esac
done
"$work/prefix/bin/crimp" info >/dev/null
