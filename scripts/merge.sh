#!/usr/bin/env bash
# Step times under Horovod by merge plan: unmerged, buckets of equal bytes, all in one, MergeComp's two groups, and CRIMP_MERGE=auto, for models, codecs and
# rates. Hosts (4) in network namespaces that share this machine's cores. Prints a table.
#
#   merge.sh [--library FILE] [--np HOSTS] [--paced MS] [--models "deep mlp25"] [--rates "100mbit 1gbit 10gbit"] [--codecs "3lc topk:ratio=0.01 8bit"] [--merges "off ... auto"]
#
# Results stay below build/merge, one file a cell; what is there is not measured again. All by the algorithm CRIMP_ALGORITHM (two_shot), so that no trials
# of algorithms are among the steps. About a minute a cell of mlp25, a third of deep. --paced: computing takes so long and no processor (train.py), so that
# steps do not wait for cores that the hosts share.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
library=() np=4 paced=() models="deep mlp25" rates="100mbit 1gbit 10gbit" codecs="3lc topk:ratio=0.01 8bit" merges="off bytes=2M bytes=8M bytes=32M all y=2 auto"
while [ $# -gt 0 ]; do
  case $1 in
  --library) library=(--library "${2:?--library FILE}") ;;
  --np) np=${2:?--np HOSTS} ;;
  --paced) paced=(--paced "${2:?--paced MS}") ;;
  --models | --rates | --codecs | --merges) declare "${1#--}=${2:?$1 needs a value}" ;;
  *) unknown "$1" ;;
  esac
  shift 2
done
export CRIMP_ALGORITHM=${CRIMP_ALGORITHM:-two_shot}
results=build/merge/np$np${paced[1]:+-paced${paced[1]}}
mkdir -p "$results"

for model in $models; do
  for codec in $codecs; do
    for rate in $rates; do
      for merge in $merges; do
        # A bucket that holds the whole net is all in one.
        [ "$model" != deep ] || [[ $merge != bytes=* ]] || continue
        cell=$results/$model-${codec%%:*}-$rate-$merge
        [ ! -s "$cell.json" ] || continue
        warm=15 steps=20
        [ "$model" != deep ] || { warm=30 steps=60; }
        [ "$merge" != auto ] || warm=150
        echo "== $model, $codec, $rate, $merge" >&2
        ./scripts/horovod.sh train --no-setup "${library[@]}" --np "$np" --model "$model" "${paced[@]}" --batch 16 --rate "$rate" --crimp "$codec" --report "$cell-report.json" \
          --env "CRIMP_MERGE=$merge" --phase "$warm:true" --phase "$steps:true" >"$cell.log" 2>&1 || { tail -n 20 "$cell.log"; exit 1; }
        grep '^{"model"' "$cell.log" >"$cell.json"
      done
    done
  done
done
/usr/bin/python3 - "$results" "$merges" <<'PYTHON'
import json, pathlib, statistics, sys
folder, merges = pathlib.Path(sys.argv[1]), sys.argv[2].split()
cells = {}
for path in sorted(folder.glob("*.json")):
    if path.stem.endswith("-report"):
        continue
    model, codec, rate, merge = path.stem.split("-", 3)
    cells.setdefault((model, rate, codec), {})[merge] = statistics.median(json.loads(path.read_text())["phases"][1]["times_ms"])
print("| model, rate, codec | " + " | ".join(merges) + " | auto / best of the others | unmerged / auto |")
print("|---|" + "---|" * (len(merges) + 2))
for key, row in cells.items():
    others = [t for m, t in row.items() if m != "auto"]
    auto = row.get("auto")
    print(f"| {', '.join(key)} | " + " | ".join(f"{row[m]:.0f}" if m in row else "-" for m in merges)
          + (f" | {auto / min(others):.2f} | {row['off'] / auto:.2f} |" if auto and others and "off" in row else " | - | - |"))
PYTHON
