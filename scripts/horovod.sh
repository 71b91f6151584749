#!/usr/bin/env bash
# Horovod under Crimp: builds the released Horovod 0.28.1 (MPI, no Gloo, Debian's PyTorch for the CPU) and trains with it on
# hosts in network namespaces. Not a line of Horovod is changed.
#
#   horovod.sh build                install what is missing and build Horovod; does nothing when that is done
#   horovod.sh train [options]      one training; the last line of output is its result as JSON
#   horovod.sh compare [options]    step times at 100 Mbit/s and 1 Gbit/s and whole trainings, with Compression.none,
#                                   Compression.fp16 and Crimp, as tables; about 40 minutes
#   horovod.sh variations [options] real Horovod in many ways (fusion, groups, caches, autotune, timeline, process sets, join, Adasum,
#                                   merging, ...) on localhost with Crimp: are all data calls explained, all weights the same?
#   horovod.sh tables               print the tables of the last comparison again
#   horovod.sh linked               build Horovod once more, linked with Crimp by docs/horovod.md's line, and show that it is compressed
#                                   without a preload; some minutes
#
# Options of train:
#   --model NAME          cnn (1.3 M parameters), mlp (21 M), mlp25 (25 M), deep (70 small tensors)
#   --compression NAME    Horovod's own: none, fp16
#   --crimp SPEC          preload Crimp with CRIMP_CODEC=SPEC (3lc); 'auto' leaves the choice to Crimp
#   --report FILE         and with CRIMP_REPORT=FILE
#   --np N                hosts (4)
#   --rate RATE           of their links: 100mbit, 1gbit, ..., or none: as fast as this machine copies (none)
#   --steps N, --epochs E, --batch B, --lr L, --seed S, --groups N, --phase STEPS:COMMAND, --late MS, --paced MS, --accuracy, --join, --alone:
#                         see tests/horovod/train.py --help
#   --env NAME=VALUE      environment of all ranks, repeatable
#   --algorithm N         Open MPI's coll_tuned_allreduce_algorithm (5, the segmented ring; 0: its own choice)
# Options of compare:
#   --quick               a few steps of each run
#   --study NAME          steps, cnn or mlp, repeatable (all); results of the others stay
#   --seeds N             trainings of cnn and mlp with seeds 1 to N (1)
# Options of variations:
#   --steps N             of each (20; for the table of a release: 500)
#   --np N                ranks (4)
#   --only NAME,...       not all of them; see tests/horovod/variations.py
#   --verbose             show what the runs print
# Options of train, compare and variations:
#   --library FILE        a libcrimp.so that is built already (otherwise build/libcrimp.so is brought up to date)
#   --no-setup            do not look for missing Debian packages
#
# Environment: CRIMP_HOROVOD_VENV is the virtual environment (build/horovod/venv). Exit code 77: a package registry cannot be
# reached, so there is no Horovod to run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ $root != *[[:space:]:]* ]] || { echo "$0: '$root' has a space or a colon, which LD_PRELOAD cannot have: take another folder" >&2; exit 1; }
version=0.28.1 sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0
folder=$root/build/horovod
venv=${CRIMP_HOROVOD_VENV:-$folder/venv}
unset CRIMP_HOROVOD_VENV  # Crimp reports CRIMP_* names that are not its own
# Debian's Python has Debian's PyTorch; another Python that comes first on PATH has not. Nor do a user's own packages count.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME

say() { printf '\n== %s\n' "$*"; }
fail() { echo "horovod.sh: $2" >&2; exit "$1"; }
source "$root/scripts/usage.sh"
source "$root/scripts/registry.sh"
source "$root/scripts/progress.sh"

