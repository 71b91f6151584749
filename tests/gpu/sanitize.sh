#!/usr/bin/env bash
# sanitize.sh TOOL PROGRAM ARGUMENTS...: a test program under compute-sanitizer. Exit 77: it cannot be tried here.
set -uo pipefail
tool=$1
shift
sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer) || { echo "skipped: no compute-sanitizer here"; exit 77; }
"$@" --test-case=none >/dev/null 2>&1
[ $? != 77 ] || { "$@" --test-case=none; exit 77; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 99 "$@" >"$log" 2>&1
status=$?
tail -n 60 "$log"
! grep -qi 'device not supported' "$log" || { echo "skipped: compute-sanitizer does not support this machine"; exit 77; }
[ $status = 0 ] || exit 1
grep -qE 'test cases: +[1-9]' "$log" || { echo "no test case ran"; exit 1; }
grep -qE 'SUMMARY: 0 (errors|hazards)' "$log" || { echo "compute-sanitizer did not say that it found nothing"; exit 1; }
