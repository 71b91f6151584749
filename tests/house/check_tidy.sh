#!/usr/bin/env bash
# check_tidy.sh ROOT BUILD: clang-tidy finds nothing in a file of each layer. Exit 77 without clang-tidy 14: other versions know other checks.
set -uo pipefail
tool=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "skipped: no clang-tidy here"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "skipped: not clang-tidy 14"; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
build=$(mktemp -d) planted=$(mktemp --suffix=.cpp) bad=0
trap 'rm -rf "$build" "$planted"' EXIT
"$here/compile_commands.py" "$2/compile_commands.json" >"$build/compile_commands.json" || exit 2
files=(src/core/settings_text.cpp src/memory/workers.cpp src/codec/spec.cpp src/schedule/rules.cpp src/collective/wire.cpp mpi_shim/horovod/gate.cpp mpi_shim/eligibility.cpp)
tidy() { "$tool" -p "$build" --quiet "$@" 2>/dev/null; }
for file in "${files[@]}"; do tidy "$file" || bad=1; done
# The check can fail: a copy of one with a planted fault.
echo 'struct A { virtual ~A(); virtual void f(int); }; struct B : A { void f(int) { int* p = 0; (void)p; } };' >"$planted"
if "$tool" --config-file=.clang-tidy --quiet "$planted" -- -std=c++20 >/dev/null 2>&1; then
  echo "a planted fault is not found"
  bad=1
fi
exit $bad
