#!/usr/bin/env bash
# check_functions.sh CRIMP EXPORTS_MAP [DOCS]: the shim's table of reductions (crimp check --functions) and the map agree: what is not left to MPI is exported
# by both names, and of what is left nothing is. DOCS holds the table as `crimp check --functions --markdown` prints it.
set -uo pipefail
wrong=0 rows=0
while IFS=$'\t' read -r name handling; do
  rows=$((rows + 1))
  for symbol in "$name" "P$name"; do
    listed=$(grep -cE "(^|[ ;])$symbol;" "$2")
    if [ "$handling" = 'left to MPI' ]; then wanted=0; else wanted=1; fi
    [ "$listed" = "$wanted" ] || { echo "$symbol: $handling, and $listed times in $2"; wrong=1; }
  done
done < <("$1" check --functions)
[ $rows -gt 20 ] || { echo "$1 check --functions has $rows rows"; exit 2; }
if [ $# -gt 2 ]; then
  diff <(sed -n '/^<!-- functions -->$/,/^<!-- end of functions -->$/p' "$3" | sed '1d;$d' | grep .) <("$1" check --functions --markdown) ||
    { echo "$3 (<) has not what crimp check --functions --markdown prints (>)"; wrong=1; }
fi
exit $wrong
