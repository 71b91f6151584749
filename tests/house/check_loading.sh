#!/usr/bin/env bash
# check_loading.sh LIBRARY: what every process that loads Crimp pays. One function runs at load (self_check.cpp), beside the compiler's own, no library
# comes along but MPI's and the C++ run time's, and nothing of MPI 4 has to be there.
set -uo pipefail
bad=0
entries=$(($(readelf -SW "$1" | sed 's/\[ */[/' | awk '$2 == ".init_array" {print "0x" $6}') / 8))
[ "$entries" = 2 ] || { echo "$entries functions run when $1 is loaded, not 2"; bad=1; }
more=$(readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libmpi[a-z]*|libstdc\+\+|libm|libgcc_s|libc|libasan|libubsan|libtsan|ld-linux[-a-z0-9_]*|libpthread|libdl)\.so')
[ -z "$more" ] || { echo "$1 also needs:"; echo "$more"; bad=1; }
# It may run over an older MPI than the one it was built for.
newer=$(readelf --dyn-syms -W "$1" | awk '$7 == "UND" && $5 != "WEAK" {print $8}' | sed 's/@.*//' |
  grep -E '^P?MPI_(.*_c|(Neighbor_)?(All|Barrier|Bcast|Exscan|Gather|Reduce|Scan|Scatter)[a-z_]*_init|Session_.*|P(send|recv)_init|Pready.*|Parrived)$')
[ -z "$newer" ] || { echo "$1 cannot be loaded over an MPI without MPI 4 (#pragma weak):"; echo "$newer"; bad=1; }
exit $bad
