#!/usr/bin/env bash
# Libraries of 64-bit Arm for `cmake --preset aarch64`: Debian's packages, unpacked into a folder; none is installed but the compiler and the emulator.
#
#   aarch64.sh [FOLDER]     (build-aarch64/root)
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
at_most 1 "$@"
cd "$(dirname "$0")/.."
./scripts/setup.sh aarch64_packages

# Lists of packages of both architectures lie beside the folder: the machine's own apt does not learn of a second one.
root=${1:-build-aarch64/root}
mkdir -p "$root" "$root-apt/lists/partial"
root=$(realpath "$root")
cd "$root-apt"
apt=(apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Dir::State::lists="$PWD/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" download lib{hwy1,hwy-dev,rapidcheck-dev,spdlog-dev,fmt-dev,fmt9,spdlog1.10,flatbuffers-dev,xxhash-dev,openmpi3,openmpi-dev}:arm64 \
  doctest-dev nlohmann-json3-dev librandom123-dev libcli11-dev
for package in ./*.deb; do dpkg -x "$package" "$root"; done
