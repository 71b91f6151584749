#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need: only those that are missing, nothing when all are there.
#
#   setup.sh            install what is missing (root, or a user with sudo)
#   setup.sh --list     print the packages with the reason for each, install nothing
set -euo pipefail

packages='
build-essential         C++20 compiler and make
cmake                   configures the build
ninja-build             runs the build
ccache                  makes the second build quick
git                     fetches this repository
ca-certificates         lets git and apt check certificates
pkg-config              finds OpenBLAS
openmpi-bin             mpirun
libopenmpi-dev          MPI headers, C and Fortran
libspdlog-dev           log lines
doctest-dev             unit tests
libhwy-dev              SIMD in the codecs, chosen at run time
librandom123-dev        counter-based random numbers
libcli11-dev            command lines
nlohmann-json3-dev      reports
libflatbuffers-dev      reads what Horovod broadcasts
flatbuffers-compiler    makes the reader
libxxhash-dev           digests of settings and payloads
librapidcheck-dev       property tests
gfortran                tests of the Fortran bindings
python3-mpi4py          tests of a Python program
python3-numpy           the same, and the figures
python3-matplotlib      figures
dataset-fashion-mnist   the images that the demo trains on
iproute2                hosts in network namespaces
zlib1g-dev              reads those images
libopenblas-dev         matrix products: demo and PowerSGD
'

case "${1:-}" in
  '') ;;
  --list) printf '%s' "${packages#$'\n'}"; exit 0 ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "setup.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac

command -v apt-get >/dev/null || {
  echo "setup.sh: no apt-get here. Install these with your own package manager:" >&2
  printf '%s' "${packages#$'\n'}" >&2
  exit 1
}

missing=()
while read -r package _; do
  [ -z "$package" ] || [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done <<<"$packages"
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: run as root, or install by hand: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "setup.sh: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${sudo[@]}" apt-get update -q &&
       "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "setup.sh: apt-get failed" >&2
  exit 1
fi
echo "setup.sh: done"
