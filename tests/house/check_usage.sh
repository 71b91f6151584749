#!/usr/bin/env bash
# check_usage.sh ROOT: every script says by --help what it is for, and refuses an unknown argument by name with status 2, before it needs anything or starts work: all
# that is on their PATH is bash and coreutils.
set -uo pipefail
root=$1 bad=0 seen=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/here"
for tool in bash basename cat dirname env id mkdir mktemp nproc readlink realpath rm timeout; do ln -s "$(command -v $tool)" "$work/bin/"; done
python=$(command -v python3)
cd "$work/here" || exit 1
says() {  # SCRIPT ARGUMENT...: output and errors in $work/out and $work/err
  local with=bash
  [[ $1 != *.py ]] || with=$python
  PATH=$work/bin timeout 20 "$with" "$@" >"$work/out" 2>"$work/err"
}
for script in "$root"/scripts/*.sh "$root"/scripts/*.py; do
  [ -x "$script" ] || continue  # to be sourced
  seen=$((seen + 1))
  name=${script##*/}
  for help in --help -h; do
    says "$script" $help || { echo "$name $help ends with $?: $(cat "$work/err")"; bad=1; }
    grep -qF "$name" "$work/out" || { echo "$name $help does not say how it is called: $(cat "$work/out")"; bad=1; }
  done
  status=0
  says "$script" --nonsense || status=$?
  [ $status -eq 2 ] || { echo "$name --nonsense ends with $status, not 2"; bad=1; }
  grep -qE -- "--nonsense|are required: " "$work/err" || { echo "$name --nonsense does not name it: $(cat "$work/err")"; bad=1; }
  [ -z "$(ls -A "$work/here")" ] || { echo "$name has written: $(ls -A "$work/here")"; bad=1; rm -rf "${work:?}/here/"*; }
done
[ $seen -gt 15 ] || { echo "only $seen scripts were found"; bad=1; }
exit $bad
