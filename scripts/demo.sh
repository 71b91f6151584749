#!/usr/bin/env bash
# The demo: installs, builds, then trains an ordinary MPI program on Fashion-MNIST over four hosts in network namespaces, at
# 1 Gbit/s and 100 Mbit/s, without and with Crimp preloaded. Ends with a table and a figure of accuracy over training time.
#
#   demo.sh [--quick] [--codec NAME] [--build DIR] [--no-setup]
#
#   --quick        a fifth of the images: a look at everything in a few minutes; leaves the figure in docs/ alone
#   --codec NAME   the codec of the runs with Crimp (3lc)
#   --build DIR    build folder (build); results go to DIR/demo
#   --no-setup     do not look for missing Debian packages
#
# Without root or network namespaces it trains on localhost and says what that cannot show.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ $root != *[[:space:]:]* ]] || { echo "$0: '$root' has a space or a colon, which LD_PRELOAD cannot have: take another folder" >&2; exit 1; }
build=$root/build codec=3lc setup=1 hosts=4
training=(--epochs 3) probe_steps=6 figure=$root/docs/fashion_mnist.png quick=
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 training=(--epochs 1 --train 12288) probe_steps=3 ;;
  --codec) codec=${2:?--codec NAME}; shift ;;
  --build) build=${2:?--build DIR}; shift ;;
  --no-setup) setup=0 ;;
  *) unknown "$1" ;;
  esac
  shift
done
say() { printf '\n== %s\n' "$*"; }

[ $setup -eq 0 ] || { say "Debian packages"; "$root/scripts/setup.sh"; }
say "build"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$build" --target crimp fashion_mnist
build=$(cd "$build" && pwd)
library=$build/libcrimp.so results=$build/demo
program=$(find "$build" -name fashion_mnist -type f -perm -u+x | head -n 1)
[ -f "$library" ] || { echo "demo.sh: $library was not built" >&2; exit 1; }
[ -n "$program" ] || { echo "demo.sh: fashion_mnist was not built" >&2; exit 1; }
rm -rf "$results"
mkdir -p "$results"
[ -z "$quick" ] || figure=$results/fashion_mnist.png

# A network of its own, so that one made by hand stays as it is.
export NETNS_PREFIX=${NETNS_PREFIX:-crimpdemo} NETNS_SUBNET=${NETNS_SUBNET:-10.89.0} OPENBLAS_NUM_THREADS=1
network() { "$root/scripts/network.sh" "$@"; }
say "network"
rates=(1gbit 100mbit)
trap 'network down' EXIT
status=0
network up $hosts "${rates[0]}" || status=$?
case $status in
0)
  network list
  launch() { network run "$@"; }
  wire_bytes() { network bytes; } ;;
3)
  trap - EXIT
  rates=(localhost) figure=$results/fashion_mnist.png
  echo "No hosts in network namespaces here: training on localhost, over TCP on the loopback interface."
  echo "This shows accuracy, bytes and that all ranks end with identical weights. It cannot show what a network of a given rate"
  echo "costs: loopback is as fast as memory, so step times and wall times below say nothing about a cluster."
  launch() {
    local as_root=()
    [ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
    mpirun "${as_root[@]}" -np $hosts --oversubscribe --bind-to none --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo "$@"
  }
  wire_bytes() { cat /sys/class/net/lo/statistics/tx_bytes; } ;;
*) exit $status ;;
esac

# Open MPI's ring needs the fewest bytes of its allreduce algorithms and is the fastest of them here, so it is what Crimp is measured
# against. What Open MPI would choose by itself is shown by a short run.
ring=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4)

measure() {  # NETWORK KIND MPIRUN-OPTIONS... -- PROGRAM-OPTIONS...
  local network=$1 kind=$2 options=() before after name=$1-$2
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  before=$(wire_bytes)
  launch "${options[@]}" "$program" "${training[@]}" --log "$results/$name.csv" "$@" | tee "$results/$name.log"
  after=$(wire_bytes)
  printf '{"network": "%s", "kind": "%s", "codec": "%s", "bytes": %s, "run": %s}\n' "$network" "$kind" "$codec" $((after - before)) \
    "$(grep '^{"params"' "$results/$name.log")" >"$results/$name.json"
}

say "without any exchange: what a step computes ($((4 * probe_steps)) steps)"
measure "${rates[0]}" alone -- --steps $((4 * probe_steps)) --no-exchange
probe=(--steps "$probe_steps")
for rate in "${rates[@]}"; do
  [ "$rate" = localhost ] || network rate "$rate"
  say "$rate, plain MPI, Open MPI chooses the algorithm ($probe_steps steps)"
  measure "$rate" default -- "${probe[@]}"
  say "$rate, plain MPI, ring ($probe_steps steps)"
  measure "$rate" probe "${ring[@]}" -- "${probe[@]}"
  if [ "$rate" = "${rates[0]}" ]; then
    say "$rate, plain MPI, ring"
    measure "$rate" plain "${ring[@]}" --
  fi
  say "$rate, Crimp $codec"
  measure "$rate" crimp "${ring[@]}" -x "LD_PRELOAD=$library" -x "CRIMP_CODEC=$codec" -x "CRIMP_ALGORITHM=${CRIMP_ALGORITHM:-auto}" -x "CRIMP_REPORT=$results/$rate-crimp-report.json" --
done

say "results"
/usr/bin/python3 "$root/scripts/figures.py" "$results" "$figure" | tee "$results/table.txt"
