#!/usr/bin/env bash
# check_quality.sh ROOT: the accuracies that `crimp plan` names as risk are docs/quality.md's: a changed row changes them, a new one needs nothing else, and a table of
# other columns is refused.
set -uo pipefail
root=$1 bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
made() {  # SED-EXPRESSION: of a changed table
  sed "$1" "$root/docs/quality.md" >"$work/quality.md"
  [ -z "$1" ] || ! cmp -s "$root/docs/quality.md" "$work/quality.md" || { echo "'$1' changes nothing"; bad=1; }
  cmake -DTABLE="$work/quality.md" -DOUTPUT="$work/quality.def" -P "$root/src/tools/quality.cmake" >"$work/said" 2>&1
}
has() { grep -qxF "$1" "$work/quality.def" || { echo "no line $1"; bad=1; }; }  # LINE
made '' || { cat "$work/said"; bad=1; }
rows=$(grep -c '^CODEC' "$work/quality.def")
[ "$rows" = "$(sed '/^## Error of one step/,$d' "$root/docs/quality.md" | grep -o '^| `[^`]*`' | sort -u | wc -l)" ] || { echo "$rows rows"; bad=1; }
new='| `new:a=1` | none | 1.0 | 0.5 | 71.5 (0.4) | diverged |  |  | 60.0 | 61.0 |  |  |  |'
made "0,/^| \`qsgd/{/^| \`qsgd/i$new
}" || { cat "$work/said"; bad=1; }
has 'CODEC("new:a=1", 71.5, 0, kNone, kNone, 60.0, 61.0, kNone)'
[ "$(grep -c '^CODEC' "$work/quality.def")" = $((rows + 1)) ] || { echo "a new row is not one more"; bad=1; }
for change in 's/^| codec | memory/| codec | kept/' '/^| `/d'; do
  ! made "$change" || { echo "'$change' in docs/quality.md is not noticed"; bad=1; }
done
exit $bad
