#!/usr/bin/env bash
# Packs what gpu_check.py needs on a machine without network: Open MPI, the libraries that Crimp is built from, CMake, Ninja and the sources.
#
#   gpu_bundle.sh [--libraries] [--built DIR] [FILE]    FILE: gpu_bundle.tar.gz
#
#   --libraries   without Crimp's sources, where those travel by themselves
#   --built       the programs of a build of CRIMP_TESTS=gpu, in place of what builds them: nothing is compiled on the other machine
#
# Runs on Debian 12 (x86-64), installs what is missing there (setup.sh), and copies installed files, so that nothing is fetched twice. What is packed finds its own
# libraries by relative paths; glibc, libstdc++ and the compilers are the other machine's, which must not be older than Debian 12.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "gpu_bundle.sh: $1" >&2; exit 1; }
libraries='' built='' file=gpu_bundle.tar.gz
while [ $# -gt 0 ]; do
  case $1 in
    --libraries) libraries=1 ;;
    --built)
      [ $# -gt 1 ] && built=$(realpath "$2") || fail "--built needs a folder"
      shift ;;
    -*) unknown "$1" ;;
    *) file=$1 ;;
  esac
  shift
done
if [ -n "$built" ] && grep -q '^CRIMP_VECTORS:.*=here$' "$built/CMakeCache.txt" 2>/dev/null; then
  echo "gpu_bundle.sh: $built has the vector code of this machine's processor alone (CRIMP_VECTORS=here); the other one may run it more slowly" >&2
fi
[ "$(uname -m)$(. /etc/os-release && echo "$ID$VERSION_ID")" = x86_64debian12 ] || fail "this must run on Debian 12, x86-64"
./scripts/setup.sh
command -v patchelf >/dev/null || fail "patchelf is missing: apt-get install patchelf"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/crimp_gpu/usr
lib=$root/lib/x86_64-linux-gnu
plugins=$lib/openmpi/lib/openmpi3
programs=$work/crimp_gpu/built
mkdir -p "$lib" "$root/bin"

# add PACKAGE... [-- PATTERN...]: installed files of packages, those whose path matches a pattern (all).
add() {
  local packages=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do packages+=("$1") && shift; done
  shift || true
  local patterns=("$@")
  [ $# -gt 0 ] || patterns=(.)
  dpkg -L "${packages[@]}" | sort -u | grep -vE '/(doc|man|info|lintian|bash-completion|emacs|vim)/|/share/cmake-[0-9.]+/Help/|\.(a|la|mod)$' |
    grep -E "$(IFS='|'; echo "${patterns[*]}")" | while read -r path; do
      [ -d "$path" ] && [ ! -L "$path" ] || printf '%s\n' "${path#/}"
    done | tar -C / -cf - -T - | tar -C "$work/crimp_gpu" -xf -
}
if [ -z "$built" ]; then
  add libhwy-dev libhwy1 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 librandom123-dev libcli11-dev nlohmann-json3-dev libflatbuffers-dev flatbuffers-compiler \
    libxxhash-dev doctest-dev -- '^/usr/(include|bin|share/cmake|lib/cmake|lib/x86_64-linux-gnu/(cmake|lib))'
  add libopenmpi-dev -- /openmpi/include/
  add cmake cmake-data ninja-build -- '/bin/(cmake|ctest|ninja)$' /share/cmake-
fi
add openmpi-common -- /share/openmpi/
add libopenmpi3 openmpi-bin libpmix2 -- /openmpi3/ '/lib(mpi|open-rte|open-pal|mca_common)[^/]*$' '/bin/(orterun|orted|mpirun.openmpi)$' pmix
ln -sf orterun "$root/bin/mpirun"
ln -sf libmpi.so.40 "$lib/libmpi.so"  # beside what it needs, which ld looks for there
# For other networks than a machine's own memory and TCP, and for other batch systems, Java, Fortran and OpenSHMEM.
rm -f "$plugins"/mca_*_{ucx,ofi,openib,psm,psm2,portals4,monitoring,flux,slurm,gridengine,simulator,jsm}.so "$plugins"/mca_{sco,ss,sp}* "$plugins"/mca_memheap* \
  "$lib"/libmca_common_{ucx,ofi,verbs,monitoring}* "$lib"/libmpi_{java,cxx,mpifh,usempi}*

if [ -n "$built" ]; then
  mkdir -p "$programs/bin"
  cp "$built"/bin/{crimp,crimp_gpu_unit,crimp_gpu_ranks} "$programs/bin/" && cp -d "$built"/libcrimp.so* "$built"/libcrimp_cuda.so "$programs/" || fail "$built lacks one of them"
  strip --strip-debug "$programs"/bin/* "$(realpath "$programs/libcrimp.so")" "$programs/libcrimp_cuda.so"
  python=$(sed -n 's/^_\?Python3_EXECUTABLE:[A-Z]*=//p' "$built/CMakeCache.txt" | head -1)
  source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:[A-Z]*=//p' "$built/CMakeCache.txt")
  ctest --test-dir "$built" --show-only=json-v1 | sed -e "s|$built|@BUILT@|g" -e "s|$source|@SOURCE@|g" -e "s|\"${python:-none}\"|\"@PYTHON@\"|g" >"$programs/gpu_tests.json"
  grep -q '@BUILT@/bin/crimp_gpu_ranks' "$programs/gpu_tests.json" || fail "$built has no tests of ranks: CRIMP_TESTS=gpu"
fi

# What all of these need and the C and C++ runtimes do not hold.
binaries() { find "$work/crimp_gpu" -type f \( -name '*.so*' -o -path '*/bin/*' \) "$@"; }
binaries -exec ldd {} + 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp|ld-linux[^/]*|libcrimp)\.so' | while read -r library; do
    [ -e "$lib/$(basename "$library")" ] || cp -L "$library" "$lib/"
  done
missing=$(binaries -exec ldd {} + 2>/dev/null | grep 'not found' | sort -u || true)
[ -z "$missing" ] || fail "not installed here: $missing"
binaries | while read -r binary; do
  here=$(dirname "$binary")
  rpath="\$ORIGIN/$(realpath --relative-to="$here" "$lib")"
  [ ! -d "$programs" ] || rpath="$rpath:\$ORIGIN/$(realpath --relative-to="$here" "$programs")"
  patchelf --force-rpath --set-rpath "$rpath" "$binary" 2>/dev/null || true
done
for path in "$root/bin/mpirun" "$lib/libmpi.so"; do [ -e "$path" ] || fail "$path was not packed"; done
[ -n "$built" ] || for path in openmpi/include/mpi.h libhwy.so; do [ -e "$lib/$path" ] || fail "$path was not packed"; done

commit=$(git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || commit=$commit+$(git diff HEAD 2>/dev/null | sha1sum | cut -c1-6)
echo "$commit" >"$work/crimp_gpu/COMMIT"
if [ -z "$libraries" ]; then
  mkdir "$work/crimp_gpu/crimp"
  git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -C "$work/crimp_gpu/crimp" -xf -
  cp "$work/crimp_gpu/COMMIT" "$work/crimp_gpu/crimp/"
fi
tar -C "$work" --owner=0 --group=0 -cf - crimp_gpu | gzip -9 >"$file"
echo "gpu_bundle.sh: $file, $(($(stat -c %s "$file") / 1000)) kB"
