#!/usr/bin/env bash
# check_install.sh BUILD VERSION SOVERSION: an installed Crimp is found by CMake and by pkg-config and a program linked so is compressed, from where it was installed and
# after its tree was moved, stripped or not; parts of it can be installed alone; and what was installed can be taken away again.
set -euo pipefail
build=$1 version=$2 soversion=$3 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
# The folder's list of what was installed is the user's: it says what `uninstall` takes away.
cp -p "$build/install_manifest.txt" "$work/kept" 2>/dev/null || true
trap 'rm -f "$build/install_manifest.txt"; [ ! -e "$work/kept" ] || cp -p "$work/kept" "$build/install_manifest.txt"; rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

# Staged for another place, stripped, then moved to a third: what is below is done there.
prefix=/opt/crimp
DESTDIR=$work/staged cmake --install "$build" --prefix $prefix --strip >/dev/null
[ -z "$(find "$work/staged" -mindepth 1 -maxdepth 1 ! -name opt)" ] || fail "DESTDIR: something lies outside of $prefix: $(ls "$work/staged")"
! grep -rIlF "$work" "$work/staged" || fail "files name the staging folder"
! grep -rIlF "$build" "$work/staged" || fail "files name the build folder"
mv "$work/staged$prefix" "$work/crimp-0.1+moved"
prefix=$work/crimp-0.1+moved

