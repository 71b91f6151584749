#!/usr/bin/env bash
# Tests and measures Crimp on a machine with an NVIDIA GPU, a CUDA toolkit, g++ (C++20) and Python 3. Needs neither network nor root.
#
#   gpu_check.sh OUT [--bundle FILE] [--work DIR] [--source DIR] [--steps LIST] [--jobs N]
#
#   OUT        folder for what is found: gpu_check.json (card, driver, date, steps, tests, figures), log.txt, bench tables
#   --bundle   what gpu_bundle.sh packed; without: libraries of this machine
#   --work     where it is unpacked and built (/tmp/crimp_gpu); kept, so that a second call goes on from there
#   --source   Crimp's sources; without: those around this script
#   --steps    some of unpack,build,test,sanitize,bench,allreduce (all)
#   BENCH_CODECS, BENCH_COUNTS: what `bench` measures, words
#
# Ends with the line "gpu_check: ..."; exit status 0: all passed, 1: something failed, 77: built, but no GPU answers.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=${TMPDIR:-/tmp}/crimp_gpu bundle='' out='' steps=unpack,build,test,sanitize,bench,allreduce jobs=$(nproc)
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --work | --source | --steps | --jobs)
      [ $# -gt 1 ] || usage
      declare "${1#--}=$2"
      shift ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || usage
for step in ${steps//,/ }; do [[ " unpack build test sanitize bench allreduce " == *" $step "* ]] || usage; done
mkdir -p "$out" "$work" || exit 2
out=$(cd "$out" && pwd) work=$(cd "$work" && pwd) source=$(cd "$source" && pwd) || exit 2
[ -z "$bundle" ] || bundle=$(realpath "$bundle")
build=$work/build prefix=$work/crimp_gpu/usr
lib=$prefix/lib/x86_64-linux-gnu
: >"$out/log.txt"
: >"$work/steps"
failed=0

# ---- surroundings

newer() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]; }  # version $1 is $2 or later
tool() {  # NAME: this machine's where it serves, else the bundle's
  local own
  own=$(command -v "$1") && { [ "$1" = ninja ] || newer "$("$own" --version | awk 'NR == 1 {print $3}')" 3.25; } && { echo "$own"; return; }
  echo "$prefix/bin/$1"
}
surroundings() {
  cmake=$(tool cmake) ctest=$(tool ctest) ninja=$(tool ninja)
  if [ -d "$prefix" ]; then
    # Open MPI and PMIx look for their parts below these.
    export OPAL_PREFIX=$prefix OPAL_LIBDIR=$lib/openmpi/lib OPAL_PKGLIBDIR=$lib/openmpi/lib/openmpi3 OPAL_DATADIR=$prefix/share OPAL_PKGDATADIR=$prefix/share/openmpi
    export OPAL_INCLUDEDIR=$lib/openmpi/include PATH=$prefix/bin:$PATH HWLOC_HIDE_ERRORS=2
    export PMIX_PREFIX=$lib/pmix2 PMIX_LIBDIR=$lib/pmix2/lib PMIX_PKGLIBDIR=$lib/pmix2/lib/pmix PMIX_DATADIR=$lib/pmix2/share PMIX_PKGDATADIR=$lib/pmix2/share/pmix
  fi
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
  command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=true  # needed for other machines only, but looked for
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
}
gpu() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1
}

# ---- steps

