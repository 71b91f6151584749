#!/usr/bin/env bash
# CRIMP_CONTROL=delay under Horovod while the network changes: 4 hosts in network namespaces whose links go 1 Gbit/s, 100 Mbit/s, 20 Mbit/s, 1 Gbit/s;
# then one host's link alone is slow (100 Mbit/s), then one host alone computes longer (0.3 s a step). The same with each level of the ladder fixed, and
# without Crimp, in fewer steps. Prints a table and writes a figure.
#
#   control.sh [--quick] [--model NAME] [--epochs E] [--paced MS] [--library FILE]
#
#   --quick          a few steps of each
#   --model NAME     as in horovod.sh (mlp25); the 70-tensor CNN is deep
#   --epochs E       (2) that the run with the control lasts, shared by the six networks
#   --paced MS       as in horovod.sh: hosts do not wait for each other's computing; gradients are noise, so without CRIMP_GAIN_FLOOR and accuracy
#   --library FILE   as in horovod.sh
#
# Results stay in build/control (of another model or pace in build/control-NAME-MS); what is there is not measured again. About 40 minutes; --quick about 15.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
quick='' library=() model=mlp25 epochs=2 paced=''
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 ;;
  --library) library=(--library "${2:?--library FILE}"); shift ;;
  --model) model=${2:?--model NAME}; shift ;;
  --epochs) epochs=${2:?--epochs E}; shift ;;
  --paced) paced=${2:?--paced MS}; shift ;;
  *) unknown "$1" ;;
  esac
  shift
done
results=build/control
[ "$model$paced" = mlp25 ] || results=build/control-$model${paced:+-$paced}
mkdir -p "$results"

rate="NETNS_PREFIX=crimphvd NETNS_SUBNET=10.90.0 $PWD/scripts/network.sh rate"
commands=("$rate 1gbit" "$rate 100mbit" "$rate 20mbit" "$rate 1gbit" "$rate 1gbit; $rate 100mbit 4" "$rate 1gbit")
training=(--no-setup "${library[@]}" --model "$model" ${paced:+--paced "$paced"} --batch 64 --epochs "$epochs" --rate 1gbit --late 300)

run() {  # NAME STEPS-OF-EACH-PHASE OPTIONS...
  local name=$1 counts phases=() i
  read -ra counts <<<"$2"
  shift 2
  [ ! -s "$results/$name.json" ] || return 0
  for i in "${!commands[@]}"; do phases+=(--phase "${counts[i]}:${commands[i]}"); done
  echo "== $name"
  ./scripts/horovod.sh train "${training[@]}" "${phases[@]}" "$@" 2>"$results/$name.err" | tee "$results/$name.log" | grep -v '^{' || { tail -n 20 "$results/$name.err"; return 1; }
  ! grep -h "crimp: .*off because" "$results/$name.log" "$results/$name.err" || return 1
  grep '^{"model"' "$results/$name.log" >"$results/$name.json"
}

ladder=(fp16:memory=residual 8bit:memory=residual 'maxmin:rounding=nearest,memory=residual' '3lc:s=0.5,entropy=1' 3lc 3lc:s=1.5 3lc:s=1.9)
each=$((39 * epochs)) accuracy=(--accuracy) guard=()  # 234 steps are an epoch
[ -z "$quick" ] || each=30
[ -z "$quick$paced" ] || accuracy=()
[ -z "$paced" ] || guard=(--env CRIMP_GAIN_FLOOR=0)
long="$each $each $each $each $each $each"
run control "$long" --crimp auto --report "$results/control-report.json" --env CRIMP_CONTROL=delay "${guard[@]}" "${accuracy[@]}"
level=0
for codec in "${ladder[@]}"; do
  case $level in
  0) steps="14 5 3 9 5 9" ;;
  1) steps="14 6 4 9 6 9" ;;
  2) steps="14 8 5 9 8 9" ;;
  *) steps="14 9 9 9 9 9" ;;
  esac
  [ "$model" = mlp25 ] || steps="40 40 40 40 40 40"  # their steps are short
  # A ladder of one codec: the same path, the same choice of algorithms.
  run "level$level" "$steps" --crimp "$codec" --env CRIMP_CONTROL=delay --env "CRIMP_LADDER=$codec; $codec"
  level=$((level + 1))
done
few="7 3 2 4 3 4"
[ "$model" = mlp25 ] || few="20 20 20 20 20 20"
run plain "$few"
if [ -z "$quick$paced" ] && [ ! -s "$results/accuracy.json" ]; then
  # The same images in the same steps; which weights come of it does not depend on the network.
  echo "== accuracy without Crimp"
  ./scripts/horovod.sh train --no-setup --model "$model" --np 1 --batch 256 --epochs "$epochs" --accuracy | tee "$results/accuracy.log" | grep -v '^{'
  grep '^{"model"' "$results/accuracy.log" >"$results/accuracy.json"
fi
/usr/bin/python3 -B tests/horovod/control.py "$results" "$results/control.png" | tee "$results/table.md"
