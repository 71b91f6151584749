#!/usr/bin/env bash
# Writes docs/quality.md: error and convergence of every codec at two settings, with and without error feedback, by each kind of algorithm. About 10 minutes on 2 cores.
#
#   scripts/quality.sh [--codec NAME]     only codecs whose names begin so (and fp32); the table is then printed
#
# Needs the Debian package dataset-fashion-mnist. Exit code 1 where a known fact is not reproduced.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/usage.sh"
if [ "${1:-}" = --codec ]; then at_most 1 "${@:2}"; else at_most 0 "$@"; fi
cd "$(dirname "$0")/.."
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C build crimp_quality >/dev/null
if [ $# -gt 0 ]; then exec build/bin/crimp_quality "$@"; fi
exec build/bin/crimp_quality --out docs/quality.md
