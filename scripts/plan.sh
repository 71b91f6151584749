#!/usr/bin/env bash
# How good are the predictions of `crimp plan`? Steps of two models as `crimp bench step` makes them, on hosts in network namespaces, beside what was predicted from the
# profile that `crimp plan --measure` took there before, and beside what follows from rate, latency and cores alone.
#
#   plan.sh [RESULTS]     2 models x 3 rates x 2 codecs x 2 and 4 hosts; RESULTS (build/plan) receives one JSON file a run; what is there is not measured again
#
# Environment: HOSTS ("2 4"), RATES ("100mbit 1gbit 10gbit"), CODECS ("3lc 8bit"), MODELS ("mlp resnet50", of docs/models), COMPUTE_MLP (10) and COMPUTE_RESNET50 (30, ms that
# a step computes, which is slept), STEPS (15), BUILD (build). Needs root (scripts/network.sh). Hosts share this machine's cores; run it while nothing else runs.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
at_most 1 "$@"
root=$(dirname "$(readlink -f "$0")")/..
build=${BUILD:-$root/build}
results=${1:-$build/plan}
crimp=$build/bin/crimp
network=$root/scripts/network.sh
codecs=${CODECS:-3lc 8bit}
declare -A compute=([mlp]=${COMPUTE_MLP:-10} [resnet50]=${COMPUTE_RESNET50:-30})
declare -A gbit=([100mbit]=0.1G [1gbit]=1G [10gbit]=10G)
mkdir -p "$results"
# A network of its own, so that one made by hand stays as it is.
export NETNS_PREFIX=${NETNS_PREFIX:-crimpplan} NETNS_SUBNET=${NETNS_SUBNET:-10.93.0}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CRIMP_LOG=warn
trap '"$network" down' EXIT

# The best fixed algorithm of a codec and its merge plan: "two_shot cuts=3,7".
choice() {  # PLAN.json CODEC
  python3 - "$1" "$2" <<'PYTHON'
import json, sys
rows = [r for r in json.load(open(sys.argv[1]))["rows"] if r["codec"].split(":")[0] == sys.argv[2] and r["algorithm"] != "auto"]
best = min(rows, key=lambda r: r["step_ms"])
print(best["algorithm"], best["merge"])
PYTHON
}

for hosts in ${HOSTS:-2 4}; do
  "$network" up "$hosts" none
  for rate in ${RATES:-100mbit 1gbit 10gbit}; do
    "$network" rate "$rate"
    profile=$results/$hosts-$rate-profile.json
    if [ ! -s "$profile" ]; then
      echo "== profile of $hosts hosts, $rate" >&2
      "$network" run "$crimp" plan --measure "$profile" --codecs "${codecs// /,}" >"$results/log" 2>&1 || { tail -n 20 "$results/log"; exit 1; }
    fi
    for model in ${MODELS:-mlp resnet50}; do
      list=$root/docs/models/$model.txt
      plan=$results/$hosts-$rate-$model
      "$crimp" plan --model "$list" --profile "$profile" --compute "${compute[$model]}" --json "$plan-plan.json" >"$plan-plan.txt"
      "$crimp" plan --model "$list" --ranks "$hosts" --link "${gbit[$rate]}" --latency 50us --add 3 --cores "$(nproc)" --one-machine --codecs "${codecs// /,}" \
        --compute "${compute[$model]}" --json "$plan-described.json" >/dev/null
      for codec in $codecs; do
        cell=$plan-$codec-step.json
        [ ! -s "$cell" ] || continue
        read -r algorithm merge <<<"$(choice "$plan-plan.json" "$codec")"
        echo "== $hosts hosts, $rate, $model, $codec by $algorithm" >&2
        "$network" run "$crimp" bench step --model "$list" --compute "${compute[$model]}" --codec "$codec" --algorithm "$algorithm" --merge "$merge" \
          --steps "${STEPS:-15}" --json "$cell.part" >"$results/log" 2>&1 || { tail -n 20 "$results/log"; exit 1; }
        mv "$cell.part" "$cell"
      done
    done
  done
done

python3 - "$results" <<'PYTHON' | tee "$results/table.md"
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
order = ["100mbit", "1gbit", "10gbit"]
cells = []
for path in folder.glob("*-step.json"):
    hosts, rate, model, codec, _ = path.stem.split("-")
    step = json.loads(path.read_text())
    rows = {}
    for kind in ("plan", "described"):
        for row in json.loads((folder / f"{hosts}-{rate}-{model}-{kind}.json").read_text())["rows"]:
            if row["codec"].split(":")[0] == codec and row["algorithm"] == step["algorithm"]:
                rows[kind] = row
    if rows["plan"]["merge"] != step["merge"]:
        sys.exit(f"{path} was measured with another merge plan than is predicted now; remove it")
    cells.append((int(hosts), order.index(rate) if rate in order else 9, model, codec, rate, step, rows))
cells.sort(key=lambda cell: cell[:4])
print("| hosts | rate | model | codec, algorithm | groups | predicted ms | measured ms | off by | in calls: predicted, measured | described only |\n|---|---|---|---|---|---|---|---|---|---|")
near = described = 0
for hosts, _, model, codec, rate, step, rows in cells:
    off = rows["plan"]["step_ms"] / step["step_ms"] - 1
    other = rows["described"]["step_ms"] / step["step_ms"] - 1
    near += abs(off) <= 0.15
    described += abs(other) <= 0.15
    print(f"| {hosts} | {rate} | {model} | {codec}, {step['algorithm']} | {step['groups']} | {rows['plan']['step_ms']:.1f} | {step['step_ms']:.1f} | {100 * off:+.0f} % "
          f"| {rows['plan']['exchange_ms']:.1f}, {step['exchange_ms']:.1f} | {rows['described']['step_ms']:.1f} ({100 * other:+.0f} %) |")
print(f"\nWithin 15 %: {near} of {len(cells)} cells, from the profile; {described} from rate, latency and cores alone (its own best merge plan).")
PYTHON
