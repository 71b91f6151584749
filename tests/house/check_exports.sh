#!/usr/bin/env bash
# check_exports.sh LIBRARY EXPORTS_MAP: the library exports exactly the names of the map's global part, and nothing else.
set -uo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort -u)
listed=$(sed -n '/global:/,/local:/p' "$2" | grep -oE '[A-Za-z_0-9]+;' | grep -v '^local' | tr -d ';' | sort -u)
[ -n "$listed" ] || { echo "$2 lists no names"; exit 2; }
differences=$(diff <(echo "$listed") <(echo "$exported")) && exit 0
echo "exports of $1 (>) differ from $2 (<):"; echo "$differences"; exit 1