setup=1 library='' quick='' studies=() seeds=1
model=cnn crimp='' report='' np=4 rate=none algorithm=5 variables=() training=() varied=()
read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
    --no-setup) setup=0 ;;
    --quick) quick=1 ;;
    --accuracy | --join | --alone) training+=("$1") ;;
    --verbose) varied+=("$1") ;;
    --*)
      [ $# -ge 2 ] || fail 2 "$1 needs a value, or is unknown (see --help)"
      case $1 in
      --study) case $2 in steps | cnn | mlp) studies+=("$2") ;; *) fail 2 "--study is '$2', legal: steps, cnn, mlp" ;; esac ;;
      --seeds) case $2 in [1-9] | [1-9][0-9]) seeds=$2 ;; *) fail 2 "--seeds is '$2', legal: 1 to 99" ;; esac ;;
      --library) library=$(realpath -- "$2") ;;
      --model) model=$2 ;;
      --crimp) crimp=$2 ;;
      --report) report=$(realpath -m -- "$2") ;;
      --np) np=$2 ;;
      --rate) rate=$2 ;;
      --only) varied+=(--only "$2") ;;
      --algorithm) algorithm=$2 ;;
      --env) variables+=(-x "$2") ;;
      --compression | --phase | --late | --paced | --steps | --epochs | --batch | --lr | --seed | --groups) training+=("$1" "$2") ;;
      *) fail 2 "unknown option '$1' (see --help)" ;;
      esac
      shift ;;
    *) fail 2 "unknown argument '$1' (see --help)" ;;
    esac
    shift
  done
}

# Runs pip. A registry that cannot be reached is a reason to skip, anything else a failure (scripts/registry.sh).
pip_download() {  # WHAT ARGUMENTS...
  local what=$1 log=$folder/download.log
  shift
  "$venv/bin/pip" download --disable-pip-version-check "$@" >"$log" 2>&1 || registry_fail "$log" "$what"
}

# Horovod's build asks for debug information, which is nobody's here, and reads PyTorch's headers, 30 s, for each of two files: without the first and with
# eight sources at a time it takes half of the time.
pip_install() {  # SOURCE LOG
  printf '#!/bin/sh\nexec %s "$@" -g0\n' "${CXX:-c++}" >"$folder/c++"
  printf '#!/bin/sh\n[ "$1" = --build ] && exec cmake "$@"\nexec cmake "$@" -DCMAKE_UNITY_BUILD=ON\n' >"$folder/cmake"
  chmod +x "$folder/c++" "$folder/cmake"
  CXX=$folder/c++ HOROVOD_CMAKE=${HOROVOD_CMAKE:-$folder/cmake} HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 MAKEFLAGS=-j$(nproc) \
    "$venv/bin/pip" install --disable-pip-version-check --no-index --no-build-isolation --no-deps --no-cache-dir -v "$1" >"$2" 2>&1
}

install_packages() {
  [ $setup -eq 1 ] && command -v apt-get >/dev/null || return 0  # not Debian: the build says what it lacks
  "$root/scripts/setup.sh" horovod_packages || exit $?
}

# Loaded, not looked for: a Horovod that was built for another PyTorch or Python does not load. That takes seconds, so it is remembered for as long as
# PyTorch, Python and Horovod's library are the files that they were.
horovod_works() {
  local files=("$venv"/lib/python3*/site-packages/horovod/torch/mpi_lib*.so "$venv/bin/python" /usr/lib/python3/dist-packages/torch/lib/lib{c10,torch_cpu,torch_python}.so) now
  if now=$(stat -L -c '%n %s %Y' "${files[@]}" 2>/dev/null | sha256sum) && [ "$now" = "$(cat "$venv/works" 2>/dev/null)" ]; then return 0; fi
  horovod_loads "$@" || return
  [ -z "$now" ] || echo "$now" >"$venv/works"
}
horovod_loads() {
  "$venv/bin/python" - "$version" 2>"${1:-/dev/null}" <<'PYTHON'
import sys
import horovod, horovod.torch as hvd
if horovod.__version__ != sys.argv[1] or not hvd.mpi_built() or hvd.gloo_built():
    sys.exit(f"this is Horovod {horovod.__version__}, MPI {hvd.mpi_built()}, Gloo {hvd.gloo_built()}")
PYTHON
}

