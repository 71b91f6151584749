#!/usr/bin/env bash
# Time of every algorithm beside plain MPI on namespace hosts, and how good the chooser is.
#
#   collectives.sh [RESULTS]     the whole grid; RESULTS (build/collectives) receives one JSON file per run and table.md
#
# Environment: HOSTS ("4 8"), RATES ("1gbit 100mbit"), CODECS ("3lc thc topk maxmin:bits=8 fp16"; those that the build lacks are left out),
# MIN (256k), MAX (64M), SECONDS_EACH (2, most time per algorithm and size), BUILD (build). Needs root (scripts/network.sh).
# On a machine with fewer cores than hosts encoding is slower than on a host of its own; run it while nothing else runs.
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")/..
build=${BUILD:-$root/build}
results=${1:-$build/collectives}
crimp=$build/bin/crimp
network=$root/scripts/network.sh
mkdir -p "$results"
# A network of its own, so that one made by hand stays as it is.
export NETNS_PREFIX=${NETNS_PREFIX:-crimpcoll} NETNS_SUBNET=${NETNS_SUBNET:-10.91.0}
trap '"$network" down' EXIT

codecs=()
for codec in ${CODECS:-3lc thc topk maxmin:bits=8 fp16}; do
  if "$crimp" model --codec "$codec" --ranks 2 --gbit 1 --size 1M >/dev/null 2>&1; then codecs+=("$codec"); else echo "left out: this build has no codec $codec"; fi
done

for hosts in ${HOSTS:-4 8}; do
  "$network" up "$hosts" 1gbit
  for rate in ${RATES:-1gbit 100mbit}; do
    "$network" rate "$rate"
    for codec in "${codecs[@]}"; do
      echo "== $hosts hosts, $rate, $codec"
      "$network" run "$crimp" bench allreduce --algorithms --named --codec "$codec" --min "${MIN:-256k}" --max "${MAX:-64M}" --factor 4 --warm-up 2 \
        --seconds "${SECONDS_EACH:-2}" --label "$hosts hosts, $rate" --json "$results/$hosts-$rate-${codec//[:=,]/_}.json"
    done
  done
done

python3 - "$results" <<'PYTHON' | tee "$results/table.md"
import glob, json, sys

cells = near = never = 0
print("| network | codec | bytes | plain ms | algorithms ms | chooser ms | over best | over plain |\n|---|---|---|---|---|---|---|---|")
for name in sorted(glob.glob(sys.argv[1] + "/*.json")):
    run = json.load(open(name))
    for size in run["sizes"]:
        plain, auto, each = size["plain_us"], size["crimp_us"], size["algorithms_us"]
        best = min([plain, *each.values()])
        cells += 1
        near += auto <= 1.10 * best
        never += auto <= 1.05 * plain
        print(f"| {run['label']} | {run['codec']} | {size['bytes']} | {plain / 1e3:.2f} | "
              + ", ".join(f"{k} {v / 1e3:.2f}" for k, v in each.items())
              + f" | {auto / 1e3:.2f} | {auto / best:.2f} | {auto / plain:.2f} |")
if cells:
    print(f"\nThe chooser is within 10 % of the best in {near} of {cells} cells ({100 * near / cells:.0f} %), and at most 5 % slower than plain MPI in {never} of {cells}.")
PYTHON
