#!/usr/bin/env bash
# check_debian.sh BUILD VERSION SOVERSION: the Debian packages of a build folder have the right files and dependencies, lintian finds nothing in them, and what they unpack to
# works. Exit 77: no dpkg or file here. Without lintian its part is left out, and that is said.
set -euo pipefail
build=$1 version=$2 soversion=$3 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
for tool in cpack dpkg-deb dpkg-shlibdeps file gzip; do command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }; done
# A packer's umask is no business of the packages.
(umask 077 && cd "$build" && cpack -G DEB -B "$work/packages" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip) >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
cd "$work/packages"
library=libcrimp$soversion
names=$(for package in *.deb; do dpkg-deb -f "$package" Package; done | sort | tr '\n' ' ')
for name in crimp crimp-doc libcrimp-dev "$library"; do [[ " $names" == *" $name "* ]] || fail "no package $name: $names"; done

field() { dpkg-deb -f "$1"_*.deb "$2"; }
[ "$(field $library Architecture)" = "$(dpkg --print-architecture)" ] || fail "$library is for $(field $library Architecture)"
[ "$(field crimp-doc Architecture)" = all ] || fail "crimp-doc is for $(field crimp-doc Architecture)"
[[ $(field $library Version) == "$version"-* ]] || fail "$library has version $(field $library Version)"
for needed in libc6 libopenmpi libhwy1; do [[ $(field $library Depends) == *$needed* ]] || fail "$library does not depend on $needed: $(field $library Depends)"; done
[[ $(field $library Depends) != *cuda* && $(field $library Depends) != *mpich* ]] || fail "$library depends on CUDA or MPICH: $(field $library Depends)"
for dependent in crimp libcrimp-dev; do
  [[ $(field $dependent Depends) == *"$library (= $(field $library Version))"* ]] || fail "$dependent depends on: $(field $dependent Depends)"
done
# No file is in two packages, and each package says whose it is.
twice=$(for package in *.deb; do dpkg-deb -c "$package" | awk '$1 !~ /^d/ {print $6}'; done | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
for package in *.deb; do
  name=$(dpkg-deb -f "$package" Package)
  dpkg-deb -c "$package" >"$work/list"
  grep -q "/usr/share/doc/$name/copyright$" "$work/list" || fail "$name has no copyright file"
  grep -q "/usr/share/doc/$name/changelog.Debian.gz$" "$work/list" || fail "$name has no changelog"
  ! grep -v '^d' "$work/list" | grep -v ' \./usr/' || fail "$name has files outside of /usr"
  ! grep -E '^(d......[^r]|d........[^x]|-......[^r])' "$work/list" || fail "$name has what not everybody may read"
  ! grep -v 'root/root' "$work/list" || fail "$name has files of others than root"
  dpkg-deb -x "$package" "$work/root"
done
! dpkg-deb -c "${library}_"*.deb | grep -q 'libcrimp\.so$' || fail "$library has the link of libcrimp-dev"
[ ! -e "$work/root/usr/share/modulefiles" ] || fail "a modulefile is in a package: its prefix would be the packer's"

# A program is linked with what was unpacked and runs with it, and so does one that is not linked, by `crimp run`.
libraries=$(dirname "$(find "$work/root/usr/lib" -name "libcrimp.so.$soversion" ! -path '*/crimp/*')")
as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
cc=$(command -v mpicc.openmpi || echo mpicc) run=$(command -v mpirun.openmpi || echo mpirun)
# shellcheck disable=SC2046  # options, one word each
"$cc" "$here/linked.c" $(PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config --define-prefix --cflags --libs crimp) -o "$work/linked"
"$cc" "$here/linked.c" -o "$work/plain"
"$work/root/usr/bin/crimp" info >/dev/null
export CRIMP_CODEC=fp16 CRIMP_ALGORITHM=allgather MPIRUN=$run
for line in "$run ${as_root[*]} --oversubscribe -np 2 -x CRIMP_CODEC -x CRIMP_ALGORITHM -x LD_LIBRARY_PATH=$libraries $work/linked" \
  "$work/root/usr/bin/crimp run ${as_root[*]} --oversubscribe -np 2 -- $work/plain"; do
  said=$($line 2>&1) || fail "$line: $said"
  [[ $said == *"1 calls compressed (1 with fp16; 1 by allgather)"* ]] || fail "$line was not compressed: $said"
done

command -v lintian >/dev/null || { echo "lintian is not installed: packages were not checked by it"; exit 0; }
# What only the preset debian does right: the folder of libraries; and man pages are made by another target, which a build of single targets has not made.
tags=pkg-config-unavailable-for-cross-compilation
[ -e "$build/share/man/man1/crimp.1" ] || tags+=,no-manual-page
lintian --allow-root --fail-on error,warning --suppress-tags $tags ./*.deb >"$work/lintian" 2>&1 || fail "lintian: $(cat "$work/lintian")"
