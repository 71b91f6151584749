#!/usr/bin/env bash
# check_module.sh BUILD: Lmod loads the modulefile of an installation, of one that was moved, and a copy of it elsewhere, and takes back what it set. Exit 77: no Lmod here.
set -euo pipefail
build=$1 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
lmod=$(ls /usr/share/lmod/*/libexec/lmod "${LMOD_CMD:-/nowhere}" 2>/dev/null | head -n 1 || true)
[ -n "$lmod" ] || { echo "skipped: no Lmod"; exit 77; }
for component in module runtime tools; do cmake --install "$build" --prefix "$work/first" --component $component >/dev/null; done
mkdir -p "$work/site/crimp"
cp "$work/first/share/modulefiles/crimp/"*.lua "$work/site/crimp/"
unset MODULEPATH CRIMP_ROOT PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH MANPATH

# expect PREFIX MODULES: what the module of MODULES sets leads to PREFIX, and nothing is left of it afterwards.
expect() {
  (
    export MODULEPATH=$2
    eval "$("$lmod" bash load crimp 2>"$work/said")" || true
    [ "${CRIMP_ROOT:-}" = "$1" ] || fail "CRIMP_ROOT is '${CRIMP_ROOT:-}', not $1: $(cat "$work/said")"
    [ "$(command -v crimp)" = "$1/bin/crimp" ] || fail "crimp is $(command -v crimp)"
    ls "${LD_LIBRARY_PATH%%:*}"/libcrimp.so.* >/dev/null || fail "LD_LIBRARY_PATH is $LD_LIBRARY_PATH"
    [ "$PKG_CONFIG_PATH" = "${LD_LIBRARY_PATH%%:*}/pkgconfig" ] && [ "$CMAKE_PREFIX_PATH" = "$1" ] && [[ $MANPATH == "$1/share/man"* ]] ||
      fail "pkg-config: $PKG_CONFIG_PATH, CMake: $CMAKE_PREFIX_PATH, man: $MANPATH"
    [ -z "${LD_PRELOAD:-}" ] || fail "LD_PRELOAD is $LD_PRELOAD"
    crimp info >/dev/null
    said=$(crimp run --dry-run -np 2 -- /bin/true 2>&1)
    [[ $said != *"is not a setting"* ]] || fail "a variable of the module is taken for a setting: $said"
    said=$("$lmod" bash help crimp 2>&1) || true
    [[ $said == *"does not set LD_PRELOAD"* ]] || fail "module help does not speak of LD_PRELOAD: $said"
    eval "$("$lmod" bash unload crimp 2>"$work/said")" || true
    [ -z "${CRIMP_ROOT:-}${LD_LIBRARY_PATH:-}${PKG_CONFIG_PATH:-}${CMAKE_PREFIX_PATH:-}" ] && [[ :$PATH: != *":$1/bin:"* ]] || fail "unloaded, there is left: ${CRIMP_ROOT:-} ${LD_LIBRARY_PATH:-} $PATH"
  )
}
expect "$work/first" "$work/first/share/modulefiles"
expect "$work/first" "$work/site"
mv "$work/first" "$work/moved"
expect "$work/moved" "$work/moved/share/modulefiles"