unpack_step() {
  [ -n "$bundle" ] || { echo "no --bundle: libraries of this machine"; return 0; }
  rm -rf "$work/crimp_gpu" && tar -C "$work" -xzf "$bundle"
}
build_step() {
  command -v nvcc >/dev/null || [ -x "${CUDACXX:-}" ] || { echo "there is no nvcc: PATH, CUDA_HOME and CUDACXX were looked at"; return 1; }
  local bundled=()
  if [ -d "$prefix" ]; then
    bundled=("-DCMAKE_PREFIX_PATH=$prefix" "-DFLATBUFFERS_INCLUDE=$prefix/include" "-DFLATC=$prefix/bin/flatc" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
      "-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES=$prefix/include" -DMPI_SKIP_COMPILER_WRAPPER=ON -DMPI_CXX_SKIP_MPICXX=ON "-DMPIEXEC_EXECUTABLE=$prefix/bin/mpirun"
      "-DMPI_mpi_LIBRARY=$lib/libmpi.so")
    local language package
    for language in C CXX; do bundled+=("-DMPI_${language}_HEADER_DIR=$lib/openmpi/include" "-DMPI_${language}_LIB_NAMES=mpi"); done
    for package in "$lib"/cmake/*/ "$prefix"/lib/cmake/*/ "$prefix"/share/cmake/*/; do bundled+=("-D$(basename "$package")_DIR=${package%/}"); done
  fi
  "$cmake" -G Ninja -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCRIMP_TESTS=gpu "-DCMAKE_MAKE_PROGRAM=$ninja" "${bundled[@]}" &&
    "$ninja" -C "$build" -k 0 -j "$jobs" crimp crimp_tool crimp_cuda crimp_gpu_unit crimp_gpu_ranks
}
run_ctest() { "$ctest" --test-dir "$build" --output-on-failure --no-tests=error -j "$((jobs < 8 ? jobs : 8))" --output-junit "$out/$1.xml" "${@:2}"; }
test_step() { run_ctest tests -L gpu -LE sanitizer; }
sanitize_step() { run_ctest sanitizers -L sanitizer; }
measured() {  # RESULT COMMAND...: without a GPU there is nothing to measure, which its message says
  "${@:2}" --json "$out/$1.json" 2>&1 | tee "$out/$1.txt"
  local status=${PIPESTATUS[0]}
  [ "$status" = 0 ] || ! grep -qE -e '--device cuda: (there is no NVIDIA driver|cuInit failed|there is no device)' "$out/$1.txt" || return 77
  return "$status"
}
bench_step() {
  local options=()
  for codec in ${BENCH_CODECS:---all 3lc:zero_run=0 3lc:entropy=1 maxmin:bits=8,block=1024}; do
    if [ "$codec" = --all ]; then options+=(--all); else options+=(--codec "$codec"); fi
  done
  for count in ${BENCH_COUNTS:-4M 16M 64M}; do options+=(--count "$count"); done
  measured bench_codec "$build/bin/crimp" bench codec --device cuda "${options[@]}"
}
allreduce_step() {
  measured bench_allreduce mpirun -np 4 --oversubscribe --bind-to none "$build/bin/crimp" bench allreduce --device cuda --codec 3lc --min 4M --max 64M --factor 4 --iters 10
}

surroundings
for step in ${steps//,/ }; do
  echo "== $step" | tee -a "$out/log.txt"
  begin=$SECONDS
  if [ "$step" = bench ] || [ "$step" = allreduce ]; then
    "${step}_step" 2>&1 | tee -a "$out/log.txt"
    status=${PIPESTATUS[0]}
  else
    "${step}_step" >"$work/$step.log" 2>&1
    status=$?
    cat "$work/$step.log" >>"$out/log.txt"
    if [ "$status" != 0 ]; then tail -n 60 "$work/$step.log"; else tail -n 40 "$work/$step.log" | grep -E 'tests passed|\(Skipped\)'; fi
    rm -f "$work/$step.log"
  fi
  case $status in 0) said='done' ;; 77) said=skipped ;; *) said=FAILED ;; esac
  echo "$step $status $((SECONDS - begin))" >>"$work/steps"
  echo "== $step: $said after $((SECONDS - begin)) s" | tee -a "$out/log.txt"
  [ "$step" = unpack ] && surroundings
  if [ "$status" != 0 ] && [ "$status" != 77 ]; then
    failed=1
    case $step in unpack | build) break ;; esac
  fi
done

GPU=$(gpu) NVCC=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p') COMMIT=$(git -C "$source" rev-parse --short HEAD 2>/dev/null) \
  python3 - "$out" "$work/steps" <<'PYTHON'
import datetime, json, os, sys, xml.etree.ElementTree as xml
out, steps = sys.argv[1:3]
def load(name):
    try:
        with open(f"{out}/{name}.json") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
card, _, driver = os.environ["GPU"].partition(", ")
result = {"card": card or None, "driver": driver or None, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "nvcc": os.environ["NVCC"],
          "commit": os.environ["COMMIT"] or None, "steps": {}, "tests": {}}
with open(steps) as file:
    for line in file:
        name, status, seconds = line.split()
        result["steps"][name] = {"status": {"0": "done", "77": "skipped"}.get(status, "failed"), "seconds": int(seconds)}
count = {"passed": 0, "failed": 0, "skipped": 0}
for step, name in ("test", "tests"), ("sanitize", "sanitizers"):
    if step not in result["steps"] or not os.path.exists(f"{out}/{name}.xml"):
        continue
    for case in xml.parse(f"{out}/{name}.xml").getroot().iter("testcase"):
        skipped = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
        state = "skipped" if skipped else "passed" if case.get("status") == "run" and case.find("failure") is None else "failed"
        count[state] += 1
        result["tests"][case.get("name")] = {"result": state, "seconds": float(case.get("time", 0))}
for step, name in ("bench", "bench_codec"), ("allreduce", "bench_allreduce"):
    if result["steps"].get(step, {}).get("status") == "done":
        result[name] = load(name)
with open(f"{out}/gpu_check.json", "w") as file:
    json.dump(result, file, indent=2)
    file.write("\n")
print(f"\n{card or 'no card'}, driver {driver or '-'}, nvcc {result['nvcc'] or '-'}, {result['date']}")
bench = result.get("bench_codec")
if bench:
    print(f"{'codec':44} {'MiB':>6} {'copy GB/s':>10} {'encode/copy':>12} {'dec+add/copy':>13} {'bits':>6}")
    for r in bench["results"]:
        print(f"{r['codec']:44} {r['bytes'] / 2**20:6.0f} {r['copy_GBps']:10.0f} {r['encode_vs_copy']:12.2f} {r['decode_add_vs_copy']:13.2f} {r['bits_per_value']:6.2f}")
for r in (result.get("bench_allreduce") or {}).get("sizes", []):
    print(f"allreduce of {r['bytes'] / 2**20:.0f} MiB, {result['bench_allreduce']['ranks']} ranks: staged by hand + plain MPI {r['plain_us']:.0f} us, Crimp {r['crimp_us']:.0f} us, {r['speedup']:.2f} times")
bad = [name for name, step in result["steps"].items() if step["status"] == "failed"] + [name for name, t in result["tests"].items() if t["result"] == "failed"]
end = f"gpu_check: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"
silent = not bad and count["passed"] == 0 and not bench and not result.get("bench_allreduce") and set(result["steps"]) - {"unpack", "build"}
print(end + ("; failed: " + ", ".join(bad) if bad else "; no GPU answers here: nothing was measured" if silent else "; all done"))
sys.exit(1 if bad else 77 if silent else 0)
PYTHON
status=$?
[ $failed = 0 ] || exit 1
exit $status