libraries=$(cd "$prefix" && dirname "$(find . -maxdepth 4 -name 'libcrimp.so' ! -path '*/crimp/*')") libraries=${libraries#./}
library=$prefix/$libraries/libcrimp.so
[ "$(readlink -f "$library")" = "$(readlink -f "$prefix/$libraries/libcrimp.so.$version")" ] || fail "libcrimp.so is not libcrimp.so.$version"
for each in "$library" "$prefix/$libraries"/crimp/*/libcrimp.so; do
  [ -e "$each" ] || continue
  soname=$(readelf -dW "$each" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
  [ "$soname" = "libcrimp.so.$soversion" ] && [ -e "$(dirname "$each")/$soname" ] || fail "$each is called '$soname', not libcrimp.so.$soversion, or is not there by that name"
  ! readelf -dW "$each" | grep -E 'R(UN)?PATH' || fail "$each looks for libraries in a place of its own"
done
! readelf -SW "$library" | grep -q '\.debug_info' || fail "--strip left the debugging lines"
for file in README.md LICENSE CHANGELOG.md docs/settings.md src/codec/WIRE_FORMAT.md; do [ -s "$prefix/share/doc/crimp/$file" ] || fail "share/doc/crimp/$file is missing"; done

export PKG_CONFIG_PATH=$prefix/$libraries/pkgconfig
cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/cmake" >/dev/null
# shellcheck disable=SC2046  # options, one word each
"$(command -v mpicc.openmpi || echo mpicc)" "$here/linked.c" $(pkg-config --cflags --libs crimp) -o "$work/linked"
[ "$(pkg-config --modversion crimp)" = "$version" ] || fail "pkg-config says version $(pkg-config --modversion crimp)"
pkg-config --define-prefix --libs crimp | grep -qF -- "-L$prefix/$libraries" || fail "pkg-config --define-prefix says $(pkg-config --define-prefix --libs crimp)"

# The compiler may be MPI's own wrapper, of which FindMPI knows no header's place, and a project may have no C.
CC=$(command -v mpicc.openmpi || echo mpicc) cmake -S "$here" -B "$work/wrapper" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/wrapper" >/dev/null
mkdir "$work/cxx"
cat >"$work/cxx/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.18)
project(linked LANGUAGES CXX)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(crimp REQUIRED)
add_executable(linked linked.cpp)
target_link_libraries(linked crimp::crimp MPI::MPI_CXX)
PROJECT
cp "$here/linked.c" "$work/cxx/linked.cpp"
cmake -S "$work/cxx" -B "$work/cxx/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/cxx/build" >/dev/null
# C++ in a project that has C as well, with nothing of MPI's named; and with MPI's C++ bindings, where the project finds them.
mkdir "$work/both"
cat >"$work/both/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.18)
project(linked)
if(BINDINGS)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
find_package(crimp REQUIRED)
add_executable(linked linked.cpp)
target_link_libraries(linked crimp::crimp)
PROJECT
cp "$here/linked.c" "$work/both/linked.cpp"
for bindings in OFF ON; do
  cmake -S "$work/both" -B "$work/both/$bindings" -DCMAKE_PREFIX_PATH="$prefix" -DBINDINGS=$bindings >/dev/null
  cmake --build "$work/both/$bindings" >/dev/null
done
# Options of the linker's end with Crimp: what follows is linked as it would be without.
case $(pkg-config --libs crimp) in
  *--pop-state*) ;;
  *) fail "pkg-config leaves options of the linker's: $(pkg-config --libs crimp)" ;;
esac
# Pages lead nowhere that is not installed.
python3 - "$prefix/share/doc/crimp" <<'LINKS' || fail "links of the installed pages lead nowhere"
import pathlib, re, sys
dead = [(str(page), to) for page in pathlib.Path(sys.argv[1]).rglob("*.md") for to in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()) if not (page.parent / to).exists()]
print(*dead, sep="\n")
sys.exit(bool(dead))
LINKS

as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--allow-run-as-root)
for program in "$work/cmake/linked" "$work/linked" "$work/wrapper/linked" "$work/cxx/build/linked" "$work/both/OFF/linked" "$work/both/ON/linked"; do
  said=$("$(command -v mpirun.openmpi || echo mpirun)" "${as_root[@]}" --oversubscribe -np 2 -x CRIMP_CODEC=fp16 -x CRIMP_ALGORITHM=allgather "$program" 2>&1)
  case $said in
    *"1 calls compressed (1 with fp16; 1 by allgather)"*) ;;
    *) fail "$program was not compressed: $said" ;;
  esac
done
# A program that calls crimp.h's sums and none of MPI's.
cat >"$work/named.c" <<'PROGRAM'
#include <crimp/crimp.h>
int main(void) { return crimp_allreduce(0, 0, 0, CRIMP_FLOAT32, MPI_COMM_WORLD, 0, 0); }
PROGRAM
# shellcheck disable=SC2046
"$(command -v mpicc.openmpi || echo mpicc)" "$work/named.c" $(pkg-config --cflags --libs crimp) -o "$work/named"
said=$("$prefix/bin/crimp" check --file "$work/named") || fail "$said"
[[ $said == "ok: crimp_allreduce leads to "* ]] || fail "$said"
"$prefix/bin/crimp" info >/dev/null
"$prefix/bin/crimp" run --dry-run -np 2 -- /bin/true | grep -qF "LD_PRELOAD=$prefix/$libraries/libcrimp.so " || fail "crimp run preloads another library"
# As in a distribution, which gives the name without a number to those who link.
rm "$library"
"$prefix/bin/crimp" run --dry-run -np 2 -- /bin/true | grep -qF "LD_PRELOAD=$prefix/$libraries/libcrimp.so.$soversion " || fail "crimp run does not find libcrimp.so.$soversion"
ln -s "libcrimp.so.$soversion" "$library"

# Parts: a node of a cluster needs the library alone.
cmake --install "$build" --prefix "$work/node" --component runtime >/dev/null
[ "$(cd "$work/node" && find . -name '*crimp*' ! -type d | sed 's|.*/||' | sort | tr '\n' ' ')" = "libcrimp.so.$soversion libcrimp.so.$version " ] ||
  fail "the runtime is more, or less, than the library: $(find "$work/node" ! -type d)"

mkdir "$work/lists" && sed "s|^|$work/away/|" >"$work/lists/install_manifest.txt" <<'LIST'
lib/libcrimp.so.0
share/doc/crimp/docs/settings.md
share/crimp/of_ours
bin/crimp
bin/dangling
LIST
mkdir -p "$work/away/lib" "$work/away/bin" "$work/away/share/doc/crimp/docs" "$work/away/share/crimp"
touch "$work/away/lib/libcrimp.so.0" "$work/away/lib/libother.so" "$work/away/share/doc/crimp/docs/settings.md" "$work/away/share/crimp/"{of_ours,of_the_user} "$work/away/bin/crimp"
ln -s nowhere "$work/away/bin/dangling"
root=$(cd "$here/../.." && pwd)
# Where nothing is removed the list stays.
DESTDIR=/elsewhere cmake -DBUILD="$work/lists" -P "$root/packaging/uninstall.cmake" >"$work/elsewhere" 2>&1 && fail "uninstall with another DESTDIR is no error"
grep -q "DESTDIR" "$work/elsewhere" || fail "$(cat "$work/elsewhere")"
cmake -DBUILD="$work/lists" -P "$root/packaging/uninstall.cmake" 2>&1 | grep -q '5 files removed' || fail "uninstall did not remove 5 files"
[ "$(cd "$work/away" && find . | sort | tr '\n' ' ')" = ". ./bin ./lib ./lib/libother.so ./share ./share/crimp ./share/crimp/of_the_user ./share/doc " ] || fail "uninstall left: $(find "$work/away")"
cmake -DBUILD="$work/lists" -P "$root/packaging/uninstall.cmake" >"$work/again" 2>&1 && fail "uninstall twice is no error"
grep -q 'nothing was' "$work/again" || fail "$(cat "$work/again")"

# The same for MPICH, where there is a library for it; and each program is started with the library of its MPI.
[ -d "$prefix/$libraries/crimp" ] || { echo "no library for MPICH was built"; exit 0; }
cmake -S "$here" -B "$work/cmake_mpich" -DCMAKE_PREFIX_PATH="$prefix" -DMPI_C_COMPILER="$(command -v mpicc.mpich)" >/dev/null
cmake --build "$work/cmake_mpich" >/dev/null
# shellcheck disable=SC2046
mpicc.mpich "$here/linked.c" $(pkg-config --cflags --libs crimp-mpich) -o "$work/linked_mpich"
mpicc.mpich "$here/linked.c" -o "$work/not_linked_mpich"
said=$(LD_PRELOAD=$library "$prefix/bin/crimp" check --file "$work/not_linked_mpich") && fail "crimp check takes a library of another MPI: $said"
[[ $said == "another MPI: "*"Open MPI"*"MPICH"* ]] || fail "$said"
export CRIMP_CODEC=fp16 CRIMP_ALGORITHM=allgather
for line in "mpiexec.mpich -n 2 $work/cmake_mpich/linked" "mpiexec.mpich -n 2 $work/linked_mpich" "$prefix/bin/crimp run -n 2 -- $work/not_linked_mpich"; do
  said=$($line 2>&1)
  case $said in
    *"1 calls compressed (1 with fp16; 1 by allgather)"*) ;;
    *) fail "$line was not compressed: $said" ;;
  esac
done
refused=$(MPIRUN=$(command -v mpirun.openmpi) "$prefix/bin/crimp" run -n 2 -- "$work/not_linked_mpich" 2>&1) && fail "another MPI's launcher was taken"
[[ $refused == *"needs lib"*"MPICH"*"Open MPI"* ]] || fail "$refused"
