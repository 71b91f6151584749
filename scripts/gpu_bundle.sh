#!/usr/bin/env bash
# Packs what gpu_check.sh needs on a machine without network: Open MPI, the libraries that Crimp is built from, CMake, Ninja and the sources.
#
#   gpu_bundle.sh [--libraries] [FILE]    FILE: gpu_bundle.tar.gz; --libraries: without Crimp's sources, where those travel by themselves
#
# Runs on Debian 12 (x86-64), installs what is missing there (setup.sh), and copies installed files, so that nothing is fetched twice. What is packed finds its own
# libraries by relative paths; glibc, libstdc++ and the compilers are the other machine's, which must not be older than Debian 12.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "gpu_bundle.sh: $1" >&2; exit 1; }
libraries='' file=gpu_bundle.tar.gz
for argument in "$@"; do
  case $argument in
    --libraries) libraries=1 ;;
    -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) file=$argument ;;
  esac
done
[ "$(uname -m)$(. /etc/os-release && echo "$ID$VERSION_ID")" = x86_64debian12 ] || fail "this must run on Debian 12, x86-64"
./scripts/setup.sh
command -v patchelf >/dev/null || fail "patchelf is missing: apt-get install patchelf"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/crimp_gpu/usr
lib=$root/lib/x86_64-linux-gnu
plugins=$lib/openmpi/lib/openmpi3
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
add libhwy-dev libhwy1 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 librandom123-dev libcli11-dev nlohmann-json3-dev libflatbuffers-dev flatbuffers-compiler libxxhash-dev \
  doctest-dev -- '^/usr/(include|bin|share/cmake|lib/cmake|lib/x86_64-linux-gnu/(cmake|lib))'
add libopenmpi-dev openmpi-common -- /openmpi/include/ /share/openmpi/
add libopenmpi3 openmpi-bin libpmix2 -- /openmpi3/ '/lib(mpi|open-rte|open-pal|mca_common)[^/]*$' '/bin/(orterun|orted|mpirun.openmpi)$' pmix
add cmake cmake-data ninja-build -- '/bin/(cmake|ctest|ninja)$' /share/cmake-
ln -sf orterun "$root/bin/mpirun"
ln -sf libmpi.so.40 "$lib/libmpi.so"  # beside what it needs, which ld looks for there
# For other networks than a machine's own memory and TCP, and for other batch systems, Java, Fortran and OpenSHMEM.
rm -f "$plugins"/mca_*_{ucx,ofi,openib,psm,psm2,portals4,monitoring,flux,slurm,gridengine,simulator,jsm}.so "$plugins"/mca_{sco,ss,sp}* "$plugins"/mca_memheap* \
  "$lib"/libmca_common_{ucx,ofi,verbs,monitoring}* "$lib"/libmpi_{java,cxx,mpifh,usempi}*

# What all of these need and the C and C++ runtimes do not hold.
find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp|ld-linux[^/]*)\.so' | while read -r library; do
    [ -e "$lib/$(basename "$library")" ] || cp -L "$library" "$lib/"
  done
missing=$(find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null | grep 'not found' | sort -u || true)
[ -z "$missing" ] || fail "not installed here: $missing"
find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' \) | while read -r binary; do
  patchelf --force-rpath --set-rpath "\$ORIGIN/$(realpath --relative-to="$(dirname "$binary")" "$lib")" "$binary" 2>/dev/null || true
done
for path in openmpi/include/mpi.h libmpi.so libhwy.so; do [ -e "$lib/$path" ] || fail "$path was not packed"; done

if [ -z "$libraries" ]; then
  mkdir "$work/crimp_gpu/crimp"
  git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -C "$work/crimp_gpu/crimp" -xf -
fi
tar -C "$work" --owner=0 --group=0 -cf - crimp_gpu | gzip -9 >"$file"
echo "gpu_bundle.sh: $file, $(($(stat -c %s "$file") / 1000)) kB"
