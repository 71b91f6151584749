#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: release build (unit, tools, house, MPI, real Horovod), ASan+UBSan and TSan builds (unit).
#
#   test.sh [--quick] [--long] [-L LABEL]
#
#   --quick    the release build only
#   --long     grids of cases whole (label long), which otherwise take turns: hours
#   -L LABEL   tests with this label only (unit, mpi, tools, house, horovod, gpu, bench, long)
#
# Ends with the line "N passed, M failed, K skipped". Builds stay in build, build-asan and build-tsan and are incremental; the latter two
# hold nothing but the unit suites. Where the minutes go: docs/design_notes.md.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

source scripts/progress.sh
quick='' label=() long=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --long) long=(-C long) ;;
    -L)
      label=(-L "${2:?-L LABEL}")
      [ "$2" != long ] || long=(-C long)
      shift ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done

./scripts/setup.sh || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
# Kept between runs. Where it cannot be fetched its tests say so and count as skipped.
[ -n "${label[*]}" ] && [ "${label[1]}" != horovod ] || ./scripts/horovod.sh build || true
jobs=$(nproc)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
broken=0

build() { ninja -C "$1" "$2" >"$results/build" 2>&1; }

# A build that fails is one failed test, and the others still run. How many cores a test takes is in its properties, so that
# those that measure or fill the cores run alone.
run() {  # DIRECTORY TARGET CMAKE-ARGUMENTS...
  local dir=$1 target=$2
  shift 2
  echo "== $dir"
  if ! cmake -G Ninja -S . -B "$dir" "$@" >"$results/configure" 2>&1 || ! with_progress building "$results/build" build "$dir" "$target"; then
    tail -30 "$results/configure" "$results/build" 2>/dev/null
    broken=$((broken + 1))
    return
  fi
  echo "built after $SECONDS s"
  ctest --test-dir "$dir" -j "$jobs" "${long[@]}" --output-on-failure --no-tests=error --output-junit "$results/$dir.xml" "${label[@]}" || true
}

run build all -DCMAKE_BUILD_TYPE=Release
if [ -z "$quick" ] && [[ ${label[1]:-unit} == unit ]]; then
  export UBSAN_OPTIONS=print_stacktrace=1
  run build-asan crimp_unit -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCRIMP_TESTS=unit -DCRIMP_SANITIZE=address,undefined
  run build-tsan crimp_unit -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCRIMP_TESTS=unit -DCRIMP_SANITIZE=thread
fi
echo "all tests have run after $SECONDS s"

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
