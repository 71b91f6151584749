#!/usr/bin/env bash
# Time of every algorithm beside plain MPI on namespace hosts, how good the chooser is, and how good its cost functions are for ideal links.
#
#   collectives.sh [RESULTS]     the whole grid; RESULTS (build/collectives) receives one JSON file per run and table.md
#
# Environment: HOSTS ("4 8"), RATES ("1gbit 100mbit"), CODECS ("3lc thc topk maxmin:bits=8 fp16"; those that the build lacks are left out),
# MIN (256k), MAX (64M), LATENCY_US (50) and ADD_GBPS (3) of the model, SECONDS_EACH (2, most time per algorithm and size), BUILD (build). Needs root (scripts/network.sh).
# On a machine with fewer cores than hosts encoding is slower than on a host of its own; run it while nothing else runs.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
at_most 1 "$@"
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
      "$network" run "$crimp" bench allreduce --algorithms --named --codec "$codec" --min "${MIN:-256k}" --max "${MAX:-64M}" --factor 4 --warm-up 2 --iters 100 \
        --seconds "${SECONDS_EACH:-2}" --label "$hosts hosts, $rate" --json "$results/$hosts-$rate-${codec//[:=,]/_}.json"
    done
  done
done

# What the cost functions say of the same cells, for ideal links (LATENCY_US and ADD_GBPS describe this machine).
declare -A gbit=([1gbit]=1 [100mbit]=0.1 [10gbit]=10)
for rate in ${RATES:-1gbit 100mbit}; do
  "$crimp" model --codec "$(tr ' ' ',' <<<"${codecs[*]}")" --ranks "$(tr ' ' ',' <<<"${HOSTS:-4 8}")" --gbit "${gbit[$rate]}" --size 256K,1M,4M,16M,64M \
    --latency-us "${LATENCY_US:-50}" --add "${ADD_GBPS:-3}" --cores "$(nproc)" --json "$results/model-$rate.json" >/dev/null
done

python3 - "$results" <<'PYTHON' | tee "$results/table.md"
import glob, json, os, sys

predicted = {}
for name in glob.glob(sys.argv[1] + "/model-*.json"):
    rate = os.path.basename(name)[len("model-"):-len(".json")]
    for row in json.load(open(name))["rows"]:
        predicted[rate, row["codec"], row["ranks"], row["bytes"]] = row
cells = near = never = 0
ratios, right = {}, 0
print("| network | codec | bytes | plain ms | algorithms ms (model) | chooser ms | over best | over plain |\n|---|---|---|---|---|---|---|---|")
runs = [json.load(open(name)) for name in glob.glob(sys.argv[1] + "/[0-9]*.json")]
for run in sorted(runs, key=lambda run: (run["ranks"], run["label"], run["codec"])):
    for size in run["sizes"]:
        plain, auto, each = size["plain_us"], size["crimp_us"], size["algorithms_us"]
        model = predicted[run["label"].split(", ")[1], run["codec"], run["ranks"], size["bytes"]]
        expected = model["algorithms_us"]
        best = min([plain, *each.values()])
        cells += 1
        near += auto <= 1.10 * best
        never += auto <= 1.05 * plain
        right += each.get(min(expected, key=expected.get), plain) <= 1.10 * best
        for k, v in each.items():
            if k not in expected:  # the model has no node
                continue
            ratios.setdefault((run["ranks"], run["label"].split(", ")[1], size["bytes"] >= 4 << 20), []).append(v / expected[k])
        print(f"| {run['label']} | {run['codec']} | {size['bytes']} | {plain / 1e3:.2f} | "
              + ", ".join(f"{k} {v / 1e3:.2f}" + (f" ({expected[k] / 1e3:.2f})" if k in expected else "") for k, v in each.items())
              + f" | {auto / 1e3:.2f} | {auto / best:.2f} | {auto / plain:.2f} |")
if cells:
    print(f"\nThe chooser is within 10 % of the best in {near} of {cells} cells ({100 * near / cells:.0f} %), and at most 5 % slower than plain MPI in {never} of {cells}."
          f" The model's own best, for ideal links, is within 10 % of the measured best in {right}.\n")
    print("| hosts | rate | sizes | points | measured / predicted: median | from | to |\n|---|---|---|---|---|---|---|")
    for (hosts, rate, large), all in sorted(ratios.items()):
        all.sort()
        print(f"| {hosts} | {rate} | {'4 MiB and more' if large else 'below 4 MiB'} | {len(all)} | {all[len(all) // 2]:.2f} | {all[0]:.2f} | {all[-1]:.2f} |")
PYTHON
