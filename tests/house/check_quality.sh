#!/usr/bin/env bash
# check_quality.sh ROOT: the accuracies that `crimp plan` names as risk are docs/quality.md's. Changed ones would be noticed.
set -uo pipefail
root=$1 bad=0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
check() {  # QUALITY.md
  python3 "$root/scripts/quality_rows.py" "$1" | diff - "$root/src/tools/quality.def"
}
check "$root/docs/quality.md" || { echo "src/tools/quality.def (>) is not what docs/quality.md has (<): scripts/quality_rows.py docs/quality.md >src/tools/quality.def"; bad=1; }
for change in 's/^| `3lc\(.*\) 84.2 (0.3)/| `3lc\1 84.3 (0.3)/' '0,/^| `qsgd/{/^| `qsgd/d}' 's/^| codec | memory/| codec | kept/'; do
  sed "$change" "$root/docs/quality.md" >"$copy/quality.md"
  ! cmp -s "$root/docs/quality.md" "$copy/quality.md" || { echo "'$change' changes nothing"; bad=1; }
  ! check "$copy/quality.md" >/dev/null 2>&1 || { echo "'$change' in docs/quality.md is not noticed"; bad=1; }
done
exit $bad
