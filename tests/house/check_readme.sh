#!/usr/bin/env bash
# check_readme.sh CRIMP ROOT: docs/settings.md, docs/codecs.md and the profiles of docs/running.md are what the command prints, README's settings are among them with the same defaults, README has at
# most 120 lines, and links within the documents lead somewhere. Changed ones would be noticed.
set -uo pipefail
crimp=$1 root=$2 bad=0
printed=$("$crimp" info --env --markdown)
table() { sed -n '/<!-- options -->/,/<!-- end of options -->/p' | sed '1d;$d'; }

check_table() {  # FILE
  diff <(table <"$1") <(echo "$printed") || { echo "the option table of $1 (<) is not what 'crimp info --env --markdown' prints (>)"; return 1; }
}
profiles() { sed -n '/<!-- profiles -->/,/<!-- end of profiles -->/p' | sed '1d;$d'; }
check_profiles() {  # FILE
  diff <(profiles <"$1") <("$crimp" info --profiles --markdown) || { echo "the profiles of $1 (<) are not what 'crimp info --profiles --markdown' prints (>)"; return 1; }
}
check_codecs() {  # FILE
  diff "$1" <("$crimp" info --codecs --markdown) || { echo "$1 (<) is not what 'crimp info --codecs --markdown' prints (>)"; return 1; }
}
# Rows "| `CRIMP_X` | `default` |...": both are in the printed table.
check_short_table() {  # FILE
  local rows=0 wrong=0 name default rest
  while IFS='|' read -r _ name default rest; do
    rows=$((rows + 1))
    [[ $printed == *"|$name|$default|"* ]] || { echo "$1 has$name with the default$default, which is not in 'crimp info --env'"; wrong=1; }
  done < <(grep '^| `CRIMP_' "$1")
  [ $rows -gt 0 ] || { echo "$1 lists no settings"; wrong=1; }
  return $wrong
}
check_length() {  # FILE
  [ "$(wc -l <"$1")" -le 120 ] || { echo "$1 has more than 120 lines; the rest belongs in docs/"; return 1; }
}
check_links() {  # FILE FOLDER
  local wrong=0 link
  while read -r link; do
    [ -e "$2/$link" ] || { echo "$1 links to $link, which is not there"; wrong=1; }
  done < <(grep -oE '\]\([^)#:]+\)' "$1" | sed 's/^](//; s/)$//')
  return $wrong
}

check_table "$root/docs/settings.md" || bad=1
check_codecs "$root/docs/codecs.md" || bad=1
check_profiles "$root/docs/running.md" || bad=1
check_short_table "$root/README.md" || bad=1
check_length "$root/README.md" || bad=1
for file in "$root"/*.md "$root"/docs/*.md "$root"/src/README.md; do check_links "$file" "$(dirname "$file")" || bad=1; done

# Each check can fail.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
planted() {  # CHECK FILE SED-EXPRESSION, the check of a changed copy
  sed "$3" "$2" >"$copy/file.md"
  "$1" "$copy/file.md" "$(dirname "$2")" >/dev/null || return 0
  echo "$1 does not notice '$3' in $2"
  bad=1
}
planted check_table "$root/docs/settings.md" 's/CRIMP_CODEC/CRIMP_KODEC/'
planted check_codecs "$root/docs/codecs.md" '$d'
planted check_profiles "$root/docs/running.md" 's/^| `safe`/| `save`/'
planted check_short_table "$root/README.md" 's/^| `CRIMP_MIN_COUNT` | `16384`/| `CRIMP_MIN_COUNT` | `16383`/'
planted check_short_table "$root/README.md" '/^| `CRIMP_/d'
planted check_length "$root/README.md" 's/$/\n/'
planted check_links "$root/README.md" 's/(docs\/gpu.md/(docs\/gpus.md/'
exit $bad
