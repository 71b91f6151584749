#!/usr/bin/env bash
# check_readme.sh CRIMP ROOT: README's option table and docs/codecs.md are what the command prints, and a changed one would be noticed.
set -uo pipefail
table() { sed -n '/<!-- options -->/,/<!-- end of options -->/p' | sed '1d;$d'; }
printed=$("$1" info --env --markdown)
readme=$2/README.md
written=$(table <"$readme")
[ -n "$written" ] || { echo "$readme has no table between <!-- options --> and <!-- end of options -->"; exit 1; }
if [ "$printed" != "$written" ]; then
  diff <(echo "$written") <(echo "$printed")
  echo "the option table of $readme (<) is not what 'crimp info --env --markdown' prints (>)"
  exit 1
fi
[ "$(sed 's/CRIMP_CODEC/CRIMP_KODEC/' "$readme" | table)" != "$printed" ] || exit 1
"$1" info --codecs --markdown | diff "$2/docs/codecs.md" - || { echo "docs/codecs.md (<) is not what 'crimp info --codecs --markdown' prints (>)"; exit 1; }
