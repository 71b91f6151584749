#!/usr/bin/env bash
# Is a call ever slower than without Crimp? MPI_Allreduce by the chooser, once settled, beside plain MPI and beside MPI on values cast to 16 bits, in turns
# in the same run, for sizes, rates and numbers of hosts. Prints a table and what is slower than the better of the two by more than 2 %.
#
#   matrix.sh [RESULTS]     the whole grid; RESULTS (build/matrix) receives one JSON file per run; what is there is not measured again
#
# Links lend little (NETNS_BURST: 4kb at 100mbit, 16kb at 1gbit, 128kb at 10gbit), so that short messages cost what they would cost on such a link; long ones reach less of the rate.
#
# Environment: HOSTS ("2 4 8"), RATES ("100mbit 1gbit 10gbit loopback"; loopback: ranks of one host), SIZES ("4k 64k 1M 16M 64M"), CODEC (3lc), SECONDS_EACH (2), ITERS (200),
# BUILD (build). Needs root (scripts/network.sh). Hosts share this machine's cores; run it while nothing else runs.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
at_most 1 "$@"
root=$(dirname "$(readlink -f "$0")")/..
build=${BUILD:-$root/build}
results=${1:-$build/matrix}
crimp=$build/bin/crimp
network=$root/scripts/network.sh
mkdir -p "$results"
# A network of its own, so that one made by hand stays as it is.
export NETNS_PREFIX=${NETNS_PREFIX:-crimpmat} NETNS_SUBNET=${NETNS_SUBNET:-10.92.0}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CRIMP_ALGORITHM=auto
trap '"$network" down' EXIT

for hosts in ${HOSTS:-2 4 8}; do
  "$network" up "$hosts" none
  for rate in ${RATES:-100mbit 1gbit 10gbit loopback}; do
    burst=128kb
    [ "$rate" != 100mbit ] || burst=4kb
    [ "$rate" != 1gbit ] || burst=16kb
    [ "$rate" = loopback ] || NETNS_BURST=${NETNS_BURST:-$burst} "$network" rate "$rate"
    for size in ${SIZES:-4k 64k 1M 16M 64M}; do
      cell=$results/$hosts-$rate-$size.json
      [ ! -s "$cell" ] || continue
      echo "== $hosts ranks, $rate, $size" >&2
      start=("$network" run)
      [ "$rate" != loopback ] || start=("$crimp" run -np "$hosts" --oversubscribe --)
      "${start[@]}" "$crimp" bench allreduce --halves --named --codec "${CODEC:-3lc}" --min "$size" --max "$size" --warm-up 2 --iters "${ITERS:-200}" \
        --seconds "${SECONDS_EACH:-2}" --label "$rate" --json "$cell.part" >"$cell.log" 2>&1 || { tail -n 20 "$cell.log"; exit 1; }
      mv "$cell.part" "$cell"
    done
  done
done

/usr/bin/python3 - "$results" <<'PYTHON'
import json, pathlib, sys

rows, slower = [], 0
for path in pathlib.Path(sys.argv[1]).glob("*.json"):
    run = json.loads(path.read_text())
    for size in run["sizes"]:
        best = min(size["plain_us"], size["halves_us"])
        rows.append((run["ranks"], run["label"], size["bytes"], size["plain_us"], size["halves_us"], size["crimp_us"], size["crimp_us"] / best))
        slower += rows[-1][-1] > 1.02
order = ["100mbit", "1gbit", "10gbit", "loopback"]
rows.sort(key=lambda row: (row[0], order.index(row[1]) if row[1] in order else 9, row[2]))
print("| ranks | network | bytes | plain us | 16 bits us | crimp us | of the better |\n|---|---|---|---|---|---|---|")
for ranks, label, size, plain, halves, crimp, of in rows:
    print(f"| {ranks} | {label} | {size} | {plain:.0f} | {halves:.0f} | {crimp:.0f} | {of:.2f} |")
print(f"\n{len(rows)} cells, slower by more than 2 %: {slower}")
PYTHON
