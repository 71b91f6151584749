#!/usr/bin/env bash
# Installs Debian packages: those of a list that are missing, nothing when all are there.
#
#   setup.sh [LIST]          LIST: packages (what building, testing and the demo need; the default), build_packages (building alone), horovod_packages,
#                            clang_packages, aarch64_packages, or for tests that skip without them report_packages (a browser), slurm_packages, package_packages
#   setup.sh --list [LIST]   print the packages with the reason for each, install nothing
#
# Needs root, or a user with sudo. Exit code 77: something is missing and no package registry can be reached.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "setup.sh: $2" >&2; exit "$1"; }
source "$folder/usage.sh"
source "$folder/registry.sh"
source "$folder/progress.sh"

print=''
case "${1:-}" in
  --list) print=1; shift ;;
  -*) unknown "$1" ;;
esac
list=${1:-packages}
[[ $# -le 1 && $list =~ ^(build_|horovod_|clang_|aarch64_|package_|report_|slurm_)?packages$ ]] || fail 2 "unknown argument '$*' (see --help)"
[ -z "$print" ] || exec cat "$folder/$list"

command -v apt-get >/dev/null || fail 1 "no apt-get here. Install these with your own package manager:
$(cat "$folder/$list")"

missing=()
while read -r package _; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done <"$folder/$list"
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail 1 "run as root, or install by hand: ${missing[*]}"
  # sudo drops proxies; what is not set is not asked for, because not everybody may hand variables on.
  proxies=$(for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do [ -z "${!name:-}" ] || echo "$name"; done | paste -sd,)
  sudo=(sudo ${proxies:+"--preserve-env=$proxies"})
fi
echo "setup.sh: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  { "${sudo[@]}" apt-get update -q &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1
}
if ! with_progress installing "$log" install; then
  registry_fail "$log" "${missing[*]}"
fi
echo "setup.sh: done"
