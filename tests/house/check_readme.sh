#!/usr/bin/env bash
# check_readme.sh CRIMP README: the option table of the README is the one that the command prints, and a changed one would be noticed.
set -uo pipefail
table() { sed -n '/<!-- options -->/,/<!-- end of options -->/p' | sed '1d;$d'; }
printed=$("$1" info --env --markdown)
written=$(table <"$2")
[ -n "$written" ] || { echo "$2 has no table between <!-- options --> and <!-- end of options -->"; exit 1; }
if [ "$printed" != "$written" ]; then
  diff <(echo "$written") <(echo "$printed")
  echo "the option table of $2 (<) is not what 'crimp info --env --markdown' prints (>)"
  exit 1
fi
[ "$(sed 's/CRIMP_CODEC/CRIMP_KODEC/' "$2" | table)" != "$printed" ]
