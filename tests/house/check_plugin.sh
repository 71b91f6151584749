#!/usr/bin/env bash
# check_plugin.sh LIBRARY|none: the CUDA plugin can be opened in a program that is under way. CUDA's runtime brings more thread-local memory
# than glibc keeps room for, so that nothing in the plugin may ask for it at a fixed place (initial-exec, the flag STATIC_TLS). That needs no GPU.
set -uo pipefail
[ "$1" != none ] || { echo "skipped: there is no CUDA compiler here, so no plugin"; exit 77; }
bad=0
dynamic=$(readelf -dW "$1") || exit 1
[[ $dynamic != *STATIC_TLS* ]] || { echo "$1 has thread-local variables at fixed places (STATIC_TLS):"; bad=1; readelf -sW "$1" | grep ' TLS '; }
python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" || bad=1
exit $bad
