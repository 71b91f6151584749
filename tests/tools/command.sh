#!/usr/bin/env bash
# command.sh PART CRIMP LIBRARY MPIRUN: what `crimp PART` prints and returns. Exit 77: this cannot be tried here.
set -uo pipefail
part=$1 crimp=$2 library=$3 mpirun=$4
here=$(cd "$(dirname "$0")" && pwd) failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
for name in $(env | grep -oE '^CRIMP_[A-Z_]+'); do unset "$name"; done
unset LD_PRELOAD
export MPIRUN=$mpirun OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(-np 2 --oversubscribe)

# expect CODE PATTERN... -- COMMAND...: the exit code, and every pattern in what it says (standard output and error together).
# A pattern that begins with ! must not be there.
expect() {
  local code=$1 patterns=() said got
  shift
  while [ "$1" != -- ]; do patterns+=("$1") && shift; done
  shift
  said=$("$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || { printf 'exit %s instead of %s: %s\n%s\n' "$got" "$code" "$*" "$said"; failed=1; }
  for p in "${patterns[@]}"; do
    if [ "${p#!}" != "$p" ]; then
      ! grep -qE -e "${p#!}" <<<"$said" || { printf 'found, and should not be: %s: %s\n%s\n' "${p#!}" "$*" "$said"; failed=1; }
    else
      grep -qE -e "$p" <<<"$said" || { printf 'not found: %s: %s\n%s\n' "$p" "$*" "$said"; failed=1; }
    fi
  done
}
# json FILE KEY...: the file is JSON and has the keys, written a.0.b
json() { cmake "-DFILE=$1" "-DKEYS=${*:2}" -P "$here/json_keys.cmake" || failed=1; }
# A library built with a sanitizer can only be preloaded behind the sanitizer's runtime; that is not what is tried here.
sanitized() { ldd "$library" | grep -E 'lib[alt]san' >/dev/null; }  # not grep -q: it would stop ldd, which counts as a failure
legal_codecs() { "$crimp" bench codec --codec no_such_codec 2>&1 | sed 's/.*legal: //; s/ (crimp.*//; s/,//g'; }

run_part() {
  local dry=("$crimp" run --dry-run)
  expect 0 "^$mpirun -np 4 -x LD_PRELOAD=$library -x CRIMP_CODEC=3lc ./program --codec x$" -- \
    "${dry[@]}" -np 4 --codec 3lc -- ./program --codec x
  expect 0 ' -host a,b:2 --mca btl self,tcp -x' "CRIMP_REPORT=$work/r.json" "CRIMP_TRACE=/t.json" 'CRIMP_CHUNK=1M' \
    -- env CRIMP_CHUNK=1M "${dry[@]}" --report r.json -host a,b:2 --trace=/t.json --mca btl self,tcp -- ./program
  expect 0 'prog one : -x LD_PRELOAD=[^ ]* -x CRIMP_CODEC=fp16 -np 1 prog two' -- \
    "${dry[@]}" --codec fp16 -np 1 -- prog one : -np 1 prog two
  expect 0 "'a b'" '!CRIMP_CODEC' -- "${dry[@]}" -- ./program 'a b'
  # What the user exports by hand is exported once, and other preloads keep their place, an MPI library behind Crimp.
  expect 0 '-x CRIMP_CODEC=bf16' '!CRIMP_CODEC=fp16' -- env CRIMP_CODEC=fp16 "${dry[@]}" -x CRIMP_CODEC=bf16 -- ./program
  expect 0 "LD_PRELOAD=tool.so:$library:libmpi.so.40 " '!LD_PRELOAD.*LD_PRELOAD' -- \
    "${dry[@]}" -x LD_PRELOAD=tool.so:libmpi.so.40 -- ./program

  expect 0 '-x CRIMP_CODEC=none' -- "${dry[@]}" --codec none -- ./program
  expect 2 'none is no codec' 'fp32' -- "${dry[@]}" --codec none:memory=none -- ./program
  expect 2 'not known' 'fp16' '3lc' -- "${dry[@]}" --codec 4lc -- ./program
  expect 2 'legal is 0.25 <= s < 2' -- "${dry[@]}" --codec 3lc:s=7 -- ./program
  expect 2 CRIMP_CHUNK legal -- env CRIMP_CHUNK=seven "${dry[@]}" -- ./program
  expect 0 "CRIMP_CODEK is not a setting.*'CRIMP_CODEC'" -- env CRIMP_CODEK=3lc "${dry[@]}" -- ./program
  expect 2 "behind '--'" -- "${dry[@]}" -np 2 ./program
  expect 2 "behind '--'" -- "${dry[@]}" -np 2 --
  expect 2 'does not exist' -- "${dry[@]}" --library nowhere.so -- ./program
  # Launchers are told by what they say of themselves.
  printf '#!/bin/sh\necho slurm 22.05.8\n' >srun && printf '#!/bin/sh\necho "HYDRA build details:"\n' >hydra && chmod +x srun hydra
  expect 0 '^./srun -n 2 env LD_PRELOAD=[^ ]*libcrimp.so CRIMP_CODEC=fp16 python3 -c 1,2$' -- env MPIRUN=./srun LD_PRELOAD= "${dry[@]}" -n 2 --codec fp16 -- python3 -c 1,2
  expect 2 "libcrimp.so is built for Open MPI .libmpi.so.40., and the job is MPICH's" -- env MPIRUN=./hydra "${dry[@]}" --library "$library" -n 2 -- python3
  expect 127 'could not be started' -- env MPIRUN=no-such-mpirun "$crimp" run -- ./program
  expect 0 'MPIRUN' '--dry-run' -- "$crimp" run --help

  sanitized && return
  # shellcheck disable=SC2016  # for the ranks' shell
  expect 3 "A=x y;\\\$z codec fp16 preload $library" -- \
    env 'CRIMP_TEXT=x y;$z' "$crimp" run "${mpi[@]}" --codec fp16 -- sh -c 'echo "A=$CRIMP_TEXT codec $CRIMP_CODEC preload $LD_PRELOAD"; exit 3'
}

info_part() {
  expect 0 '^crimp +[0-9]' '^build ' '^MPI +built with .*, running with ' '^SIMD +compiled: .*; chosen here: ' -- "$crimp" info
  local patterns=()
  for name in $(legal_codecs); do patterns+=("^$name: "); done
  [ ${#patterns[@]} -ge 4 ] || { echo "the error for an unknown codec lists no codecs"; failed=1; }
  expect 0 "${patterns[@]}" 'parameter  s=1, legal: 0.25 <= s < 2' -- "$crimp" info --codecs
  expect 0 '^CRIMP_CODEC=auto ' '^CRIMP_MIN_COUNT=' 'legal: ' -- "$crimp" info --env
  # shellcheck disable=SC2016  # Markdown
  expect 0 '^\| `CRIMP_CODEC` \| `auto` \|' -- "$crimp" info --env --markdown
  expect 2 'env' -- "$crimp" info --markdown
  expect 2 "no command 'bench codecs', did you mean 'bench codec'" -- "$crimp" bench codecs
  expect 2 'crimp run' -- "$crimp"
  expect 0 'crimp bench allreduce' -- "$crimp" --help
}

bench_codec_part() {
  local keys=() first=(memcpy_GBps encode_GBps decode_add_GBps decode_add_one_GBps encode_vs_memcpy decode_add_vs_memcpy bits_per_value
    relative_error simd)
  expect 0 '3lc:s=1,zero_run=1' -- "$crimp" bench codec --count 65536 --repeat 3 --json one.json
  for key in "${first[@]}"; do keys+=("results.0.$key"); done
  json one.json "${keys[@]}"
  "$crimp" bench codec --all --count 40961 --tensor 40961 --ranks 3 --threads 2 --data laplace --repeat 1 --json >all.json || failed=1
  keys=()
  for name in $(legal_codecs); do keys+=("results.${#keys[@]}.encode_GBps"); done
  json all.json "${keys[@]}"
  expect 0 '^ +fp32 .* 32.0 +1.00 +0$' '^ +fp16 .* 16.0 +2.00 ' '3lc:s=1.5' -- \
    "$crimp" bench codec --codec fp32 --codec fp16 --codec 3lc:s=1.5 --count 64k --repeat 1 --data sparse
  expect 2 'legal: fp32' -- "$crimp" bench codec --codec 3lx --count 1
  expect 0 'decode a sum' 'g=17' -- "$crimp" bench rotation --codec thc:g=17 --count 20k --repeat 1
  expect 2 'thc is' -- "$crimp" bench rotation --codec fp16
  expect 2 'count' -- "$crimp" bench codec --count 0
  expect 0 ' 1024 ' ' 65536 ' -- "$crimp" bench codec --count 1k --count 64k --repeat 1
  expect 2 'is no device; legal: host, cuda, cuda:N' -- "$crimp" bench codec --device gpu
  expect 2 'CRIMP_CUDA_PLUGIN is off' -- env CRIMP_CUDA_PLUGIN=off "$crimp" bench codec --device cuda
  ldconfig -p | grep -F 'libcuda.so.1 ' >/dev/null || expect 2 'device cuda: there is no NVIDIA driver here' -- "$crimp" bench codec --device cuda
}

bench_allreduce_part() {
  local common=(--iters 4 --factor 8 --min 8k) launch=("$crimp" run "${mpi[@]}" --)
  ! sanitized || launch=("$mpirun" "${mpi[@]}")
  expect 0 ' 8192 .* pass .* 0$' ' 65536 .* 0$' ' 524288 .* 0$' '!(-nan|inf)' -- \
    "${launch[@]}" "$crimp" bench allreduce --codec 3lc --max 512k "${common[@]}" --json three.json
  json three.json sizes.2.speedup sizes.2.plain_busbw_GBps sizes.2.crimp_algbw_GBps sizes.2.relative_error_of_mean
  json three.json sizes.0.wrong_ranks=0 sizes.1.wrong_ranks=0 sizes.2.wrong_ranks=0 sizes.2.compressed=ON
  # Linked, not preloaded; named; every algorithm of Open MPI.
  expect 0 ' 1048576 .* 4.00 .* 0$' -- \
    "$mpirun" "${mpi[@]}" "$crimp" bench allreduce --codec fp16 --dtype double --named --plain-algorithms --min 1M --max 1M --iters 3 --json fp16.json
  json fp16.json sizes.0.wrong_ranks=0 sizes.0.plain_us
  [[ $("$crimp" info) != *Open\ MPI* ]] || json fp16.json sizes.0.plain_algorithms_us.ring sizes.0.plain_best
  expect 2 'codec' 'legal: fp32' -- "$mpirun" "${mpi[@]}" "$crimp" bench allreduce --codec 3lx
  expect 2 'two ranks' -- "$crimp" bench allreduce --max 8k
  expect 0 '70 tensors, 32768 elements' 'besides encoding, wire and decoding' -- "${launch[@]}" "$crimp" bench call --segments 70 --calls 20
  expect 2 'two ranks' -- "$crimp" bench call
  expect 2 'is no device; legal: host, cuda, cuda:N' -- "$crimp" bench call --device gpu
  expect 2 'CRIMP_CUDA_PLUGIN is off' -- env CRIMP_CUDA_PLUGIN=off "$crimp" bench call --device cuda
}

# Three tensors of 1, 2 and 3 MB, ready after 1, 2 and 3 ms; a call takes 1 ms and 1 ns a byte. All in one: 3 + 7. Each alone: from 1 to 3, to 6, to 10.
# The first two together: from 2 to 6, to 10. The last two: from 1 to 3, and from there, 3, to 9.
plan_part() {
  local trace='{"tensors": ["a", "b", "c"], "stalls": false, "step_s": 0.0125, "steps": 9,
    "units": [{"tensors": 1, "bytes": 1000000, "ready_s": 0.001}, {"tensors": 1, "bytes": 2000000, "ready_s": 0.002}, {"tensors": 1, "bytes": 3000000, "ready_s": 0.003}],
    "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}'
  local tried='[{"holds": true, "cuts": [1], "origin": "", "steps": 4, "step_ms": 11.25}]'
  echo '{"per_rank": [{"steps": [], "horovod": {"merge": {"search": {"trace": '"$trace"', "tried": '"$tried"'}}}}]}' >report.json
  expect 0 '^3 tensors in 3 .* 6.00 MB, of rank 0 under Horovod: 9 steps, of 12.50 ms' '^each alone +3 +10.00 +-$' '^all in one +1 +10.00 +-$' \
    '^buckets of 2 MB +2 +10.00 +-$' '^the optimum +2 +9.00 +11.25$' 'To run it: CRIMP_MERGE=cuts=1$' -- "$crimp" plan report.json
  expect 0 '"plan": "each alone"' '!buckets of 2 MB +2' -- "$crimp" plan report.json --json
  expect 0 'each alone' -- "$crimp" plan report.json --json out.json
  json out.json 0.caller=horovod 0.bytes=6000000 0.setting=CRIMP_MERGE=cuts=1 0.plans.0.groups=3 0.plans.0.cuts.1=2
  # A program whose calls keep it from computing has its 3 ms beside all of them.
  echo '{"per_rank": [{"steps": ['"${trace/false/true}"']}]}' >stalls.json
  expect 0 '^each alone +3 +12.00 +-$' '^the optimum +1 +10.00 +-$' '!CRIMP_MERGE=cuts' -- "$crimp" plan stalls.json
  expect 2 'needs the file' -- "$crimp" plan
  expect 2 'one of them' -- "$crimp" plan report.json --model model.txt
  expect 2 "'nowhere.json' cannot be read" -- "$crimp" plan nowhere.json
  echo '{"per_rank": [{"steps": []}]}' >none.json
  expect 2 "'none.json' has no trace of steps" -- "$crimp" plan none.json
  echo '[1, 2' >damaged.json
  expect 2 "'damaged.json' is no report" -- "$crimp" plan damaged.json
  sed 's/"stalls": false, //' report.json >lacks.json
  expect 2 "'lacks.json' has a trace that lacks" -- "$crimp" plan lacks.json
}

# What `crimp plan` says of a model on a cluster; figures are those of tests/unit/forecast_test.cpp's arithmetic.
plan_model_part() {
  echo 'w 1000000' >model.txt
  local slow=(--ranks 2 --link 8M --latency 0us --add 1e9 --model model.txt)
  # 4 MB through a link of 1 MB/s; a byte an element in place of it, and what encoding takes.
  expect 0 '^none +mpi +[a-z]+ +4000\.[0-9]+ .* 4\.00 +1\.00 ' '^8bit +allgather +[a-z]+ +10[0-9][0-9]\.[0-9]+ .* bandwidth +none seen' 'Computing is not known' \
    'Take 3lc: ' 'would not pay any more' '  crimp run -np 2 --codec 3lc -- ./your_program$' -- "$crimp" plan "${slow[@]}" --codecs 8bit,fp16,3lc --caller program
  expect 0 '"pays": true' '"line": ' '!^none' -- "$crimp" plan "${slow[@]}" --codecs 3lc --json
  # The line at the end is one that runs.
  local line
  line=$("$crimp" plan "${slow[@]}" --codecs 3lc:s=1.5,entropy=1,fp16 --program ./train | tail -n 1)
  [[ $line == *"crimp run -np 2 "* ]] || { echo "no line to run: $line"; failed=1; }
  expect 0 'CRIMP_CODEC=fp16 .*./train' -- env PATH="$(dirname "$crimp"):$PATH" bash -c "${line/crimp run/crimp run --dry-run}"
  # It does not pay: nothing to gain by an exchange that is hidden, or of which the codec takes longer.
  expect 0 'It will not pay here: .*took no time at all would gain 0\.' 'It would on links of less than' '^  mpirun -np 2 ./your_program$' -- \
    "$crimp" plan --model model.txt --ranks 2 --link 400G --latency 1us --compute 1000 --codecs 3lc
  expect 0 'It will not pay here' 'loses more than 0.5 points' -- "$crimp" plan "${slow[@]}" --codecs 3lc:s=1.9
  expect 0 '3lc:s=1.9 .*not measured' -- "$crimp" plan "${slow[@]}" --codecs 3lc:s=1.9
  expect 0 'No curve of a GPU has been measured' -- "$crimp" plan "${slow[@]}" --gpu --codecs 3lc
  expect 0 '^fp16 +hierarchical' '4 ranks on 2 nodes' -- "$crimp" plan --model model.txt --ranks 4 --nodes 2 --codecs fp16
  expect 0 'left out: powersgd' '!No rate' -- "$crimp" plan "${slow[@]}" --codecs powersgd
  expect 2 "'nowhere.txt' cannot be read" -- "$crimp" plan --model nowhere.txt
  printf 'w 10\nw 20\n' >twice.txt
  expect 2 "'twice.txt' has line 2: the name 'w' twice" -- "$crimp" plan --model twice.txt
  printf 'PK\003\004' >checkpoint.pt
  expect 2 'python3 -m crimp.model checkpoint.pt' -- "$crimp" plan --model checkpoint.pt
  printf '\377\377\377\377\377\377\377\177{"a": 1}' >long.safetensors
  expect 2 'a header of 9223372036854775807 bytes' -- "$crimp" plan --model long.safetensors
  expect 2 "--link is 'fast'; legal is a rate" -- "$crimp" plan --model model.txt --link fast
  expect 2 "--latency is '-1us'" -- "$crimp" plan --model model.txt --latency=-1us
  expect 2 'nodes is larger' -- "$crimp" plan --model model.txt --ranks 2 --nodes 3
  expect 2 'legal: fp32' -- "$crimp" plan --model model.txt --codecs 4lc
  expect 2 'names none' -- "$crimp" plan --model model.txt --codecs ,
  expect 2 'nan. is no number' -- "$crimp" plan --model model.txt --compute nan
  expect 2 'nan. is no number' -- "$crimp" plan --model model.txt --add nan
  expect 2 'legal is: exact, any' -- "$crimp" plan --model model.txt --quality foo
  expect 2 'ranks' -- "$crimp" plan --model model.txt --ranks 1
  expect 2 "'none.json' cannot be read" -- "$crimp" plan --model model.txt --profile none.json
  echo '{}' >none.json
  expect 2 "'none.json' has no profile" -- "$crimp" plan --model model.txt --profile none.json
  expect 2 'leave --ranks' -- "$crimp" plan --model model.txt --profile none.json --link 1G
  expect 2 'could not be written' -- "$crimp" plan "${slow[@]}" --codecs fp16 --json /nonexistent/x.json
}

# A profile of two ranks here, and what is predicted with it and measured; times decide nothing.
plan_measure_part() {
  local launch=("$crimp" run "${mpi[@]}" --)
  ! sanitized || launch=("$mpirun" "${mpi[@]}")
  printf 'a 300000\nb.bias 50000\nc 200x100\nd 1000\n' >model.txt
  expect 0 'profile.json: 2 ranks on 1 nodes, 2 codecs' -- "${launch[@]}" "$crimp" plan --measure profile.json --codecs 3lc,8bit --max 256k --seconds 0.05
  json profile.json crimp_profile=1 ranks=2 network.plain.2.s network.plain.2.bytes=65536.0
  expect 0 'as measured' '^3lc +two_shot ' '^8bit +auto ' '^none +mpi ' -- "$crimp" plan --model model.txt --profile profile.json --compute 5
  expect 0 '!^8bit' -- "$crimp" plan --model model.txt --profile profile.json --codecs 3lc
  expect 2 'was not measured with fp16' -- "$crimp" plan --model model.txt --profile profile.json --codecs fp16
  # A step's gradients are ready when a report says so.
  echo '{"per_rank": [{"steps": [{"tensors": ["a", "c"], "stalls": true, "step_s": 0.02, "steps": 9, "units": [{"tensors": 1, "bytes": 1200000, "ready_s": 0.004},
    {"tensors": 1, "bytes": 80000, "ready_s": 0.007}], "calls": [[{"bytes": 0, "s": 0.001}, {"bytes": 1e6, "s": 0.002}]]}]}]}' >report.json
  expect 0 '^2 tensors, 0.32 million' '^7.00 ms of computing' -- "$crimp" plan report.json --profile profile.json
  expect 0 '4 tensors in 2 calls, 2 ranks, 3lc.* by two_shot: a step takes [0-9.]+ ms' -- \
    "${launch[@]}" "$crimp" bench step --model model.txt --compute 5 --codec 3lc --algorithm two_shot --merge cuts=2 --steps 3 --warm-up 1 --json step.json
  json step.json elements=371000 groups=2 step_ms exchange_ms
  expect 2 'found by Horovod' -- "$crimp" bench step --model model.txt --merge auto
  expect 2 'needs --model' -- "$crimp" bench step
  expect 2 'two ranks' -- "$crimp" plan --measure alone.json
  expect 2 "'/nonexistent/p.json' could not be written" -- "${launch[@]}" "$crimp" plan --measure /nonexistent/p.json --codecs fp16 --max 128k --seconds 0.01
}