build_horovod() {
  local source=$folder/horovod-$version.tar.gz log=$folder/build.log
  install_packages
  mkdir -p "$folder"
  exec 9>"$folder/build.lock"
  flock -n 9 || { echo "waiting for another build of Horovod"; flock 9; }
  if horovod_works; then
    echo "Horovod $version is built: $venv"
  else
    if ! echo "$sha256  $source" | sha256sum --check --status 2>/dev/null; then
      say "Horovod $version, source distribution"
      rm -rf "$venv" "$source"
      /usr/bin/python3 -m venv --system-site-packages "$venv"
      echo "horovod==$version --hash=sha256:$sha256" >"$folder/requirements.txt"
      pip_download "Horovod's source distribution" --no-build-isolation --no-deps \
        --no-binary horovod --dest "$folder" --require-hashes -r "$folder/requirements.txt"
      echo "$sha256  $source" | sha256sum --check --status || fail 1 "$source is not the released Horovod $version"
    fi
    say "building Horovod $version (some minutes; output in $log)"
    rm -rf "$venv"
    /usr/bin/python3 -m venv --system-site-packages "$venv"
    with_progress building "$log" pip_install "$source" "$log" || { tail -n 40 "$log" >&2; fail 1 "Horovod did not build; all output is in $log"; }
    horovod_works "$log" || { tail -n 20 "$log" >&2; fail 1 "Horovod was built but does not load"; }
    echo "built: $venv"
  fi
  exec 9>&-
}

build_crimp() {  # TARGETS...
  [ -z "$library" ] || { [ -f "$library" ] || fail 1 "$library is missing"; return 0; }
  say "Crimp"
  [ $setup -eq 0 ] || "$root/scripts/setup.sh"
  cmake -S "$root" -B "$root/build" -DCMAKE_BUILD_TYPE=Release -G Ninja >/dev/null
  cmake --build "$root/build" --target crimp "$@"
  library=$root/build/libcrimp.so
}

# A network of its own, so that one made by hand stays as it is.
export NETNS_PREFIX=${NETNS_PREFIX:-crimphvd} NETNS_SUBNET=${NETNS_SUBNET:-10.90.0}
network() { "$root/scripts/network.sh" "$@" 9>&-; }  # 9: the lock below, which a process that is left behind must not keep
localhost=''
make_network() {  # RATE
  local status=0
  # Another run's hosts would be removed under it.
  exec 9>"${TMPDIR:-/tmp}/crimp-network-$NETNS_PREFIX.lock"
  flock -n 9 || fail 1 "another run uses the hosts '$NETNS_PREFIX': wait for it, or give this one NETNS_PREFIX and NETNS_SUBNET of its own"
  trap 'network down' EXIT
  network up "$np" "$1" || status=$?
  [ $status -ne 0 ] || return 0
  trap - EXIT
  [ $status -eq 3 ] || exit $status
  localhost=1
  echo "No hosts in network namespaces here: training on localhost. This shows accuracy and identical weights, not what a network costs."
}

# All runs use the same algorithm of Open MPI, the fastest that it has for Horovod's buffers.
train() {  # TRAIN.PY-OPTIONS...; uses np, crimp, report, algorithm, variables
  local options=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm "$algorithm"
    -x HOROVOD_CONTROLLER=mpi -x HOROVOD_CPU_OPERATIONS=MPI -x OMP_NUM_THREADS=1)
  [ "$algorithm" != 0 ] || options=("${options[@]:6}")
  if [ -n "$crimp" ]; then
    options+=(-x "LD_PRELOAD=$library" -x "CRIMP_CODEC=$crimp" -x "CRIMP_ALGORITHM=${CRIMP_ALGORITHM:-auto}")
    [ -z "$report" ] || options+=(-x "CRIMP_REPORT=$report")
  fi
  options+=("${variables[@]}" "$venv/bin/python" -B "$root/tests/horovod/train.py")
  if [ -z "$localhost" ]; then
    network run "${options[@]}" "$@"
  else
    local as_root=()
    [ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
    mpirun "${as_root[@]}" -np "$np" --oversubscribe --bind-to none --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo \
      --mca mpi_yield_when_idle 1 "${options[@]}" "$@"
  fi
}

