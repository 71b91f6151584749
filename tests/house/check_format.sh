#!/usr/bin/env bash
# check_format.sh ROOT: all C, C++ and CUDA sources are as .clang-format has them. Exit 77 without clang-format 14: other versions break lines elsewhere.
set -uo pipefail
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "skipped: no clang-format here"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "skipped: $("$tool" --version), not version 14"; exit 77; }
cd "$1" || exit 2
mapfile -t files < <(find src mpi_shim include tests -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
[ ${#files[@]} -gt 100 ] || { echo "only ${#files[@]} sources found"; exit 1; }
bad=0
mapfile -t wrong < <("$tool" --dry-run --Werror "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)
if [ ${#wrong[@]} -gt 0 ]; then
  printf '%s\n' "${#wrong[@]} files differ from .clang-format; 'clang-format -i' mends them, once or twice:" "${wrong[@]}"
  bad=1
fi
# The check can fail.
if echo 'int  f( ){return 1 ;}' | "$tool" --dry-run --Werror --assume-filename=src/core/planted.cpp 2>/dev/null; then
  echo "a line of bad form is not noticed"
  bad=1
fi
exit $bad