# Checkpoints by PyTorch, where there is one.
plan_torch_part() {
  local python=/usr/bin/python3
  "$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch for $python"; exit 77; }
  export PYTHONPATH=$here/../../src/python PYTHONDONTWRITEBYTECODE=1
  "$python" - <<'PYTHON'
import torch, torch.nn as nn
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(10, 20))
torch.save(net.state_dict(), "plain.pt")
torch.save({"epoch": 3, "model": net.state_dict(), "optimizer": {"steps": 1}}, "nested.pt")
torch.save({"a": net.state_dict(), "b": net.state_dict()}, "two.pt")
torch.save(net, "whole.pt")  # a pickle of classes
PYTHON
  local file
  for file in plain nested; do
    expect 0 '^0.weight 8x3x3x3 float32$' '^1.num_batches_tracked 1 int64$' -- "$python" -m crimp.model $file.pt
    "$python" -m crimp.model $file.pt >$file.txt
    # 224 + 16 + 220 elements; mean, variance and count of the norm have no gradient.
    expect 0 '3 tensors of the file have no gradient' '^6 tensors, 0.00 million elements' -- "$crimp" plan --model $file.txt --codecs fp16
  done
  expect 1 "name the state dict among these: a, b" -- "$python" -m crimp.model two.pt
  expect 0 '^2.bias 20 float32$' -- "$python" -m crimp.model two.pt b
  expect 1 "has no 'c'; it has: a, b" -- "$python" -m crimp.model two.pt c
  expect 1 'no checkpoint that can be read without running code' -- "$python" -m crimp.model whole.pt
  expect 1 'no checkpoint' -- "$python" -m crimp.model nowhere.pt
  expect 1 'usage' -- "$python" -m crimp.model
}

