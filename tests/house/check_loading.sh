#!/usr/bin/env bash
# check_loading.sh LIBRARY: what every process that loads Crimp pays. One function runs at load (self_check.cpp), beside the compiler's own, and no library
# comes along but MPI's and the C++ run time's.
set -uo pipefail
bad=0
entries=$(($(readelf -SW "$1" | sed 's/\[ */[/' | awk '$2 == ".init_array" {print "0x" $6}') / 8))
[ "$entries" = 2 ] || { echo "$entries functions run when $1 is loaded, not 2"; bad=1; }
more=$(readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libmpi[a-z]*|libstdc\+\+|libm|libgcc_s|libc|libasan|libubsan|libtsan|ld-linux[-a-z0-9_]*|libpthread|libdl)\.so')
[ -z "$more" ] || { echo "$1 also needs:"; echo "$more"; bad=1; }
exit $bad
