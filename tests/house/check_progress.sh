#!/usr/bin/env bash
# check_progress.sh ROOT: commands that end at once, one of them failing, under with_progress; what the script's EXIT trap would remove stays.
# shellcheck source=/dev/null
source "$1/scripts/progress.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((i = 0; i < 300; i++)); do
  with_progress ending "$work/log" true || exit 1
  [ -d "$work" ] || { echo "the EXIT trap ran in a child, at command $i"; exit 1; }
done
fails() { return 3; }
with_progress failing "$work/log" fails
[ $? -eq 3 ] || { echo "a failure's status is lost"; exit 1; }
