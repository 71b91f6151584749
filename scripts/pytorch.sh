#!/usr/bin/env bash
# PyTorch's DistributedDataParallel through crimp.torch, on four hosts in network namespaces: step times beside gloo and plain MPI, accuracy, and training
# sharded as FSDP does it. Prints tables; results stay in build/pytorch. Needs root; about an hour on two cores.
#
#   pytorch.sh [--quick] [--models "mlp25 cnn"] [--only steps|accuracy] [--steps "20 12"] [--codec SPEC] [--unnamed SPEC] [--seeds N] [--epochs N] [--build DIR] [--no-setup]
#
#   --quick       few steps of the CNN alone, one seed: a look at everything
#   --models LIST, --only PART, --steps LIST   some of the runs: step times or whole trainings; steps at 1 Gbit/s and at 100 Mbit/s. Earlier results stay
#   --codec SPEC  of the runs with Crimp (3lc)
#   --unnamed SPEC   trainings sharded without names of parameters as well, with this codec
#   --seeds N     trainings from start to end (3), of so many --epochs (3)
#   --build DIR   build folder (build), whose libcrimp.so is brought up to date
#   --no-setup    do not look for missing Debian packages
# Exit code 77: no PyTorch, or no namespaces here.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build codec=3lc unnamed='' seeds=3 setup=1 quick='' only=''
models=(mlp25 cnn) rates=(1gbit 100mbit) steps=(20 12) epochs=3
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 seeds=1 models=(cnn) steps=(8 8) ;;
  --models) read -ra models <<<"${2:?--models LIST}"; only=${only:-all}; shift ;;
  --steps) read -ra steps <<<"${2:?--steps LIST}"; shift ;;
  --only) only=${2:?--only PART}; shift ;;
  --codec) codec=${2:?--codec SPEC}; shift ;;
  --unnamed) unnamed=${2:?--unnamed SPEC}; shift ;;
  --seeds) seeds=${2:?--seeds N}; shift ;;
  --epochs) epochs=${2:?--epochs N}; shift ;;
  --build) build=${2:?--build DIR}; shift ;;
  --no-setup) setup=0 ;;
  *) unknown "$1" ;;
  esac
  shift
done
say() { printf '\n== %s\n' "$*"; }
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME

[ $setup -eq 0 ] || "$root/scripts/setup.sh" horovod_packages
[ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$build" --target crimp
build=$(cd "$build" && pwd)
venv=$build/torch_venv results=$build/pytorch
"$root/tests/torch/install.sh" "$root" "$build" "$venv"

export NETNS_PREFIX=${NETNS_PREFIX:-crimptorch} NETNS_SUBNET=${NETNS_SUBNET:-10.87.0}
network() { "$root/scripts/network.sh" "$@"; }
status=0
network up 4 1gbit || status=$?
[ $status -ne 3 ] || exit 77
[ $status -eq 0 ] || exit $status
trap 'network down' EXIT
[ -n "$only" ] || rm -rf "$results"
mkdir -p "$results"

# Open MPI's segmented ring is the fastest of its algorithms here for large sums, and what Crimp is measured against.
ring=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5)
train() {  # NAME KIND OPTIONS...
  local name=$1 kind=$2 variables=() options=()
  shift 2
  case $kind in
  gloo) options=(--backend gloo) variables=(-x GLOO_SOCKET_IFNAME=eth0) ;;
  fp32) variables=(-x CRIMP_CODEC=none) ;;
  bf16) variables=(-x CRIMP_CODEC=none) options=(--bf16) ;;
  crimp) variables=(-x "CRIMP_CODEC=$codec" -x "CRIMP_REPORT=$results/$name-report.json") ;;
  esac
  say "$name"
  network run "${ring[@]}" -x CRIMP_LOG=warn -x OMP_NUM_THREADS=1 "${variables[@]}" "$venv/bin/python" "$root/tests/torch/train.py" "${options[@]}" "$@" \
    >"$results/$name.log" 2>&1 || { cat "$results/$name.log"; return 1; }
  grep '^{"model"' "$results/$name.log" | tee "$results/$name.json"
}

[ "$only" = accuracy ] || for i in 0 1; do
  network rate "${rates[i]}"
  for model in "${models[@]}"; do
    for kind in gloo fp32 bf16 crimp; do
      # What is compressed is quick, and has trials to end.
      n=${steps[i]}
      [ $kind != crimp ] || n=$((4 * n))
      train "step.${rates[i]}.$model.$kind" $kind --model "$model" --steps $n
    done
  done
done
network rate 10gbit
whole=(--epochs $epochs)
[ -z "$quick" ] || whole=(--steps 40)
[ "$only" = steps ] || for model in "${models[@]}"; do
  for seed in $(seq 1 "$seeds"); do
    for kind in fp32 crimp; do
      train "whole.$model.$kind.$seed" $kind --model "$model" --seed "$seed" --accuracy "${whole[@]}"
      train "sharded.$model.$kind.$seed" $kind --sharded --model "$model" --seed "$seed" --accuracy "${whole[@]}"
    done
    [ -z "$unnamed" ] || codec=$unnamed train "unnamed.$model.crimp.$seed" crimp --sharded --unnamed --model "$model" --seed "$seed" --accuracy "${whole[@]}"
  done
done

say "results"
/usr/bin/python3 "$root/tests/torch/tables.py" "$results" | tee "$results/table.txt"
