#!/usr/bin/env bash
# slurm.sh CRIMP LIBRARY PROGRAM MPICH_PROGRAM PAGE: jobs under a Slurm of one machine that lives in a temporary directory: srun of programs of Open MPI and of
# MPICH, and the scripts of docs/slurm.md by sbatch. Debian: slurm-wlm (scripts/slurm_packages). Exit 77: Slurm is not here, or cannot be started by this user.
set -uo pipefail
crimp=$1 library=$2 program=$3 mpich_program=$4 page=$5 failed=0
skip() { echo "skipped: $1"; exit 77; }
export PATH=$PATH:/usr/sbin
for name in munged slurmctld slurmd srun sbatch sinfo; do command -v $name >/dev/null || skip "no $name"; done
! ldd "$library" | grep -E 'lib[alt]san' >/dev/null || skip "a library of a sanitizer's"
for name in $(env | grep -oE '^(CRIMP|SLURM)_[A-Z_]+'); do unset "$name"; done
unset LD_PRELOAD MPIRUN
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

work=$(mktemp -d) && cd "$work" || exit 2
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap stop EXIT
mkdir -m 700 munge state spool
head -c 1024 /dev/urandom >munge/key && chmod 600 munge/key
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" --log-file="$work/munge/log" \
  --seed-file="$work/munge/seed" >munged.out 2>&1 &
pids+=($!)
host=$(hostname -s) user=$(id -un) port=$((20000 + $$ % 20000))
export SLURM_CONF=$work/slurm.conf
cat >slurm.conf <<CONF
ClusterName=private
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/d.pid
SlurmUser=$user
SlurmdUser=$user
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
for _ in 1 2 3 4 5; do [ -S munge/socket ] && break; sleep 1; done
slurmctld -D -i -c >ctld.log 2>&1 &
pids+=($!)
slurmd -D >d.log 2>&1 &
pids+=($!)
for ((i = 0; i < 20; i++)); do timeout 5 sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 1; done
timeout 5 sinfo -h -o %T 2>/dev/null | grep -q idle || { tail -n 3 munged.out ctld.log d.log; skip "Slurm could not be started here"; }

# expect CODE PATTERN... -- COMMAND...: its exit code, and what it says.
expect() {
  local code=$1 patterns=() said got
  shift
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  said=$(timeout 100 "$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || { printf 'exit %s instead of %s: %s\n%s\n' "$got" "$code" "$*" "$said"; failed=1; }
  for p in "${patterns[@]}"; do grep -qE -e "$p" <<<"$said" || { printf 'not found: %s: %s\n%s\n' "$p" "$*" "$said"; failed=1; }; done
}
started='crimp: version .* 2 ranks, .* compressed with fp16'
tasks=(-n 2 --overcommit)
if srun --mpi=list 2>&1 | grep -qw pmix; then
  expect 0 "$started" 'crimp: [0-9]+ calls compressed' -- env MPIRUN=srun "$crimp" run "${tasks[@]}" --mpi=pmix --codec fp16 --algorithm allgather -- "$program" lossy 100000
else
  echo "not tried: this Slurm has no PMIx, which Open MPI needs under srun"
fi
if [ -x "$mpich_program" ]; then
  expect 0 "$started" 'crimp: [0-9]+ calls compressed' -- env MPIRUN=srun "$crimp" run "${tasks[@]}" --mpi=pmi2 --codec fp16 --algorithm allgather -- "$mpich_program" lossy 100000
fi
# A setting with a comma and a space arrives whole; the exit code is the program's, through srun.
# shellcheck disable=SC2016  # for the ranks' shell
expect 3 'rules <8=none, x; \*=fp16' -- env MPIRUN=srun 'CRIMP_RULES=<8=none, x; *=fp16' "$crimp" run -n 1 -- sh -c 'echo "rules $CRIMP_RULES"; exit 3'
# shellcheck disable=SC2016
expect 0 'codec fp16 .*libcrimp.so' -- env MPIRUN=srun "$crimp" run -n 1 --export=NONE --codec fp16 -- /bin/sh -c 'echo "codec $CRIMP_CODEC $LD_PRELOAD"'
printf '%s\n' "$host" >hosts
expect 0 "^$host" -- env MPIRUN=srun "$crimp" run -n 1 --hostfile hosts -- hostname -s
# Where there is no other launcher srun is found.
mkdir bin && ln -s "$(command -v srun)" "$(command -v env)" "$(command -v sh)" "$(command -v hostname)" bin/
expect 0 "^$host" -- env PATH="$work/bin" "$crimp" run -n 1 --library "$library" -- hostname -s

# The scripts of the page: each is what stands between ```bash lines that begin with #!.
script=0
while IFS= read -r line; do
  if [ "$line" = '#!/bin/bash' ] && [ "$inside" = 1 ]; then script=$((script + 1)) && mkdir -p job$script; fi
  case $line in '```'*) inside=$([ "$line" = '```bash' ] && echo 1) ;; *) [ "${inside:-}" != 1 ] || [ $script = 0 ] || printf '%s\n' "$line" >>job$script/job.sh ;; esac
done <"$page"
[ $script -gt 0 ] || { echo "$page has no scripts"; failed=1; }
for ((i = 1; i <= script; i++)); do
  # One node and two tasks, whatever the page says; `crimp` and `./train` are what is to be tried, which ends with a report.
  sed -E -i 's/^(#SBATCH --nodes=).*/\11/; s/^(#SBATCH --ntasks=).*/\12/; /^#SBATCH --(cpus-per-task|time|partition)/d; /^module /d' job$i/job.sh
  sed -i '1a #SBATCH --overcommit' job$i/job.sh
  mkdir -p job$i/bin && ln -sf "$crimp" job$i/bin/crimp
  printf '#!/bin/sh\nexec %s bench allreduce --min 512k --max 512k --iters 4\n' "$crimp" >job$i/train && chmod +x job$i/train
  # shellcheck disable=SC2086
  (cd job$i && PATH=$PWD/bin:$PATH timeout 100 sbatch --wait -o out job.sh >submitted 2>&1)
  got=$?
  [ $got = 0 ] && [ -s job$i/report.json ] && grep -q 'crimp: version .* 2 ranks' job$i/out && grep -qE 'crimp: [0-9]+ calls compressed|rank 0 compressed no call' job$i/out ||
    { echo "script $i of $page ended with $got:"; cat job$i/job.sh job$i/submitted job$i/out; failed=1; }
done
exit $failed