# One run of a comparison: progress on the terminal, the result in a file.
measure() {  # STUDY NETWORK KIND TRAIN.PY-OPTIONS...
  local study=$1 on=$2 kind=$3 name="$results/$1-$2-$3"
  shift 3
  crimp='' report=''
  case ${kind%-*} in
  fp16) set -- "$@" --compression fp16 ;;
  crimp) crimp=auto report=$name-report.json ;;
  alone) set -- "$@" --alone ;;
  esac
  say "$study, $on, $kind"
  case $on in unlimited | localhost) ;; *) network rate "$on" ;; esac
  train "$@" | tee "$name.log"
  printf '{"study": "%s", "network": "%s", "kind": "%s", "run": %s}\n' "$study" "$on" "$kind" "$(grep '^{"model"' "$name.log")" >"$name.json"
}

compare() {
  local kinds=(none fp16 crimp) rates=(unlimited 1gbit 100mbit) study rate kind seed steps long=40 short=17 epochs=(--epochs 2) count=()
  [ -z "$quick" ] || { long=12 short=8 epochs=(--epochs 1) count=(--steps 24); }
  [ ${#studies[@]} -gt 0 ] || studies=(steps cnn mlp)
  results=$folder/compare
  mkdir -p "$results"
  for study in "${studies[@]}"; do rm -f "$results/$study-"*; done
  make_network none  # links without a limit come first: network.sh can set one, not lift it
  [ -z "$localhost" ] || rates=(localhost)
  for study in "${studies[@]}"; do
    if [ "$study" = steps ]; then
      # Small batches, so that the exchange is what is measured: the ranks share this machine's cores.
      local mlp=(--model mlp25 --batch 16)
      measure steps "${rates[0]}" alone "${mlp[@]}" --steps $long
      for rate in "${rates[@]}"; do
        [ "$rate" = 100mbit ] && steps=$short || steps=$long
        for kind in "${kinds[@]}"; do measure steps "$rate" "$kind" "${mlp[@]}" --steps $steps; done
      done
    else
      rate=${rates[1]:-localhost}
      for seed in $(seq "$seeds"); do
        for kind in "${kinds[@]}"; do measure "$study" "$rate" "$kind-$seed" --model "$study" --seed "$seed" --accuracy "${epochs[@]}" "${count[@]}"; done
      done
    fi
  done
  "$venv/bin/python" -B "$root/tests/horovod/tables.py" "$results" | tee "$results/tables.txt"
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
help | -h | --help) usage; exit 0 ;;
build | train | compare | linked | variations) read_options "$@" ;;
tables) exec /usr/bin/python3 -B "$root/tests/horovod/tables.py" "$folder/compare" ;;
*) usage >&2; fail 2 "unknown command '$command'" ;;
esac
case $command in
linked)
  install_packages
  build_crimp crimp_tool
  cmake --install "$root/build" --prefix "$folder/prefix" >/dev/null
  lib=$(dirname "$(find "$folder/prefix" -name libcrimp.so)") venv=$folder/linked
  export LDFLAGS="-Wl,--no-as-needed -L$lib -lcrimp -Wl,-rpath,$lib -Wl,--as-needed"
  build_horovod
  exec "$root/tests/horovod/linked.sh" "$folder/prefix/bin/crimp" "$lib/libcrimp.so" "$venv" ;;
esac
build_horovod
case $command in
train)
  [ -z "$crimp" ] || build_crimp
  make_network "$rate"
  train --model "$model" "${training[@]}" ;;
compare)
  build_crimp
  compare ;;
variations)
  build_crimp
  exec "$venv/bin/python" -B "$root/tests/horovod/variations.py" --library "$library" --np "$np" "${training[@]}" "${varied[@]}" ;;
esac
