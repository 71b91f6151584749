#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: release build (MPI, tools, house, unit, real Horovod), ASan+UBSan and TSan builds (unit).
#
#   test.sh [--quick] [--long] [--turn N] [-L LABEL]
#
#   --quick    the release build only
#   --long     grids of cases whole (label long), which otherwise take turns: hours
#   --turn N   of the tests those of turn N (tests/turns.cmake), with the programs that these need; all: every test. In every turn: the library,
#              the command and both under Open MPI, with a third of each grid of cases; 0: ASan + UBSan; 1: TSan, the unit suites of the
#              release build, device code in the executor; 2: real Horovod, PyTorch, MPICH, nvcc, packages. By default commits take turns,
#              by their number (in a shallow clone by their hash, without git by the day), so that three in a row see everything; with -L
#              or --long it is all of it
#   -L LABEL   tests with this label only (unit, mpi, tools, house, horovod, torch, gpu, bench, long)
#
# Ends with the line "N passed, M failed, K skipped". Builds stay in build, build-asan and build-tsan and are incremental; the latter two
# hold nothing but the unit suites (with --long build-tsan also programs that make requests under mpirun). Where the minutes go: docs/design_notes.md.
set -uo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
cd "$(dirname "$0")/.." || exit 1

source scripts/progress.sh
quick='' label=() long=() turn=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --long) long=(-C long) ;;
    --turn)
      turn=${2:-}
      [[ $turn =~ ^([012]|all)$ ]] || { echo "test.sh: --turn is 0, 1, 2 or all, not '$turn'" >&2; exit 2; }
      shift ;;
    -L)
      label=(-L "${2:?-L LABEL}")
      [ "$2" != long ] || long=(-C long)
      shift ;;
    *) unknown "$1" ;;
  esac
  shift
done

./scripts/setup.sh || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
jobs=$(nproc)
if [ -z "$turn" ]; then
  if [ -n "${label[*]}${long[*]}" ]; then turn=all
  elif [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = true ]; then turn=$((16#$(git rev-parse --short=7 HEAD) % 3))
  else turn=$((10#$(git rev-list --count HEAD 2>/dev/null || date +%j) % 3)); fi
fi
others=()
[ "$turn" = all ] || others=(-LE "^turn[^$turn]$")
results=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$results"' EXIT
broken=0

# DIRECTORY "TARGET ..."|turn CMAKE-ARGUMENTS...
build() {
  local dir=$1 target=$2
  shift 2
  if ! [ -e "$dir/CMakeCache.txt" ]; then
    set -- "$@" -DCRIMP_JUMBO=ON  # nobody edits yet
    [[ $turn =~ 2|all ]] || set -- "$@" -DCRIMP_VECTORS=here
  fi
  [[ ! $turn =~ 2|all ]] || set -- "$@" -DCRIMP_VECTORS=all
  cmake -G Ninja -S . -B "$dir" "$@" >"$results/$dir.log" 2>&1 || return
  if [ "$target" = turn ]; then
    target=all
    [ "$turn" = all ] || target=$(tests/turn_programs.py "$dir" "$turn" 2>>"$results/$dir.log") || return
  fi
  ninja -C "$dir" $target >>"$results/$dir.log" 2>&1
}

# A build that fails is one failed test, and the others still run. How many cores a test takes is in its properties, so that
# those that measure or fill the cores run alone; those under mpirun wait at times, so that there are more of them than cores.
test_in() {  # DIRECTORY BUILT: whether it could be built
  if [ "$2" -ne 0 ]; then
    echo "== $1 could not be built:"
    tail -n 30 "$results/$1.log"
    broken=$((broken + 1))
    return
  fi
  echo "== tests in $1, $SECONDS s after the start"
  ctest --test-dir "$1" -j $((jobs + jobs / 2)) "${long[@]}" "${others[@]}" --output-on-failure --no-tests=error --output-junit "$results/$1.xml" "${label[@]}" || true
}

# Horovod is kept between runs. Where it cannot be fetched its tests say so and count as skipped.
[[ ! $turn =~ 2|all || ( -n ${label[*]} && ${label[1]:-} != horovod ) ]] || ./scripts/horovod.sh build >"$results/horovod.log" 2>&1 &
horovod=$!
echo "== building in build$([[ ! $turn =~ 2|all ]] || echo " (and Horovod in build/horovod)"), turn $turn"
with_progress building "$results/build.log" build build turn -DCMAKE_BUILD_TYPE=Release
built=$?
wait $horovod || true
cat "$results/horovod.log" 2>/dev/null

# Tests under mpirun leave half of the cores idle: the sanitizers' builds take what is left.
if [ -z "$quick" ] && [ "$turn" != 2 ] && [[ ${label[1]:-unit} == unit ]]; then
  (
    renice -n 19 $BASHPID >/dev/null 2>&1
    if [ "$turn" != 1 ]; then
      ln -sf build-asan.log "$results/sanitizers.log"
      build build-asan crimp_unit -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCRIMP_TESTS=unit -DCRIMP_SANITIZE=address,undefined
      echo $? >"$results/asan"
    fi
    if [[ $turn =~ 1|all ]]; then
      ln -sf build-tsan.log "$results/sanitizers.log"
      build build-tsan "crimp_unit${long:+ crimp_tsan}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCRIMP_TESTS=unit -DCRIMP_SANITIZE=thread
      echo $? >"$results/tsan"
    fi
  ) &
  sanitizers=$!
fi
test_in build $built
if [ -n "${sanitizers:-}" ]; then
  with_progress building "$results/sanitizers.log" wait $sanitizers
  export UBSAN_OPTIONS=print_stacktrace=1
  [ "$turn" = 1 ] || test_in build-asan "$(cat "$results/asan" 2>/dev/null || echo 1)"
  [[ ! $turn =~ 1|all ]] || test_in build-tsan "$(cat "$results/tsan" 2>/dev/null || echo 1)"
fi
echo "all tests have run after $SECONDS s"
if [ "$turn" != all ]; then
  waiting=$(ctest --test-dir build -N "${label[@]}" -L "^turn[^$turn]$" 2>/dev/null | sed -n 's/^Total Tests: //p')
  also=''
  if [ -z "$quick" ] && [[ ${label[1]:-unit} == unit ]]; then
    of_turn=(', and TSan,' ', and ASan + UBSan,' ', ASan + UBSan and TSan')
    also=${of_turn[turn]}
  fi
  echo "this was turn $turn of 0 to 2: ${waiting:-no} tests$also wait for other commits (--turn all: every test)"
fi

/usr/bin/python3 - "$results" "$broken" <<'PYTHON'
import glob, sys, xml.etree.ElementTree as xml
passed = skipped = 0
failed = int(sys.argv[2])
for file in sorted(glob.glob(sys.argv[1] + "/*.xml")):
    for case in xml.parse(file).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run" and case.find("failure") is None:
            passed += 1
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            skipped += 1
            print("skipped:", case.get("name"))
        else:
            failed += 1
            print("failed:", case.get("name"))
if passed == 0:
    failed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
PYTHON
