#!/usr/bin/env bash
# Hosts in network namespaces on this machine, each with its own rate-limited link into one bridge. Needs root and Linux namespaces.
#
#   network.sh up HOSTS RATE      make the hosts; RATE as tc writes it (100mbit, 1gbit) or "none"; replaces hosts that are there
#   network.sh rate RATE [HOST]   change the rate of all links, or of one host's (1, 2, ...), also while a program runs
#   network.sh run [mpirun options] PROGRAM [arguments]     one MPI rank per host, over TCP on those links
#   network.sh bytes              bytes that all hosts have sent so far; take differences
#   network.sh list               hosts, addresses, rates
#   network.sh down               remove the hosts and end what still runs on them
#
# Environment: NETNS_PREFIX (crimp) names the hosts prefix1, prefix2, ...; NETNS_SUBNET (10.88.0) numbers them; with other values
# a second network lives beside the first. NETNS_BURST (128kb): what an idle link lets pass at once; with 4kb at 100mbit or 16kb at 1gbit
# also short messages take as long as the rate says. Files are shared between hosts.
# Exit code 3: namespaces are not possible here (no root, no ip, or not allowed), so that a caller can fall back to localhost.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
export NETNS_PREFIX=${NETNS_PREFIX:-crimp} NETNS_SUBNET=${NETNS_SUBNET:-10.88.0}
prefix=$NETNS_PREFIX subnet=$NETNS_SUBNET switch=$NETNS_PREFIX-switch
self=$(readlink -f "$0")

fail() { echo "network.sh: $2" >&2; exit "$1"; }
hosts() { ip netns list 2>/dev/null | awk -v p="$prefix" '$1 ~ "^" p "[0-9]+$" {print $1}' | sort -V; }
need_hosts() { [ -n "$(hosts)" ] || fail 1 "no hosts named ${prefix}1, ...: 'network.sh up 4 1gbit' makes them"; }
port() { echo "p${1#"$prefix"}"; }

# Both directions of one host's link. A bucket of 128 KiB lets segmentation offload keep its 64 KiB packets; a smaller one cuts them.
shape() {  # add|change HOST RATE
  local limit=(root tbf rate "$3" burst "${NETNS_BURST:-128kb}" latency 50ms)
  tc -n "$2" qdisc "$1" dev eth0 "${limit[@]}" && tc -n "$switch" qdisc "$1" dev "$(port "$2")" "${limit[@]}"
}

make_hosts() {  # HOSTS RATE
  local i host
  ip -n "$switch" link add br0 type bridge
  ip -n "$switch" link set br0 up
  for i in $(seq 1 "$1"); do
    host=$prefix$i
    ip netns add "$host"
    ip -n "$host" link set lo up
    ip -n "$host" link add eth0 type veth peer name "p$i" netns "$switch"
    ip -n "$host" addr add "$subnet.$i/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$switch" link set "p$i" master br0 up
    [ "$2" = none ] || shape add "$host" "$2"
  done
}

remove_hosts() {
  local name pids
  for name in $(hosts) "$switch"; do
    pids=$(ip netns pids "$name" 2>/dev/null) || continue
    # shellcheck disable=SC2086  # one word per process
    [ -z "$pids" ] || kill $pids 2>/dev/null || true
    ip netns del "$name"
  done
}

# A UTS name of its own per host: that is how Open MPI tells nodes apart.
on_host() {  # HOST COMMAND...
  local host=$1
  shift
  # shellcheck disable=SC2016  # expanded by the inner shell
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
help | -h | --help) usage; exit 0 ;;
up | rate | run | bytes | list | down | agent)
  { command -v ip && command -v tc; } >/dev/null || fail 3 "ip and tc are needed (Debian: iproute2)"
  [ "$(id -u)" -eq 0 ] || fail 3 "network namespaces need root" ;;
*) usage >&2; fail 2 "unknown command '$command'" ;;
esac

case $command in
up)
  [[ $# -eq 2 && $1 =~ ^[0-9]+$ && $1 -ge 1 && $1 -le 250 ]] || fail 2 "up HOSTS RATE: 1 to 250 hosts and a rate such as 1gbit, or none"
  remove_hosts
  ip netns add "$switch" 2>/dev/null || fail 3 "network namespaces are not allowed here"
  # In a shell of its own: 'set -e' would be off in a condition.
  set +e; (set -e; make_hosts "$@"); status=$?; set -e
  [ $status -eq 0 ] || { remove_hosts; fail 3 "cannot make hosts with links of rate '$2' (veth, bridge and tbf are needed)"; } ;;
rate)
  [ $# -eq 1 ] || [ $# -eq 2 ] || fail 2 "rate RATE [HOST]"
  need_hosts
  [ $# -eq 1 ] || hosts | grep -qx "$prefix$2" || fail 2 "host '$2', there are: $(hosts | sed "s/^$prefix//" | paste -sd' ')"
  for host in ${2:+$prefix$2} $([ $# -eq 2 ] || hosts); do shape replace "$host" "$1" || fail 2 "tc does not accept the rate '$1'"; done ;;
bytes)
  need_hosts
  sum=0
  for host in $(hosts); do sum=$((sum + $(ip netns exec "$host" cat /sys/class/net/eth0/statistics/tx_bytes))); done
  echo "$sum" ;;
list)
  for host in $(hosts); do
    rate=$(tc -n "$host" qdisc show dev eth0 | sed -n 's/.* rate \([^ ]*\).*/\1/p')
    echo "$host $subnet.${host#"$prefix"} ${rate:-none}"
  done ;;
down) remove_hosts ;;
agent)  # what mpirun calls in place of ssh: ADDRESS COMMAND..., the words meant for a remote shell
  host=$prefix${1##*.}
  shift
  on_host "$host" sh -c "$*" ;;
run)
  [ $# -ge 1 ] || fail 2 "run [mpirun options] PROGRAM [arguments]"
  need_hosts
  addresses=$(hosts | sed "s/^$prefix/$subnet./" | paste -sd,)
  # The hosts share this machine's cores: a rank that waits must give its core to one that computes.
  on_host "${prefix}1" mpirun --allow-run-as-root --host "$addresses" --map-by node --bind-to none --mca mpi_yield_when_idle 1 \
    --mca plm_rsh_agent "$self agent" --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include "$subnet.0/24" \
    --mca oob_tcp_if_include "$subnet.0/24" "$@" ;;
esac