[ "$part" = run ] || [ "$part" = bench_allreduce ] || [ "$part" = plan_measure ] && ! command -v "$mpirun" >/dev/null && { echo "skipped: no mpirun"; exit 77; }
case $part in
check)
  expect 1 'not loaded' -- "$crimp" check -- true
  expect 0 'ok: MPI_Allreduce resolves to Crimp' -- env LD_PRELOAD="$library" "$crimp" check -- true
  expect 0 'ok: ' -- "$crimp" check -- "$crimp" --version
  expect 1 'bypassed: .*libmpi' -- env LD_PRELOAD=libmpi.so.40:"$library" "$crimp" check -- true
  # What it ran is listed: the program, linked; nothing, where a module calls nothing.
  expect 0 "^  $crimp -> $library$" -- "$crimp" check -- "$crimp" --version
  expect 0 '!->' -- env LD_PRELOAD="$library" "$crimp" check -- true
  expect 1 "^  $crimp -> .*libmpi" '^bypassed: ' -- env LD_PRELOAD=libmpi.so.40 "$crimp" check -- "$crimp" --version
  expect 1 'ended with 3' -- "$crimp" check -- sh -c 'exit 3'
  # Programs that end without exit handlers have said so before.
  # shellcheck disable=SC2016  # for the inner shell
  expect 1 'ok: ' 'ended by signal 9' -- env LD_PRELOAD="$library" "$crimp" check -- sh -c 'kill -9 $$'
  expect 2 'no program' -- "$crimp" check
  expect 2 'No such file' -- "$crimp" check -- ./no-such-program
  ;;
run) run_part ;;
info) info_part ;;
plan) plan_part ;;
plan_model) plan_model_part ;;
plan_measure) plan_measure_part ;;
plan_torch) plan_torch_part ;;
bench_codec) bench_codec_part ;;
bench_allreduce) bench_allreduce_part ;;
*) echo "command.sh: there is no part '$part'" && exit 2 ;;
esac
exit $failed
